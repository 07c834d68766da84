//! What a commit compares and changes.

use bytes::Bytes;

use crate::entry::{Hold, Revision};
use crate::error::LedgerError;

/// The longest key, in bytes.
pub const KEY_MAX: usize = 1024;

/// The largest value, in bytes. etcd takes requests of 1.5 MiB at most.
pub const VALUE_MAX: usize = 1 << 20;

/// The most compares, puts and deletes together that one commit may have. etcd takes 128 as it is set up by default, and its backend adds
/// compares of its own.
pub const PARTS_MAX: usize = 120;

/// The most bytes of keys and values that one commit may have.
pub const BYTES_MAX: usize = (1 << 20) + (1 << 18);

/// What has to hold for a commit to take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key is not there.
    Absent(String),
    /// The key is there.
    Present(String),
    /// The key was last put by this commit.
    Modified(String, Revision),
}

/// A key to put.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Put {
    /// The key.
    pub key: String,
    /// Its value from now on.
    pub value: Bytes,
    /// What it vanishes with. A put without one takes the key from the hold it had.
    pub hold: Option<Hold>,
}

/// Compares, puts and deletes that take effect together, as one revision, or not at all. A key is put or deleted once at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commit {
    /// All have to hold.
    pub compares: Vec<Compare>,
    /// What is put.
    pub puts: Vec<Put>,
    /// What is deleted; a key that is not there is no fault. A commit that changes nothing makes no revision.
    pub deletes: Vec<String>,
}

/// How a commit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Committed {
    /// It took effect, as this revision.
    Done(Revision),
    /// A compare did not hold, and nothing was changed.
    Conflict,
}

impl Commit {
    /// One that compares and changes nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes effect only if `compare` holds, too.
    #[must_use]
    pub fn only_if(mut self, compare: Compare) -> Self {
        self.compares.push(compare);
        self
    }

    /// Puts a key, too.
    #[must_use]
    pub fn put(mut self, key: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.puts.push(Put { key: key.into(), value: value.into(), hold: None });
        self
    }

    /// Puts a key that vanishes with `hold`, too.
    #[must_use]
    pub fn put_held(mut self, key: impl Into<String>, value: impl Into<Bytes>, hold: Hold) -> Self {
        self.puts.push(Put { key: key.into(), value: value.into(), hold: Some(hold) });
        self
    }

    /// Deletes a key, too.
    #[must_use]
    pub fn delete(mut self, key: impl Into<String>) -> Self {
        self.deletes.push(key.into());
        self
    }

    /// Whether it may be given to a ledger.
    ///
    /// # Errors
    /// [`LedgerError::Refused`] if a key or value is too long or empty, a key is named twice, or there is too much of it.
    pub fn check(&self) -> Result<(), LedgerError> {
        let compared = self.compares.iter().map(|compare| match compare {
            Compare::Absent(key) | Compare::Present(key) | Compare::Modified(key, _) => key.as_str(),
        });
        let mut changed: Vec<&str> =
            self.puts.iter().map(|put| put.key.as_str()).chain(self.deletes.iter().map(String::as_str)).collect();
        let parts = self.compares.len() + changed.len();
        let mut bytes: usize = self.puts.iter().map(|put| put.value.len()).sum();
        for key in compared.chain(changed.iter().copied()) {
            if key.is_empty() || key.len() > KEY_MAX {
                return refused(format!("a key of {} bytes (1 to {KEY_MAX} are taken)", key.len()));
            }
            bytes += key.len();
        }
        if let Some(put) = self.puts.iter().find(|put| put.value.len() > VALUE_MAX) {
            return refused(format!("{} has a value of {} bytes ({VALUE_MAX} are taken)", put.key, put.value.len()));
        }
        if parts > PARTS_MAX || bytes > BYTES_MAX {
            return refused(format!(
                "a commit of {parts} parts and {bytes} bytes ({PARTS_MAX} and {BYTES_MAX} are taken)"
            ));
        }
        changed.sort_unstable();
        match changed.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => refused(format!("{} is changed twice by one commit", pair[0])),
            None => Ok(()),
        }
    }
}

fn refused(reason: String) -> Result<(), LedgerError> {
    Err(LedgerError::Refused { reason })
}
