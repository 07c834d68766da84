//! A write that a node has missed.

use std::sync::Arc;

use moneta_store::Version;

/// A key that hints keep.
pub(crate) type HintKey = Arc<[u8]>;

/// A write that a node has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) version: Version,
    /// It was a delete.
    pub(crate) deleted: bool,
    /// The newest delete among this write and those before it that were missed, too; 0 if there is none. What is no newer is
    /// gone, also where the write after it came to nothing.
    pub(crate) buried: Version,
    /// When it was made or was last known to be current, in milliseconds since the Unix epoch.
    pub(crate) at: u64,
}

impl Missed {
    pub(crate) fn set(version: Version, at: u64) -> Self {
        Self { version, deleted: false, buried: Version::ZERO, at }
    }

    pub(crate) fn delete(version: Version, at: u64) -> Self {
        Self { version, deleted: true, buried: version, at }
    }

    /// This write and another one of the same key, both missed.
    pub(crate) fn and(self, other: Self) -> Self {
        let newer = if other.version > self.version { other } else { self };
        Self { buried: self.buried.max(other.buried), ..newer }
    }

    /// Whether what a node that lacks this write holds, nothing or an item of this version, is older.
    pub(crate) fn outdates(&self, held: Option<Version>) -> bool {
        held.map_or(!self.deleted, |held| self.version > held)
    }

    /// Both, where there are two.
    pub(crate) fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).reduce(Self::and)
    }
}
