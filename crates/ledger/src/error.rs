//! Why a verb of a ledger failed.

use crate::entry::{Incarnation, Revision};

/// Why a verb failed. What changes something and fails with anything but [`Unknown`](Self::Unknown) has not taken effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LedgerError {
    /// The store cannot be reached, has no leader, is full, or is closed.
    #[error("the ledger cannot be had: {reason}")]
    Unavailable {
        /// What was seen.
        reason: String,
    },
    /// A change may have taken effect or not: its answer did not come. Who has to know puts a key of its own with each commit, and
    /// looks for it.
    #[error("whether the commit took effect is unknown: {reason}")]
    Unknown {
        /// What was seen.
        reason: String,
    },
    /// What was asked for is against the rules: a key that is too long, a commit that is too large.
    #[error("refused: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
    /// What was to be followed was forgotten. Take a snapshot, and follow from there.
    #[error("changes before revision {oldest} were compacted away")]
    Compacted {
        /// The oldest revision that can be followed from.
        oldest: Revision,
    },
    /// The store holds fewer revisions than were asked for: it was restored behind its back.
    #[error("the ledger is at revision {at}, and {asked} was asked for")]
    Future {
        /// What was asked for.
        asked: Revision,
        /// What there is.
        at: Revision,
    },
    /// It is another ledger than the one that was followed: filled from a backup, or put in its place.
    #[error("the ledger is {now}, another one than before")]
    Replaced {
        /// Which one it is now.
        now: Incarnation,
    },
    /// The hold has ended: its keys are gone, or will be within a moment.
    #[error("the hold has ended")]
    HoldEnded,
    /// What is stored is damaged.
    #[error("the ledger is damaged: {reason}")]
    Damaged {
        /// What was seen.
        reason: String,
    },
}
