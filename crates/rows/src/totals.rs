//! What became of rows, counted.

use serde::{Deserialize, Serialize};

/// What became of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Rows that were read.
    pub rows: u64,
    /// Of these, bad: no item, or one for which a node has no room.
    pub bad: u64,
    /// Written.
    pub stored: u64,
    /// Nothing to do: this very item was there.
    pub unchanged: u64,
    /// Not written: something newer is there, or was deleted or flushed.
    pub superseded: u64,
    /// Not written: a node may have forgotten a delete since.
    pub unsure: u64,
    /// Bytes of keys and values.
    pub bytes: u64,
}
