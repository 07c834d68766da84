//! What a process stored itself on the way to a change's result, and what the key holds all the same.

use moneta_store::{Expiry, Item, ItemMeta, Version};
use smallvec::SmallVec;

/// Versions that do not count as what the key holds.
#[derive(Default)]
pub(crate) struct Own {
    /// Results of this change's rounds that were given up.
    pub(crate) left: SmallVec<[Version; 4]>,
    /// What these were made from. The home has got it no more.
    pub(crate) base: Option<Item>,
    /// Found on a copy that had not heard of the delete.
    pub(crate) deleted: SmallVec<[Version; 4]>,
    /// The home that has not said whether it stored a result.
    pub(crate) unknown: Option<usize>,
}

impl Own {
    pub(crate) fn contains(&self, version: &Version) -> bool {
        self.left.contains(version) || self.deleted.contains(version)
    }
}

/// An item that is dead from the start: it takes the place of what is older, and is never read.
pub(crate) fn dead(version: Version) -> Item {
    let meta = ItemMeta { cas: version.0, expiry: Expiry(1), ..ItemMeta::default() };
    Item { meta, value: Vec::new().into() }
}
