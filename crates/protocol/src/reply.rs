//! The one reply type: what came of a command, before any protocol gives it a form.

use moneta_item::{ErrorCode, ItemMeta, Version};

/// What came of a command that did not show an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply<'a> {
    /// A read found nothing.
    Miss,
    /// The answers to all keys of a text `get` are out.
    End,
    /// Stored.
    Stored {
        /// CAS value of the new version.
        cas: u64,
        /// Bytes of the value now.
        size: usize,
    },
    /// The write's condition did not hold.
    NotStored,
    /// The CAS value to compare with is not the item's.
    Exists,
    /// By version: what is there, or was deleted or flushed, is newer.
    Superseded {
        /// The version that won; [`Version::ZERO`]: not known.
        by: Version,
    },
    /// By version: this very item is there.
    Unchanged {
        /// Its version.
        cas: u64,
        /// Bytes of its value.
        size: usize,
    },
    /// Nothing there.
    NotFound,
    /// Deleted, or marked as asked.
    Deleted,
    /// A number after `incr`, `decr`.
    Number {
        /// Its value.
        number: u64,
        /// The item it is in.
        meta: ItemMeta,
        /// The item was not there before.
        created: bool,
    },
    /// `incr` of something that is no number.
    NonNumeric,
    /// The value is over the limit.
    TooLarge,
    /// No room, and evictions are off.
    OutOfMemory,
    /// The store could not answer.
    Failed {
        /// For a peer that has asked for codes.
        code: Option<ErrorCode>,
        /// In words.
        why: &'a str,
    },
    /// Done.
    Ok,
    /// `mn`, binary NOOP.
    Noop,
    /// The version.
    Version(&'a str),
    /// A single line, without its end; in binary the body of a successful reply.
    Line(&'a str),
}
