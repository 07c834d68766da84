//! How soon a worker that is woken gets its processor.
//!
//! A worker mostly sleeps, works for some microseconds and sleeps again; a thread that works on end, of this process or
//! another, holds the processor for a slice of milliseconds. A thread that asks for short slices is let in before that slice
//! is over (Linux 6.12, EEVDF); it gets no larger share of the processor, only a prompter one.

use std::time::Duration;

use rustix::io::Errno;

/// The shortest slice that Linux gives.
const SLICE: Duration = Duration::from_micros(100);

/// Asks for short slices for the calling thread. Where the kernel has none, or a sandbox refuses, nothing changes.
pub(crate) fn ask() {
    if let Err(error) = set_slice(SLICE) {
        tracing::debug!(%error, "no short slices for a worker");
    }
}

/// Leaves the rest of the thread's scheduling as it is.
fn set_slice(slice: Duration) -> Result<(), Errno> {
    const THIS_THREAD: libc::pid_t = 0;
    const NO_FLAGS: libc::c_uint = 0;
    let size = size_of::<libc::sched_attr>() as libc::c_uint;
    // SAFETY: a structure of integers, for which zeros are values.
    let mut attributes: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes, which the structure has.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, THIS_THREAD, &raw mut attributes, size, NO_FLAGS) };
    check(got)?;
    if attributes.sched_policy != libc::SCHED_OTHER as u32 {
        // Whoever runs the node chose otherwise.
        return Ok(());
    }
    attributes.sched_runtime = slice.as_nanos() as u64;
    // SAFETY: the kernel reads as many bytes as the structure says of itself, which `sched_getattr` filled in.
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
