//! What the log does not have: changes that are missing, and those that are no records.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::feed::Change;
use parking_lot::Mutex;

/// Most events that are kept. A reader that lacks older ones is told of a gap.
const EVENTS_MAX: usize = 64;

/// What readers of the feed are told beside records.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    /// Changes up to this stamp may be missing.
    missing: AtomicU64,
    /// The same as superblocks have it: at least as much.
    pub(super) saved: AtomicU64,
    /// When a run began whose predecessor was killed, as a stamp; 0: none was.
    pub(super) lost: AtomicU64,
    /// Flushes with their stamps, in order. Held to draw a stamp and note an event under it.
    events: Mutex<VecDeque<(u64, Change)>>,
    newest_event: AtomicU64,
}

impl Telling {
    /// Changes up to this stamp may be missing.
    pub(super) fn missing(&self) -> u64 {
        self.missing.load(Ordering::Acquire)
    }

    /// What was appended before this stamp may be lost, if it was the last before a node was killed; 0: nothing is.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn newest_event(&self) -> u64 {
        self.newest_event.load(Ordering::Acquire)
    }

    /// Events behind a stamp, up to another.
    pub(super) fn events(&self, from: u64, to: u64) -> VecDeque<(u64, Change)> {
        let events = self.events.lock();
        events.iter().filter(|(stamp, _)| (from + 1..=to).contains(stamp)).cloned().collect()
    }

    /// Changes up to a stamp are not in the log, or will be gone from it.
    pub(crate) fn note_missing(&self, stamp: u64) {
        self.missing.fetch_max(stamp, Ordering::AcqRel);
    }

    /// Notes what is no record, under the stamp that `stamp` draws.
    pub(super) fn note_event(&self, stamp: impl FnOnce() -> u64, event: Change) {
        let mut events = self.events.lock();
        let stamp = stamp();
        events.push_back((stamp, event));
        if events.len() > EVENTS_MAX
            && let Some((oldest, _)) = events.pop_front()
        {
            self.note_missing(oldest);
        }
        self.newest_event.store(stamp, Ordering::Release);
    }
}
