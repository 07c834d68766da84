//! An item as a reader sees it: borrowed from an engine while it is stable there, or owned after a wait.

use crate::time::Expiry;

/// Everything known of an item but its key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemMeta {
    /// Opaque client flags.
    pub flags: u32,
    /// Unique value of this version of the item.
    pub cas: u64,
    /// When it dies, after this request touched it.
    pub expiry: Expiry,
    /// When it would have died before this request touched it.
    pub expiry_before: Expiry,
    /// Unix second of the last access before this one.
    pub last_access: u32,
    /// Whether it had been read before this request.
    pub fetched: bool,
    /// Invalidated by a meta delete or set: the value is old, someone is to fetch a new one.
    pub stale: bool,
    /// Some earlier reader has won the right to recache it.
    pub token_sent: bool,
    /// This request won the right to recache it.
    pub won: bool,
}

/// A value as it lies in an engine: one run of bytes, or a first run and the rest elsewhere.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    first: &'a [u8],
    rest: Option<&'a dyn Rest>,
}

/// The part of a value behind its first run.
pub trait Rest {
    /// Length in bytes.
    fn len(&self) -> usize;
    /// Whether nothing is there.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Appends all of it to `out`.
    fn copy_to(&self, out: &mut Vec<u8>);
}

impl<'a> Value<'a> {
    /// A value in one run.
    #[inline]
    pub fn whole(first: &'a [u8]) -> Self {
        Self { first, rest: None }
    }

    /// A value in several runs.
    pub fn split(first: &'a [u8], rest: &'a dyn Rest) -> Self {
        Self { first, rest: Some(rest) }
    }

    /// Length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest.map_or(0, Rest::len)
    }

    /// Whether the value has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the whole value to `out`.
    #[inline]
    pub fn copy_to(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.first);
        if let Some(rest) = self.rest {
            rest.copy_to(out);
        }
    }

    /// The value in one owned run.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.len());
        self.copy_to(&mut bytes);
        bytes
    }
}

/// An item borrowed from where it lies, valid only while the store shows it.
#[derive(Clone, Copy)]
pub struct ItemRef<'a> {
    /// All but key and value.
    pub meta: ItemMeta,
    /// The value.
    pub value: Value<'a>,
}

/// An item that had to be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// All but key and value.
    pub meta: ItemMeta,
    /// The value.
    pub value: Vec<u8>,
}

impl Item {
    /// The item as a visitor wants it.
    pub fn as_ref(&self) -> ItemRef<'_> {
        ItemRef { meta: self.meta, value: Value::whole(&self.value) }
    }
}
