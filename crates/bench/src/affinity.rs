//! Which CPUs a thread may run on, and lists of CPUs on the command line.

use std::process::{Child, Command};

use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;

use crate::error::{BenchError, Result};

/// Parses a list of CPUs such as `0`, `0,2` or `0-3`.
///
/// # Errors
/// The reason, naming the part that is no CPU.
pub fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.trim().parse::<usize>(), last.trim().parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < CpuSet::count() => cpus.extend(first..=last),
            _ => return Err(format!("{part:?} is no CPU or range of CPUs")),
        }
    }
    Ok(cpus)
}

/// Lets the calling thread, and what it starts from now on, run on `cpus` only; an empty list changes nothing.
///
/// # Errors
/// [`BenchError::System`] when none of them may be used.
pub fn pin_this_thread(cpus: &[usize]) -> Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let pin = || {
        let mut set = CpuSet::new();
        cpus.iter().try_for_each(|cpu| set.set(*cpu))?;
        sched_setaffinity(Pid::from_raw(0), &set)
    };
    pin().map_err(|error| BenchError::system(format!("pin a thread to the CPUs {cpus:?}"), error))
}

/// Starts `command` on `cpus` only, from a new thread, pinned first: a child inherits the CPUs of the thread that starts it. An empty
/// list: on those of this thread.
///
/// # Errors
/// [`BenchError::System`] when none of them may be used; the inner error when it does not start.
pub fn spawn_pinned(mut command: Command, cpus: &[usize]) -> Result<std::io::Result<Child>> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| pin_this_thread(cpus).map(|()| command.spawn()));
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_lists_and_ranges() {
        assert_eq!(parse_cpus("0"), Ok(vec![0]));
        assert_eq!(parse_cpus("0,2-4"), Ok(vec![0, 2, 3, 4]));
        for wrong in ["", "a", "3-1", "1-", "99999"] {
            assert!(parse_cpus(wrong).is_err(), "{wrong}");
        }
    }
}
