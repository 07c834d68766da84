//! What a store is asked, as a value.

use moneta_item::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_item::{Item, ItemRef, Version};

/// One operation on one key. Borrowed from the caller; a store that waits copies what it needs.
///
/// The last five answer at once, in every store: they never return [`crate::Step::Wait`] and never fail.
#[derive(Clone, Copy)]
pub enum Op<'a> {
    /// Reads the item, with the side effects the request asks for. Ends as [`crate::Outcome::Read`].
    Read(&'a Retrieve),
    /// Reads the item without any side effect, not even on the order of eviction. Ends as [`crate::Outcome::Read`].
    Peek,
    /// Writes a value. Ends as [`crate::Outcome::Written`].
    Write(&'a [u8], &'a Write),
    /// Deletes the item, or marks it as the request says. Ends as [`crate::Outcome::Deleted`].
    Delete(&'a Delete),
    /// Adds to or subtracts from an item that holds a decimal number. Ends as [`crate::Outcome::Number`].
    Arithmetic(&'a Arithmetic),
    /// Stores a whole item as it is, marks included. Its `cas` becomes the item's CAS value; with 0 the store picks one.
    /// `expiry_before` and `won` are not kept. A failure leaves nothing under the key. Ends as [`crate::Outcome::Written`].
    Put(&'a ItemRef<'a>, Put),
    /// Deletes what is older than this version and remembers that, whether the key was there or not; what is newer stays. Ends
    /// as [`crate::Outcome::Deleted`].
    Bury(Version),
    /// Makes sure that what lies under the key now is never read again; more than that may go. For changes that are given up
    /// half way, when no caller is left who could wait. Ends as [`crate::Outcome::Done`].
    Drop,
    /// Whether there is an item, as far as that is known without waiting; where it is not known, yes. Ends as
    /// [`crate::Outcome::Held`].
    Holds,
    /// Tells the store that a tier above it answers reads of this key, so that it does not evict the item as unused. Sent for a
    /// sample of those reads. Ends as [`crate::Outcome::Done`].
    NoteHit,
    /// A CAS value for a version of the key that the store is not given: above every one it was given or has told for this key,
    /// and never told again. Ends as [`crate::Outcome::Cas`]; 0: the store keeps no such count.
    NextCas,
    /// The version under which the key was deleted, or up to which it expired, as far as the store remembers. Ends as
    /// [`crate::Outcome::Cas`]; 0: it remembers nothing.
    BuriedAs,
}

/// Over what [`Op::Put`] stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// Over anything or nothing.
    Any,
    /// Only over a live item; else the outcome is [`crate::Written::NotStored`].
    Present,
    /// Only over what is older than the item's version, which must not be 0; else the outcome is
    /// [`crate::Written::Superseded`]. The same item again is [`crate::Written::Unchanged`].
    Newer {
        /// When the value was last known to be current, in milliseconds since the Unix epoch. If the store may have forgotten
        /// deletes since then, the item replaces an older one but does not create one: the outcome is
        /// [`crate::Written::NotStored`] then.
        as_of: u64,
        /// The version that the item was made from: what is there now must not be newer than it either, and with
        /// [`Version::ZERO`] nothing may be there. Else the outcome is [`crate::Written::Superseded`] too. `None`: the item was
        /// made from nothing.
        base: Option<Version>,
    },
}

impl Op<'_> {
    /// Whether it may leave the store other than it was, beside counts and the order of eviction.
    pub fn changes(&self) -> bool {
        match self {
            Self::Read(request) => {
                request.touch.is_some() || request.vivify.is_some() || request.recache.is_some() || request.claim
            }
            Self::Peek | Self::Holds | Self::NoteHit | Self::NextCas | Self::BuriedAs => false,
            Self::Write(..) | Self::Delete(_) | Self::Arithmetic(_) | Self::Put(..) | Self::Bury(_) | Self::Drop => {
                true
            }
        }
    }
}

/// An operation that outlives the call it came with.
#[derive(Clone, Debug)]
pub enum OwnedOp {
    /// [`Op::Read`].
    Read(Retrieve),
    /// [`Op::Peek`].
    Peek,
    /// [`Op::Write`].
    Write(Vec<u8>, Write),
    /// [`Op::Delete`].
    Delete(Delete),
    /// [`Op::Arithmetic`].
    Arithmetic(Arithmetic),
    /// [`Op::Put`].
    Put(Item, Put),
    /// [`Op::Bury`].
    Bury(Version),
    /// [`Op::Drop`].
    Drop,
    /// [`Op::Holds`].
    Holds,
    /// [`Op::NoteHit`].
    NoteHit,
    /// [`Op::NextCas`].
    NextCas,
    /// [`Op::BuriedAs`].
    BuriedAs,
}

impl OwnedOp {
    /// A copy of `op`; values are copied.
    pub fn of(op: Op<'_>) -> Self {
        match op {
            Op::Read(request) => Self::Read(*request),
            Op::Peek => Self::Peek,
            Op::Write(value, request) => Self::Write(value.to_vec(), *request),
            Op::Delete(request) => Self::Delete(*request),
            Op::Arithmetic(request) => Self::Arithmetic(*request),
            Op::Put(item, how) => Self::Put(Item::copy(item), how),
            Op::Bury(version) => Self::Bury(version),
            Op::Drop => Self::Drop,
            Op::Holds => Self::Holds,
            Op::NoteHit => Self::NoteHit,
            Op::NextCas => Self::NextCas,
            Op::BuriedAs => Self::BuriedAs,
        }
    }

    /// Calls `act` with the operation.
    #[inline]
    pub fn with<R>(&self, act: impl FnOnce(Op<'_>) -> R) -> R {
        let put;
        act(match self {
            Self::Read(request) => Op::Read(request),
            Self::Peek => Op::Peek,
            Self::Write(value, request) => Op::Write(value, request),
            Self::Delete(request) => Op::Delete(request),
            Self::Arithmetic(request) => Op::Arithmetic(request),
            Self::Put(item, how) => {
                put = item.as_ref();
                Op::Put(&put, *how)
            }
            Self::Bury(version) => Op::Bury(*version),
            Self::Drop => Op::Drop,
            Self::Holds => Op::Holds,
            Self::NoteHit => Op::NoteHit,
            Self::NextCas => Op::NextCas,
            Self::BuriedAs => Op::BuriedAs,
        })
    }
}
