//! Scheduling of threads: how soon a woken worker gets a CPU, and who steps back for workers.
//!
//! A worker mostly sleeps, runs for some microseconds and sleeps again; a busy thread, of this process or another, keeps the CPU
//! for a slice of milliseconds. A thread with short slices may preempt it before that slice is over (Linux 6.12, EEVDF). It gets
//! no larger share of the CPU, only a lower latency.

use std::time::Duration;

use rustix::io::Errno;

/// The shortest slice that Linux allows.
const SLICE: Duration = Duration::from_micros(100);

/// How much nicer than workers a thread is whose work can wait: a tenth of their share of a CPU that both want.
const NICER: i32 = 10;

/// Lets workers go before the calling thread. It can not be taken back.
pub(crate) fn step_back() {
    if let Err(error) = rustix::process::nice(NICER) {
        tracing::debug!(%error, "no lower priority for a thread");
    }
}

/// Requests short slices for the calling thread. Has no effect if the kernel lacks them or a sandbox refuses.
pub(crate) fn ask() {
    if let Err(error) = set_slice(SLICE) {
        tracing::debug!(%error, "no short slices for a worker");
    }
}

/// Keeps the thread's other scheduling attributes.
fn set_slice(slice: Duration) -> Result<(), Errno> {
    const THIS_THREAD: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: a structure of integers, for which zeros are valid.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes, which the structure has.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, THIS_THREAD, &raw mut attributes, size, NO_FLAGS) };
    check(got)?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        // The operator chose another policy.
        return Ok(());
    }
    attributes.sched_runtime = slice.as_nanos() as u64;
    // SAFETY: the kernel reads as many bytes as the structure's `size` says, which `sched_getattr` filled in.
    check(unsafe { libc::syscall(libc::SYS_sched_setattr, THIS_THREAD, &raw const attributes, NO_FLAGS) })
}

fn check(returned: libc::c_long) -> Result<(), Errno> {
    match returned {
        0 => Ok(()),
        _ => Err(Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::INVAL)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_changes_nothing_else() {
        let nice = || rustix::process::getpriority_process(None).expect("a priority");
        let before = nice();
        assert_eq!(set_slice(SLICE), Ok(()));
        assert_eq!(nice(), before);
    }
}
