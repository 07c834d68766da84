//! Entries and what happens to them.

use std::fmt;

use bytes::Bytes;

/// A state of the whole ledger: each commit makes the next. 0 is the empty ledger before the first commit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A key with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The key: parts with slashes between them, by convention. UTF-8, 1 to [`KEY_MAX`](crate::commit::KEY_MAX) bytes.
    pub key: String,
    /// The value, up to [`VALUE_MAX`](crate::commit::VALUE_MAX) bytes. The ledger does not look into it.
    pub value: Bytes,
    /// The commit that created the key, after it was last absent.
    pub created: Revision,
    /// The commit that last put it.
    pub modified: Revision,
}

/// All entries of a prefix at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// The revision of the ledger: what is followed from here on has all that is newer, and nothing that is in here.
    pub revision: Revision,
    /// Entries in the order of their keys, byte by byte.
    pub entries: Vec<Entry>,
}

/// What a commit did to one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was put. Of several puts of one key by later commits a follower sees each.
    Put(Entry),
    /// It was deleted, or its hold ended.
    Deleted {
        /// The key.
        key: String,
        /// The commit that deleted it.
        revision: Revision,
    },
}

impl Change {
    /// The key that it is about.
    pub fn key(&self) -> &str {
        match self {
            Self::Put(entry) => &entry.key,
            Self::Deleted { key, .. } => key,
        }
    }

    /// The commit that did it.
    pub fn revision(&self) -> Revision {
        match self {
            Self::Put(entry) => entry.modified,
            Self::Deleted { revision, .. } => *revision,
        }
    }
}
