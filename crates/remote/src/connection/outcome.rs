//! How a request ended, and what a read may have won by it: the recache of an item, which is given back if the reader is gone.

use moneta_client::wire::{Answer, Dialect, Seen};
use moneta_store::request::Delete;

use crate::failure::Failure;

/// How a request ended.
pub(crate) type Outcome<'a> = Result<Answer<'a>, Failure>;

/// The recache of this key's item, which a read without a waiter may have won.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) key: Box<[u8]>,
    pub(crate) hash: u64,
}

/// A recache that was won, to be given back.
#[derive(Debug)]
pub(crate) struct Won {
    pub(crate) key: Box<[u8]>,
    pub(crate) hash: u64,
    /// CAS value of the version it is of.
    pub(crate) cas: u64,
}

impl Claim {
    /// What was won, if it was.
    pub(crate) fn won(self, outcome: &Outcome<'_>) -> Option<Won> {
        has_won(outcome).map(|cas| Won { key: self.key, hash: self.hash, cas })
    }
}

/// The CAS value of the item whose recache a read has won.
#[inline]
pub(super) fn has_won(outcome: &Outcome<'_>) -> Option<u64> {
    match outcome {
        Ok(Answer::Hit(seen)) => wins(seen).then_some(seen.cas),
        _ => None,
    }
}

/// Whether a read has won the recache of the item that it shows.
#[inline]
pub(crate) fn wins(seen: &Seen<'_>) -> bool {
    seen.won && seen.stale
}

/// What gives back the recache of the version with `cas`.
pub(crate) fn giving_back(cas: u64, dialect: Option<Dialect>) -> Delete {
    let new_cas = dialect.filter(|dialect| dialect.explicit_cas).map(|_| cas);
    Delete { compare: Some(cas), new_cas, invalidate: true, touch: None, drop_value: false }
}
