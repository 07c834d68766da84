//! How the operations on an item end, in the words of the cache.

use crate::item::{Item, ItemMeta};
use crate::version::Version;

/// End of a read.
#[derive(Debug, PartialEq, Eq)]
pub enum Lookup {
    /// A hit; the visitor has seen it.
    Visited,
    /// A hit that had to wait; the caller shows it to its visitor.
    Found(Item),
    /// Nothing there.
    Miss {
        /// Something was there, but its time was up.
        expired: bool,
    },
}

/// End of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Stored; the item now has this CAS value.
    Stored {
        /// CAS value of the new version.
        cas: u64,
    },
    /// In mode newer: this very item is there.
    Unchanged {
        /// Its CAS value, the version that was written.
        cas: u64,
    },
    /// The mode's condition did not hold (add on something, replace or append on nothing, newer on nothing where
    /// deletes may have been forgotten).
    NotStored,
    /// The CAS value to compare with is not the item's.
    Exists,
    /// A CAS value to compare with, and no item.
    NotFound,
    /// In mode newer: something newer is there, or was deleted or flushed.
    Superseded {
        /// What is above this version is above what won. [`Version::ZERO`]: the store does not tell.
        by: Version,
    },
    /// Larger than the store takes; what the key had before is gone.
    TooLarge,
    /// No room, and evictions are off.
    OutOfMemory,
}

/// End of a delete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deleted {
    /// Deleted, or marked as asked.
    Deleted,
    /// The CAS value to compare with is not the item's.
    Exists,
    /// Nothing there.
    NotFound,
    /// A delete by version: something newer is there, or it was deleted or flushed under this version or a newer one.
    Superseded {
        /// As in [`Written::Superseded`].
        by: Version,
    },
}

/// End of an `incr` or `decr`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Number {
    /// The number after the operation.
    Value {
        /// Its value.
        number: u64,
        /// The item it is in.
        meta: ItemMeta,
        /// It was created by this request.
        created: bool,
    },
    /// The item's value is not a decimal number below 2^64.
    NonNumeric,
    /// The CAS value to compare with is not the item's.
    Exists,
    /// Nothing there, and creation was not asked for.
    NotFound,
    /// No room, and evictions are off.
    OutOfMemory,
}
