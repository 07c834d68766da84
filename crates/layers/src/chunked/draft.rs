//! An item made ready to be stored: everything but when, which is known only under the key's lock.

use moneta_store::request::{Exptime, Write};
use moneta_store::{Expiry, ItemMeta, Key, Value};

use super::config::ChunkedConfig;
use super::layout::{self, HEAD_BYTES, Head};

/// Seconds that entries outlive their item in the store below. Its head says when an item dies; a server whose clock is ahead
/// must not make it a miss before.
const OUTLIVES: u32 = 2;

/// The entries of an item.
pub(super) struct Draft {
    head: Head,
    /// Room for the head, and the value if it follows.
    entry: Vec<u8>,
    /// Names and entries.
    pub(super) pieces: Vec<(String, Vec<u8>)>,
}

impl Draft {
    pub(super) fn new(key: &Key<'_>, meta: ItemMeta, value: &Value<'_>, config: &ChunkedConfig) -> Self {
        let is_whole = value.len() <= config.whole_max;
        let (token, piece_bytes) = if is_whole { (0, 0) } else { (fastrand::u64(..), config.piece_bytes) };
        let head = Head { meta, epoch: 0, token, length: value.len() as u64, piece_bytes };
        let mut entry = Vec::with_capacity(HEAD_BYTES + if is_whole { value.len() } else { 0 });
        entry.resize(HEAD_BYTES, 0);
        let mut pieces = Vec::new();
        if is_whole {
            value.copy_to(&mut entry);
        } else {
            let copied = if value.as_slice().is_none() { value.to_vec() } else { Vec::new() };
            let value = value.as_slice().unwrap_or(&copied);
            let piece = |(number, data): (usize, &[u8])| {
                let number = number as u32;
                (layout::piece_name(key.bytes, token, number), layout::piece(key.bytes, token, number, data))
            };
            pieces = value.chunks(piece_bytes as usize).enumerate().map(piece).collect();
        }
        Self { head, entry, pieces }
    }

    pub(super) fn meta(&self) -> &ItemMeta {
        &self.head.meta
    }

    /// Its CAS value is no version.
    pub(super) fn without_version(&mut self) {
        self.head.meta.unversioned = true;
    }

    /// The head's entry, written in `epoch` with the CAS value `cas`.
    pub(super) fn seal(mut self, key: &Key<'_>, cas: u64, epoch: u64) -> Vec<u8> {
        self.head.meta.cas = cas;
        self.head.epoch = epoch;
        self.head.write_to(key.bytes, &mut self.entry);
        self.entry
    }

    /// How entries of the item are set.
    ///
    /// `outlives`: seconds that they stay longer than the item, beside what clocks differ by.
    pub(super) fn write(&self, outlives: u32) -> Write {
        let exptime = match self.head.meta.expiry {
            Expiry::NEVER => Exptime::NEVER,
            Expiry(second) => Exptime(i64::from(second) + i64::from(OUTLIVES) + i64::from(outlives)),
        };
        Write { exptime, ..Write::default() }
    }
}
