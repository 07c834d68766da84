//! What the log does not have: changes that are missing, and those that are no records.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::feed::{Change, GapCause};
use parking_lot::Mutex;

/// Most events that are kept. A reader that lacks older ones is told of a gap.
const EVENTS_MAX: usize = 64;

/// What readers of the feed are told beside records.
#[derive(Debug, Default)]
pub(crate) struct Telling {
    /// Changes up to these stamps may be missing, by cause, in the order of [`GapCause::ALL`].
    missing: [AtomicU64; GapCause::ALL.len()],
    /// The greatest of them as superblocks have it: at least as much.
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
        self.missing.iter().map(|stamp| stamp.load(Ordering::Acquire)).max().unwrap_or(0)
    }

    /// Why changes up to a stamp are missing that [`Telling::missing`] gave: the cause that was noted with it, or with a later one.
    pub(super) fn cause(&self, stamp: u64) -> GapCause {
        let noted =
            GapCause::ALL.into_iter().zip(&self.missing).map(|(cause, noted)| (noted.load(Ordering::Acquire), cause));
        noted
            .filter(|(noted, _)| *noted >= stamp)
            .min_by_key(|(noted, _)| *noted)
            .map_or(GapCause::Start, |(_, cause)| cause)
    }

    /// What was appended before this stamp may be lost, if it was the last before a node was killed; 0: nothing is.
    pub(super) fn lost(&self) -> u64 {
        self.lost.load(Ordering::Acquire)
    }

    pub(super) fn newest_event(&self) -> u64 {
        self.newest_event.load(Ordering::Acquire)
    }

    /// Events after a stamp, up to another.
    pub(super) fn events(&self, from: u64, to: u64) -> VecDeque<(u64, Change)> {
        let events = self.events.lock();
        events.iter().filter(|(stamp, _)| (from + 1..=to).contains(stamp)).cloned().collect()
    }

    /// Changes up to a stamp are not in the log, or will be gone from it.
    pub(crate) fn note_missing(&self, stamp: u64, cause: GapCause) {
        self.missing[cause as usize].fetch_max(stamp, Ordering::AcqRel);
    }

    /// Notes what is no record, under the stamp that `stamp` draws.
    pub(super) fn note_event(&self, stamp: impl FnOnce() -> u64, event: Change) {
        let mut events = self.events.lock();
        let stamp = stamp();
        events.push_back((stamp, event));
        if events.len() > EVENTS_MAX
            && let Some((oldest, _)) = events.pop_front()
        {
            self.note_missing(oldest, GapCause::Reclaimed);
        }
        self.newest_event.store(stamp, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_has_the_cause_of_what_is_missing_last() {
        let telling = Telling::default();
        assert_eq!(telling.missing(), 0);
        for (stamp, cause) in
            [(5, GapCause::Start), (9, GapCause::Reclaimed), (7, GapCause::Off), (8, GapCause::Reclaimed)]
        {
            telling.note_missing(stamp, cause);
        }
        assert_eq!((telling.missing(), telling.cause(9)), (9, GapCause::Reclaimed));
        telling.note_missing(12, GapCause::Off);
        assert_eq!((telling.missing(), telling.cause(12)), (12, GapCause::Off));
        assert_eq!(telling.cause(9), GapCause::Reclaimed, "a reader that asked before");
    }
}
