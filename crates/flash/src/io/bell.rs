//! What tells a ring's thread that there is something to do.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

/// An event descriptor of a ring's, which becomes readable anew with every completion outside a turn, and when it is rung. While the
/// ring is turned by a worker it is not read: the worker's poller is edge-triggered.
pub(super) struct Bell {
    event: OwnedFd,
    /// Reads that last too long are to be given up.
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

    /// Asks the ring's thread to give up reads that last too long. From any thread.
    pub(super) fn ring(&self) {
        self.asks.store(true, Ordering::Release);
        // It fails when the count is full, and then the descriptor is readable anyway.
        let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
    }

    /// Whether it was rung since this was last asked.
    #[inline]
    pub(super) fn has_asked(&self) -> bool {
        self.asks.load(Ordering::Relaxed) && self.asks.swap(false, Ordering::Acquire)
    }

    /// Makes the descriptor unreadable until the next event.
    pub(super) fn calm(&self) {
        let _ = rustix::io::read(&self.event, &mut [0; 8]);
    }

    /// Waits for an event, and for so long at most.
    pub(super) fn wait(&self, most: Duration) {
        let most = Timespec { tv_sec: most.as_secs() as i64, tv_nsec: i64::from(most.subsec_nanos()) };
        let _ = poll(&mut [PollFd::new(&self.event, PollFlags::IN)], Some(&most));
    }
}
