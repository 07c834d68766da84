//! What ledger it is, and where its keys lie.

use bytes::Bytes;

use crate::entry::{Incarnation, Revision};
use crate::error::LedgerError;
use crate::etcd::wire::KeyValue;

/// What stands in the key of the state, and when it was put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    pub(crate) incarnation: Incarnation,
    /// What is added to etcd's revisions, so that those of a ledger that was filled go on above those of its backup.
    pub(crate) offset: u64,
    /// A ledger is being filled, or that was broken off.
    pub(crate) is_filling: bool,
    /// etcd's revision of the key.
    pub(crate) modified: i64,
}

impl State {
    /// As text: format, incarnation, offset, word.
    pub(crate) fn write(&self) -> Bytes {
        let word = if self.is_filling { "filling" } else { "ready" };
        Bytes::from(format!("1 {} {} {word}", self.incarnation, self.offset))
    }

    pub(crate) fn read(found: &KeyValue) -> Result<Self, LedgerError> {
        let text = String::from_utf8_lossy(&found.value);
        let damaged = || LedgerError::Damaged { reason: format!("etcd says of the ledger: {text:?}") };
        let words: Vec<&str> = text.split(' ').collect();
        let ["1", incarnation, offset, word @ ("ready" | "filling")] = words[..] else { return Err(damaged()) };
        Ok(Self {
            incarnation: Incarnation(u64::from_str_radix(incarnation, 16).map_err(|_| damaged())?),
            offset: offset.parse().ok().filter(|offset| i64::try_from(*offset).is_ok()).ok_or_else(damaged)?,
            is_filling: word == "filling",
            modified: found.mod_revision,
        })
    }

    pub(crate) fn ours(self, theirs: i64) -> Revision {
        Revision(self.offset.saturating_add_signed(theirs))
    }

    /// Below 1 where etcd has no such revision: none of its keys was modified there.
    pub(crate) fn theirs(self, ours: Revision) -> i64 {
        let theirs = i128::from(ours.0) - i128::from(self.offset);
        // 0 would be a key that is not there.
        if theirs <= 0 { -1 } else { i64::try_from(theirs).unwrap_or(i64::MAX) }
    }

    pub(crate) fn filling(self) -> LedgerError {
        let reason = "it is being filled; if that was broken off, delete its keys in etcd and restore again".to_owned();
        LedgerError::Unavailable { reason }
    }
}

/// The keys of a ledger.
#[derive(Debug)]
pub(crate) struct Keys {
    root: String,
}

impl Keys {
    pub(crate) fn new(root: &str) -> Self {
        Self { root: root.to_owned() }
    }

    pub(crate) fn root(&self) -> &str {
        &self.root
    }

    pub(crate) fn state(&self) -> Vec<u8> {
        format!("{}m/ledger", self.root).into_bytes()
    }

    pub(crate) fn beat(&self) -> Vec<u8> {
        format!("{}m/beat", self.root).into_bytes()
    }

    pub(crate) fn compacted(&self) -> Vec<u8> {
        format!("{}m/compacted", self.root).into_bytes()
    }

    pub(crate) fn entry(&self, key: &str) -> Vec<u8> {
        format!("{}k/{key}", self.root).into_bytes()
    }

    /// The key of an entry, if it is one.
    pub(crate) fn key_of(&self, theirs: &[u8]) -> Option<String> {
        let key = theirs.strip_prefix(self.root.as_bytes())?.strip_prefix(b"k/")?;
        String::from_utf8(key.to_vec()).ok()
    }

    /// Where entries with a prefix begin and end.
    pub(crate) fn entries(&self, prefix: &str) -> (Vec<u8>, Vec<u8>) {
        span(self.entry(prefix))
    }

    /// Where all of it begins and ends.
    pub(crate) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        span(self.root.clone().into_bytes())
    }
}

/// A prefix and the first key behind all that begin with it; a zero byte: there is none.
fn span(prefix: Vec<u8>) -> (Vec<u8>, Vec<u8>) {
    let mut end = prefix.clone();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            break;
        }
    }
    if end.is_empty() {
        end.push(0);
    }
    // etcd takes no empty key, and no key is before this one.
    let begin = if prefix.is_empty() { vec![0] } else { prefix };
    (begin, end)
}
