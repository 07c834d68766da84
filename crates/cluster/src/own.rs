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
    /// The newest version for which a copy refused a result: what is older is not what the key holds, also where the copy
    /// remembers a delete and shows nothing.
    pub(crate) gone: Version,
    /// The home that has not said whether it stored a result.
    pub(crate) unknown: Option<usize>,
}

impl Own {
    pub(crate) fn contains(&self, version: &Version) -> bool {
        self.left.contains(version) || self.deleted.contains(version)
    }

    /// The home may hold a result of this version, made from what a node held.
    pub(crate) fn leave(&mut self, version: Version, base: Option<&(usize, Item)>) {
        self.left.push(version);
        self.base = base.map(|(_, item)| item.clone());
    }

    /// A copy refused a result since it holds, or held, this version, which may be a result of this change itself.
    pub(crate) fn refused_for(&mut self, by: Version) {
        if !self.contains(&by) {
            self.gone = self.gone.max(by);
        }
    }

    /// Whether an item of this version may be what the key holds.
    pub(crate) fn counts(&self, version: Version) -> bool {
        version >= self.gone && !self.contains(&version)
    }
}

/// An item that is dead from the start: it takes the place of what is older, and is never read.
pub(crate) fn dead(version: Version) -> Item {
    let meta = ItemMeta { cas: version.0, expiry: Expiry(1), ..ItemMeta::default() };
    Item { meta, value: Vec::new().into() }
}
