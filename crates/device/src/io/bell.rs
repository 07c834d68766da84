//! The event descriptor that wakes a ring's thread.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// A ring's event descriptor. It becomes readable anew with each completion outside a turn, and when it is rung. A worker that
/// turns the ring need not read it, since the worker's poller is edge-triggered.
pub(super) struct Bell {
    event: OwnedFd,
    /// The ring is asked to fail late reads.
    asks: AtomicBool,
}

impl Bell {
    pub(super) fn new() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { event, asks: AtomicBool::new(false) })
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.event.as_raw_fd()
    }

    /// Asks the ring's thread to fail late reads. Callable from any thread.
    pub(super) fn ring(&self) {
        self.asks.store(true, Ordering::Release);
        // The write fails only when the counter is full, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Whether it was rung since the last call.
    #[inline]
    pub(super) fn has_asked(&self) -> bool {
        self.asks.load(Ordering::Relaxed) && self.asks.swap(false, Ordering::Acquire)
    }

    /// Makes the descriptor unreadable until the next event.
    pub(super) fn calm(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Waits for an event, at most for `most`.
    pub(super) fn wait(&self, most: Duration) {
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&most));
    }
}
