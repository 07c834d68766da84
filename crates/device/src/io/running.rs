//! Time in which this process ran. Requests wait for a device by this time: where the process was stopped (by a signal, a
//! debugger, or with its virtual machine), the device is not to blame for what that took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How late a thread may wake on a busy machine, in microseconds. Where the thread that watches is later, the process was
/// stopped.
const LATE: u64 = 300_000;

/// A clock that leaves out the time in which the process was stopped, as far as the thread that watches has noticed or would now.
#[derive(Debug)]
pub struct RunningTime {
    begun: Instant,
    /// When the thread that watches wakes at the latest, in microseconds since `begun`; `u64::MAX` without such a thread.
    wakes_by: AtomicU64,
    /// Microseconds in which the process was stopped.
    stopped: AtomicU64,
}

impl Default for RunningTime {
    fn default() -> Self {
        Self::new()
    }
}

impl RunningTime {
    /// A clock that begins now, and that no thread watches.
    pub fn new() -> Self {
        Self { begun: Instant::now(), wakes_by: AtomicU64::new(u64::MAX), stopped: AtomicU64::new(0) }
    }

    /// The time since it began.
    pub fn now(&self) -> Duration {
        self.at(self.elapsed())
    }

    /// The thread that watches is awake, and wakes again at this instant at the latest.
    pub fn wakes_by(&self, instant: Instant) {
        self.note(self.elapsed(), micros(instant.saturating_duration_since(self.begun)));
    }

    fn elapsed(&self) -> u64 {
        micros(self.begun.elapsed())
    }

    fn at(&self, elapsed: u64) -> Duration {
        let stopped = self.stopped.load(Ordering::Acquire) + stopped_by(elapsed, self.wakes_by.load(Ordering::Acquire));
        Duration::from_micros(elapsed.saturating_sub(stopped))
    }

    fn note(&self, elapsed: u64, wakes_by: u64) {
        let stopped = stopped_by(elapsed, self.wakes_by.load(Ordering::Acquire));
        // In this order: a thread that looks in between is early, not late.
        self.stopped.fetch_add(stopped, Ordering::AcqRel);
        self.wakes_by.store(wakes_by, Ordering::Release);
    }
}

/// Until when a request waits, by the time in which this process runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Duration);

impl Deadline {
    /// `limit` from now.
    pub fn after(limit: Duration, time: &RunningTime) -> Self {
        Self(time.now() + limit)
    }

    /// The time left until then.
    pub fn left(self, time: &RunningTime) -> Duration {
        self.0.saturating_sub(time.now())
    }

    /// Whether no time is left.
    pub fn is_over(self, time: &RunningTime) -> bool {
        self.left(time).is_zero()
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// For how long the process was stopped, if the thread that watches was to wake at `wakes_by` and did not.
fn stopped_by(elapsed: u64, wakes_by: u64) -> u64 {
    let late = elapsed.saturating_sub(wakes_by);
    if late > LATE { late } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;

    #[test]
    fn time_in_which_no_thread_ran_is_left_out() {
        let time = RunningTime::new();
        assert_eq!(time.at(5 * SECOND), Duration::from_secs(5), "no thread watches yet");
        time.note(5 * SECOND, 6 * SECOND);
        assert_eq!(time.at(6 * SECOND + LATE), Duration::from_micros(6 * SECOND + LATE), "the machine is busy");
        // Stopped until second 16. Any thread knows, also before the one that watches has woken.
        assert_eq!(time.at(16 * SECOND), Duration::from_secs(6));
        time.note(16 * SECOND, 17 * SECOND);
        assert_eq!(time.at(16 * SECOND), Duration::from_secs(6));
        assert_eq!(time.at(17 * SECOND), Duration::from_secs(7));
        time.note(17 * SECOND, 18 * SECOND);
        assert_eq!(time.at(48 * SECOND), Duration::from_secs(8));
    }
}
