//! Entries and what happens to them.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;

/// A state of the whole ledger: each commit makes a greater one, not always by one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

impl fmt::Display for Revision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Which ledger it is: drawn at random when it is made, and anew when it is filled from a backup, since revisions of before then mean
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// What was read of which ledger. As text `INCARNATION:REVISION`, in hexadecimal and decimal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Which ledger.
    pub incarnation: Incarnation,
    /// Up to where.
    pub revision: Revision,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.incarnation, self.revision)
    }
}

/// A text that is no cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no cursor: INCARNATION:REVISION is wanted")]
pub struct NoCursor;

impl FromStr for Cursor {
    type Err = NoCursor;

    fn from_str(text: &str) -> Result<Self, NoCursor> {
        let (incarnation, revision) = text.split_once(':').ok_or(NoCursor)?;
        let digits = |text: &str, radix| match text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            true => u64::from_str_radix(text, radix).map_err(|_| NoCursor),
            false => Err(NoCursor),
        };
        Ok(Self { incarnation: Incarnation(digits(incarnation, 16)?), revision: Revision(digits(revision, 10)?) })
    }
}

/// The name of a hold, as the ledger gave it out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hold(pub i64);

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
    /// What it vanishes with.
    pub hold: Option<Hold>,
}

/// All entries of a prefix at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Which ledger it is of.
    pub incarnation: Incarnation,
    /// The revision of the ledger: what is followed from here on has all that is newer, and nothing that is in here.
    pub revision: Revision,
    /// Entries in the order of their keys, byte by byte.
    pub entries: Vec<Entry>,
}

impl Snapshot {
    /// Where to follow from.
    pub fn cursor(&self) -> Cursor {
        Cursor { incarnation: self.incarnation, revision: self.revision }
    }
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
