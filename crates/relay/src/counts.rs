//! What a relay counts.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_feed::GapCause;

use crate::apply::{Fate, Refusal};
use crate::due::DueCause;

/// Counters that only grow, of all streams of a relay.
#[derive(Debug, Default)]
pub struct Counts {
    /// The cluster has them now, or had them.
    pub taken: AtomicU64,
    /// The cluster has something newer.
    pub superseded: AtomicU64,
    /// Not created, since what came after them follows.
    pub outdated: AtomicU64,
    /// Not created, and read again.
    pub unsure: AtomicU64,
    /// By the order of [`Refusal::ALL`].
    pub refused: [AtomicU64; Refusal::ALL.len()],
    /// Flushes that did not cross.
    pub flushes_left_out: AtomicU64,
    /// Changes of rollbacks that did not cross.
    pub rolled_back: AtomicU64,
    /// Tries of a change after the first.
    pub retries: AtomicU64,
    /// Gaps that nodes told of, in the order of [`GapCause::ALL`]; the last one: without a cause.
    pub gaps: [AtomicU64; GapCause::ALL.len() + 1],
    /// Bytes of keys and values that were read.
    pub bytes: AtomicU64,
    /// Changes that were read.
    pub read: AtomicU64,
    /// Changes that have ended.
    pub ended: AtomicU64,
    /// Times that another copy was taken.
    pub switches: AtomicU64,
    /// Times of the other region that were to be compared, in the order of [`DueCause::ALL`].
    pub due: [AtomicU64; DueCause::ALL.len()],
}

/// Adds to a counter that nothing is ordered by.
pub(crate) fn add(counter: &AtomicU64, count: u64) {
    counter.fetch_add(count, Ordering::Relaxed);
}

/// The value of a counter.
pub(crate) fn of(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counts {
    /// A change has ended.
    pub(crate) fn count(&self, fate: Fate) {
        add(&self.ended, 1);
        match fate {
            Fate::Taken => add(&self.taken, 1),
            Fate::Superseded => add(&self.superseded, 1),
            Fate::Outdated => add(&self.outdated, 1),
            Fate::Unsure => add(&self.unsure, 1),
            Fate::Refused(refusal) => add(&self.refused[refusal as usize], 1),
            Fate::RolledBack => add(&self.rolled_back, 1),
            Fate::Nothing => {}
        }
    }

    /// A node told of a gap.
    pub(crate) fn count_gap(&self, cause: Option<GapCause>) {
        add(&self.gaps[cause.map_or(GapCause::ALL.len(), |cause| cause as usize)], 1);
    }

    /// Gaps by the word of their cause.
    pub(crate) fn gaps(&self) -> Vec<(&'static str, u64)> {
        let words = GapCause::ALL.iter().map(|cause| cause.word()).chain(["unknown"]);
        words.zip(&self.gaps).map(|(word, count)| (word, of(count))).collect()
    }

    /// Changes that were read and have not ended.
    pub(crate) fn under_way(&self) -> u64 {
        of(&self.read).saturating_sub(of(&self.ended))
    }
}
