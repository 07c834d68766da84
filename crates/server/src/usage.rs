//! What the process itself costs, for `stats`.

use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};

/// Processor time of the process since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessorTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

impl ProcessorTime {
    /// As of now; zero if the operating system does not tell.
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
