//! Resource usage of the process, for `stats` and the metrics.

use std::sync::LazyLock;
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use rustix::process::{Resource, getrlimit};

/// Processor time of the process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl ProcessorTime {
    /// The usage so far; zero if the operating system does not report it.
    pub fn now() -> Self {
        let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return Self::default() };
        let duration = |seconds: i64, micros: i64| {
            Duration::from_secs(u64::try_from(seconds).unwrap_or(0))
                + Duration::from_micros(u64::try_from(micros).unwrap_or(0))
        };
        let (user, system) = (usage.user_time(), usage.system_time());
        Self { user: duration(user.tv_sec(), user.tv_usec()), system: duration(system.tv_sec(), system.tv_usec()) }
    }
}

/// Bytes of a page of `/proc/self/statm`.
fn page_bytes() -> u64 {
    rustix::param::page_size() as u64
}

/// A field of `/proc/self/statm`, in pages.
fn statm(field: usize) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    text.split_whitespace().nth(field)?.parse().ok()
}

/// Memory of the process in RAM, in bytes.
pub fn resident_bytes() -> Option<u64> {
    Some(statm(1)? * page_bytes())
}

/// Address space of the process, in bytes.
pub fn virtual_bytes() -> Option<u64> {
    Some(statm(0)? * page_bytes())
}

/// File descriptors that are open.
pub fn open_descriptors() -> Option<u64> {
    // One of them is the descriptor that reads this folder.
    Some((std::fs::read_dir("/proc/self/fd").ok()?.count() as u64).saturating_sub(1))
}

/// File descriptors that may be open.
pub fn most_descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Threads of the process.
pub fn threads() -> Option<u64> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count() as u64)
}

/// The Unix time in seconds at which the process began, to a clock tick (10 ms); the same in every call, also when the wall clock
/// is set.
pub fn start_seconds() -> Option<f64> {
    static START: LazyLock<Option<f64>> = LazyLock::new(|| {
        let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
        // Field 22 of proc(5). The second one, the program's name in brackets, may hold spaces.
        let ticks: f64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
        let system = std::fs::read_to_string("/proc/stat").ok()?;
        let boot: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
        Some(boot + ticks / rustix::param::clock_ticks_per_second() as f64)
    });
    *START
}
