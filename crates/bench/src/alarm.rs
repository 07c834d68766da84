//! A client that shares its cores with what it measures: it sleeps until the time of a request, and then runs first.
//!
//! An open loop that polls without sleep takes a core from the server; one that sleeps must be woken on time, or its own delay
//! counts as the server's. Hence a timer of the kernel that counts in nanoseconds, and a real-time priority.

use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use thread_priority::{
    RealtimeThreadSchedulePolicy, ThreadPriority, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};

use crate::error::{BenchError, Result};

/// The event that an alarm raises; no connection has this token.
pub const TOKEN: Token = Token(usize::MAX);

/// A timer that wakes a poll.
#[derive(Debug)]
pub struct Alarm(TimerFd);

impl Alarm {
    /// An alarm that is not set.
    ///
    /// # Errors
    /// [`BenchError::System`].
    pub fn new() -> Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC);
        timer.map(Self).map_err(|error| BenchError::system("make a timer", error))
    }

    /// Lets the alarm wake the poll of `registry` with an event of [`TOKEN`].
    ///
    /// # Errors
    /// [`BenchError::System`].
    pub fn register(&self, registry: &Registry) -> Result<()> {
        let descriptor = self.0.as_fd().as_raw_fd();
        let registered = registry.register(&mut SourceFd(&descriptor), TOKEN, Interest::READABLE);
        registered.map_err(|error| BenchError::system("register a timer with epoll", error))
    }

    /// Sets the alarm to go off once after `left`, which is not 0; an earlier setting is forgotten.
    ///
    /// # Errors
    /// [`BenchError::System`].
    pub fn set(&self, left: Duration) -> Result<()> {
        let set = self.0.set(Expiration::OneShot(left.into()), TimerSetTimeFlags::empty());
        set.map_err(|error| BenchError::system("set a timer", error))
    }
}

/// Lets the calling thread run ahead of all ordinary ones, as a client on a separate machine would; without the right to it
/// (root, or CAP_SYS_NICE) the thread stays what it is.
pub fn run_first() {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo);
    let lowest = ThreadPriority::from_posix(thread_priority::ScheduleParams { sched_priority: 1 });
    // A refusal costs accuracy, not correctness.
    let _ = set_thread_priority_and_policy(thread_native_id(), lowest, policy);
}

#[cfg(test)]
mod tests {
    use mio::{Events, Poll};

    use super::*;

    #[test]
    fn an_alarm_wakes_its_poll_each_time_it_is_set() {
        let (mut poll, mut events) = (Poll::new().unwrap(), Events::with_capacity(4));
        let alarm = Alarm::new().unwrap();
        alarm.register(poll.registry()).unwrap();
        for _ in 0..3 {
            alarm.set(Duration::from_micros(50)).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(60))).unwrap();
            assert_eq!(events.iter().map(|event| event.token()).collect::<Vec<_>>(), [TOKEN]);
        }
    }
}
