//! What an item is to be that is written, besides key and value.

use moneta_store::{Expiry, ItemMeta};

use crate::record::{Stamp, mark};

/// What an item is to be that is written, besides key and value.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewItem {
    /// FETCHED, STALE and TOKEN.
    pub(crate) marks: u8,
    pub(crate) flags: u32,
    pub(crate) expiry: Expiry,
    pub(crate) last_access: u32,
    /// Its CAS value; `None`: the next version.
    pub(crate) stamp: Option<Stamp>,
}

impl NewItem {
    /// An item's version as it comes from another store.
    pub(crate) fn of(meta: &ItemMeta) -> Self {
        let mark_if = |set: bool, mark: u8| if set { mark } else { 0 };
        Self {
            marks: mark_if(meta.fetched, mark::FETCHED)
                | mark_if(meta.stale, mark::STALE)
                | mark_if(meta.token_sent, mark::TOKEN),
            flags: meta.flags,
            expiry: meta.expiry,
            last_access: meta.last_access,
            stamp: Stamp::of(meta),
        }
    }

    /// The same, as what was there after a touch: that counts as a read, and is how a feed of one region tells it from what was
    /// written elsewhere.
    pub(crate) fn touched(self) -> Self {
        Self { marks: self.marks | mark::FETCHED, ..self }
    }
}
