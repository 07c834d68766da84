//! What most sessions have no need of most of the time: a queue of parked requests, a dump, a watcher.
//!
//! It is there from when it is needed until nothing is left in it, so that an idle connection owns none. With items on SSD
//! that is once for every request, so a thread keeps some that its sessions gave up, each with the memory of its queue, for
//! the sessions that need one next.

use std::cell::RefCell;

use super::parked::Parked;
use crate::dump::Dump;
use crate::watch::Watcher;

/// Most that a thread keeps: each is 1 or 2 KiB, and few workers have more connections that wait at once.
const KEPT: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes themselves come from sessions and go to sessions")]
    static FREE: RefCell<Vec<Box<SessionExtras>>> = const { RefCell::new(Vec::new()) };
}

/// All of it.
#[derive(Default)]
pub(super) struct SessionExtras {
    pub(super) parked: Parked,
    pub(super) dump: Option<Dump>,
    pub(super) watcher: Option<Watcher>,
}

impl SessionExtras {
    /// An empty one.
    pub(super) fn empty() -> Box<Self> {
        FREE.with(|free| free.borrow_mut().pop()).unwrap_or_default()
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.dump.is_none() && self.watcher.is_none()
    }

    /// Keeps one that is empty for another session.
    pub(super) fn keep(self: Box<Self>) {
        debug_assert!(self.is_empty(), "what is kept has nothing of its session's");
        FREE.with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEPT && self.parked.is_small() {
                free.push(self);
            }
        });
    }
}
