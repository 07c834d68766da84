//! A write that has its version already, as it comes from another copy.

use crate::item::{Expiry, ItemMeta};
use crate::version::Version;

/// All of an item but its key and value, stored if it is newer than what is there: `ms` with `V`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Newer {
    /// Its version, which is not 0.
    pub version: Version,
    /// When its value was last known to be current, in milliseconds since the Unix epoch; `None`: now.
    pub as_of: Option<u64>,
    /// The version that it was made from: what is there must not be newer than it either; with [`Version::ZERO`] nothing may be
    /// there.
    pub base: Option<Version>,
    /// Opaque client flags.
    pub flags: u32,
    /// When it dies.
    pub expiry: Expiry,
    /// It is marked as stale.
    pub stale: bool,
    /// A reader has won its recache.
    pub token_sent: bool,
}

impl Newer {
    /// What it is stored with at second `now`.
    pub fn meta(&self, now: u32) -> ItemMeta {
        let Self { version, flags, expiry, stale, token_sent, .. } = *self;
        ItemMeta { flags, cas: version.0, expiry, last_access: now, stale, token_sent, ..ItemMeta::default() }
    }
}
