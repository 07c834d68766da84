//! What a repair found.

use serde::{Deserialize, Serialize};

/// What became of a key that differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// One side had an older version: it has the newer one now.
    Older,
    /// One side had the same version with a shorter life: it lives as long now.
    Life,
    /// One side had deleted it: it is deleted on both now.
    Deleted,
    /// One side lacks it and has not deleted it: it was evicted there, or never came. It stays as it is.
    Evicted,
    /// One side has flushed it, or a rollback of one region wrote it, and that is its own. It stays as it is.
    Flushed,
    /// It changed meanwhile, and is alike now or newer.
    Changed,
    /// A side refuses it, as for its size.
    Refused,
    /// A side failed to answer.
    Failed,
}

/// The counts of what was found.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Report {
    /// Items that both sides hold together, in the time that was looked at.
    pub items: u64,
    /// Buckets in which something is.
    pub buckets: u64,
    /// Buckets that differed.
    pub buckets_differing: u64,
    /// Items that were listed in them.
    pub listed: u64,
    /// By [`Cause::Older`], of which `to_a` were written to A; so with the next.
    pub older: u64,
    /// By [`Cause::Life`].
    pub life: u64,
    /// By [`Cause::Deleted`].
    pub deleted: u64,
    /// Of these three, those that were written to A.
    pub to_a: u64,
    /// And to B.
    pub to_b: u64,
    /// By [`Cause::Evicted`].
    pub evicted: u64,
    /// By [`Cause::Flushed`].
    pub flushed: u64,
    /// By [`Cause::Changed`].
    pub changed: u64,
    /// By [`Cause::Refused`].
    pub refused: u64,
    /// By [`Cause::Failed`].
    pub failed: u64,
    /// Bytes of digests.
    pub digest_bytes: u64,
    /// Bytes of lists.
    pub list_bytes: u64,
    /// Bytes of keys and values that were copied.
    pub copied_bytes: u64,
    /// It came to its end.
    pub done: bool,
}

impl Report {
    /// Counts what became of a key; `is_to_a`: by a write to A.
    pub(crate) fn count(&mut self, cause: Cause, is_to_a: bool) {
        let (counter, is_written) = match cause {
            Cause::Older => (&mut self.older, true),
            Cause::Life => (&mut self.life, true),
            Cause::Deleted => (&mut self.deleted, true),
            Cause::Evicted => (&mut self.evicted, false),
            Cause::Flushed => (&mut self.flushed, false),
            Cause::Changed => (&mut self.changed, false),
            Cause::Refused => (&mut self.refused, false),
            Cause::Failed => (&mut self.failed, false),
        };
        *counter += 1;
        if is_written {
            *(if is_to_a { &mut self.to_a } else { &mut self.to_b }) += 1;
        }
    }

    /// Adds what another one found before this one went on in its place.
    #[must_use]
    pub fn after(&self, before: &Self) -> Self {
        Self {
            listed: self.listed + before.listed,
            older: self.older + before.older,
            life: self.life + before.life,
            deleted: self.deleted + before.deleted,
            to_a: self.to_a + before.to_a,
            to_b: self.to_b + before.to_b,
            evicted: self.evicted + before.evicted,
            flushed: self.flushed + before.flushed,
            changed: self.changed + before.changed,
            refused: self.refused + before.refused,
            failed: self.failed + before.failed,
            digest_bytes: self.digest_bytes + before.digest_bytes,
            list_bytes: self.list_bytes + before.list_bytes,
            copied_bytes: self.copied_bytes + before.copied_bytes,
            ..*self
        }
    }

    /// Keys that were repaired, or would be.
    pub fn repaired(&self) -> u64 {
        self.older + self.life + self.deleted
    }
}
