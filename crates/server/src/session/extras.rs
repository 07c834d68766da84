//! The parts of a session that are rarely in use: the queue of parked requests, a dump, the feed, a watcher.
//!
//! They are allocated on demand and freed when empty, so an idle connection owns none. With items on SSD that happens for every
//! request, so a thread keeps a few freed ones, each with the memory of its queue, for its sessions.

use std::cell::RefCell;

use super::change::Forgotten;
use super::login::Pending;
use super::parked::Parked;
use crate::dump::Dump;
use crate::feed::Changes;
use crate::stats::Listing;
use crate::watch::Watcher;

/// Most that a thread keeps: each takes up to 6 KiB, and few workers have more waiting connections at once.
const KEPT: usize = 256;

thread_local! {
    #[expect(clippy::vec_box, reason = "the boxes themselves come from sessions and go to sessions")]
    static FREE: RefCell<Vec<Box<SessionExtras>>> = const { RefCell::new(Vec::new()) };
}

/// The rarely used parts of a session.
#[derive(Default)]
pub(super) struct SessionExtras {
    pub(super) parked: Parked,
    pub(super) dump: Option<Dump>,
    pub(super) changes: Option<Changes>,
    pub(super) listing: Option<Listing>,
    pub(super) watcher: Option<Watcher>,
    /// What a refused write leaves to be deleted, after the parked requests on its key.
    pub(super) forgotten: Option<Forgotten>,
    /// A log-in whose password is being checked.
    pub(super) log_in: Option<Pending>,
}

impl SessionExtras {
    /// Empty extras, recycled if possible.
    pub(super) fn empty() -> Box<Self> {
        FREE.with(|free| free.borrow_mut().pop()).unwrap_or_default()
    }

    /// Whether nothing is in use.
    pub(super) fn is_empty(&self) -> bool {
        self.parked.is_empty()
            && !self.parked.has_failed()
            && self.dump.is_none()
            && self.changes.is_none()
            && self.listing.is_none()
            && self.watcher.is_none()
            && self.forgotten.is_none()
            && self.log_in.is_none()
    }

    /// Keeps empty extras for another session.
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
