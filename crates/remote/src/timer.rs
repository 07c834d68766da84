//! Wakes a thread that waits for its event queue when a deadline is near.

use std::os::fd::OwnedFd;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A timer in the event queue. Set rarely: to the first deadline, and when that has passed, to the next one.
#[derive(Debug)]
pub(crate) struct Timer {
    descriptor: OwnedFd,
    armed: Option<Instant>,
}

impl Timer {
    /// A timer that `queue` tells of.
    pub(crate) fn new(queue: &OwnedFd) -> Result<Self, Errno> {
        let descriptor = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC)?;
        epoll::add(queue, &descriptor, EventData::new_u64(0), EventFlags::IN | EventFlags::ET)?;
        Ok(Self { descriptor, armed: None })
    }

    /// Makes sure that it goes off no later than at `deadline`.
    #[inline]
    pub(crate) fn cover(&mut self, deadline: Option<Instant>, now: Instant) {
        let passed = self.armed.is_some_and(|armed| armed <= now);
        if passed {
            self.armed = None;
        }
        if let Some(deadline) = deadline
            && self.armed.is_none_or(|armed| deadline < armed)
        {
            self.arm(deadline, now);
        }
    }

    fn arm(&mut self, deadline: Instant, now: Instant) {
        let wait = deadline.saturating_duration_since(now);
        // A time of zero would disarm it.
        let nanoseconds = wait.subsec_nanos().max(u32::from(wait.is_zero()));
        let it_value = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: nanoseconds.into() };
        let it_interval = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval, it_value };
        match timerfd_settime(&self.descriptor, TimerfdTimerFlags::empty(), &value) {
            Ok(_) => self.armed = Some(deadline),
            Err(error) => tracing::error!(%error, "cannot set a timer"),
        }
    }
}
