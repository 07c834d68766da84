//! One change of a store, as every reader of a feed is told it, and the state in which engines hand it out.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;
use moneta_item::{ItemMeta, Version};

use super::place::FeedPlace;
use crate::versions::Floor;

/// One change of a store, with all that its readers are told. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A key was given a value, another life, or a mark.
    Set(Set),
    /// A key was deleted, whether it was there or not.
    Delete {
        /// The key.
        key: Bytes,
        /// What the key held up to this version is gone.
        version: Version,
    },
    /// The store was flushed.
    Flush(Floor),
    /// Changes are missing.
    Gap(Gap),
    /// The store was killed: what it took shortly before it began again may be lost.
    Lost {
        /// When it began again.
        until: u64,
    },
}

impl Change {
    /// The key that changed; `None` if the change is of no single key.
    pub fn key(&self) -> Option<&Bytes> {
        match self {
            Self::Set(Set { key, .. }) | Self::Delete { key, .. } => Some(key),
            Self::Flush(_) | Self::Gap(_) | Self::Lost { .. } => None,
        }
    }

    /// Bytes of its key and value.
    pub fn size(&self) -> usize {
        match self {
            Self::Set(Set { key, value, .. }) => key.len() + value.as_ref().map_or(0, Bytes::len),
            Self::Delete { key, .. } => key.len(),
            Self::Flush(_) | Self::Gap(_) | Self::Lost { .. } => 0,
        }
    }
}

/// What a change left under a key. Key and value may be parts of a buffer of a MiB, which lives as long as they do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The key.
    pub key: Bytes,
    /// All but key and value. Feeds tell its version, flags, expiry and stale mark.
    pub meta: ItemMeta,
    /// The value; `None` if the reader does not want values.
    pub value: Option<Bytes>,
    /// When the key was last known to hold it, in milliseconds since the Unix epoch; `None`: it does now.
    pub as_of: Option<u64>,
}

/// Changes that are missing from a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// All changes before this moment may be missing, in milliseconds since the Unix epoch.
    pub since: u64,
    /// Why; `None`: the node does not say (an earlier build).
    pub cause: Option<GapCause>,
}

/// Why changes are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GapCause {
    /// The feed began then: the store kept none before, or another one.
    Start,
    /// Regions of the log were emptied for newer items.
    Reclaimed,
    /// Records are damaged, or the store dropped what it held for itself alone.
    Lost,
    /// The SSD tier was off: changes were kept in RAM alone.
    Off,
    /// The ring of the keys that changed last has no more room.
    Ring,
}

impl GapCause {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Start, Self::Reclaimed, Self::Lost, Self::Off, Self::Ring];

    /// Its word in feeds and metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Reclaimed => "reclaimed",
            Self::Lost => "lost",
            Self::Off => "off",
            Self::Ring => "ring",
        }
    }
}

impl fmt::Display for GapCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The word is no cause of a gap that this build knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is no cause of a gap")]
pub struct NoGapCause;

impl FromStr for GapCause {
    type Err = NoGapCause;

    fn from_str(word: &str) -> Result<Self, NoGapCause> {
        Self::ALL.into_iter().find(|cause| cause.word() == word).ok_or(NoGapCause)
    }
}

/// Changes that follow each other, as an engine hands them out.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Changes are missing before the first.
    pub gap: Option<Gap>,
    /// The changes.
    pub entries: Vec<Entry>,
    /// Where to read on.
    pub next: FeedPlace,
    /// Everything that the feed was told until then is before [`Batch::next`], in milliseconds since the Unix epoch.
    pub watermark: u64,
    /// There was no more when it was read.
    pub is_end: bool,
}

/// A change in an engine's batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The change.
    pub recorded: Recorded,
    /// Where to read on after it.
    pub next: FeedPlace,
}

/// How much of a change an engine has recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// All of it.
    Whole(Change),
    /// That this key was given a value, another life or a mark, and no more. The reader of the batch looks up what the key holds
    /// by now: what this change left, or something newer.
    KeyOnly(Arc<[u8]>),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_comes_back_from_its_word() {
        assert!(GapCause::ALL.iter().all(|cause| cause.word().parse() == Ok(*cause)));
        assert_eq!("later".parse::<GapCause>(), Err(NoGapCause));
    }
}
