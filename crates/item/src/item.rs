//! An item as a reader sees it: borrowed from an engine while it is stable there, or owned after a wait.

use std::ops::{Deref, Range};

use crate::aligned::Aligned;
use crate::request::Exptime;
use crate::version::Version;

/// The moment an item dies, in Unix seconds; 0 means never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Expiry(pub u32);

impl Expiry {
    /// Never dies.
    pub const NEVER: Self = Self(0);

    /// Meets a client's expiration time with the current Unix second: relative up to 30 days, absolute above, dead at
    /// once when negative or already past.
    pub fn resolve(exptime: Exptime, now: u32) -> Self {
        match exptime.0 {
            0 => Self::NEVER,
            seconds if seconds < 0 => Self(1),
            seconds if seconds <= Exptime::RELATIVE_MAX => {
                Self(now.saturating_add(u32::try_from(seconds).unwrap_or(u32::MAX)))
            }
            seconds => Self(u32::try_from(seconds).unwrap_or(u32::MAX)),
        }
    }

    /// Whether an item with this expiry is dead at `now`. The second it names is the first it no longer lives in.
    #[inline]
    pub fn is_dead(self, now: u32) -> bool {
        self.0 != 0 && self.0 <= now
    }

    /// Whole seconds left at `now`; `None` for never.
    pub fn remaining(self, now: u32) -> Option<u32> {
        (self.0 != 0).then(|| self.0.saturating_sub(now))
    }
}

/// Everything known of an item but its key and value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ItemMeta {
    /// Opaque client flags.
    pub flags: u32,
    /// Its CAS value. That is its version, unless it is [`unversioned`](Self::unversioned).
    pub cas: u64,
    /// A client chose the CAS value, or the item is older than versions are: it counts as version 0.
    pub unversioned: bool,
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

impl ItemMeta {
    /// What orders it among all writes of its key.
    #[inline]
    pub fn version(&self) -> Version {
        if self.unversioned { Version::ZERO } else { Version(self.cas) }
    }

    /// Whether the read that shows this item created it (meta `N`). Its reader has won the recache of an item that was
    /// never to expire and is not stale: of an item that was there before, no reader can.
    #[inline]
    pub fn is_created_by_read(&self) -> bool {
        self.won && !self.stale && self.expiry_before == Expiry::NEVER
    }
}

/// A value as it lies in an engine: one run of bytes, or a first run and the rest elsewhere.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    first: &'a [u8],
    rest: Option<&'a dyn Rest>,
}

/// The part of a value after its first run.
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

    /// The value, if it lies in one run.
    #[inline]
    pub fn as_slice(&self) -> Option<&'a [u8]> {
        self.rest.is_none().then_some(self.first)
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

/// An owned value: separate bytes, or a part of the buffer that a device was read into.
pub struct OwnedValue(Memory);

enum Memory {
    Bytes(Vec<u8>),
    Part { buffer: Aligned, start: usize, end: usize },
}

impl OwnedValue {
    /// The bytes of `buffer` in `range`.
    ///
    /// # Panics
    /// If the buffer is shorter.
    pub fn part(buffer: Aligned, range: Range<usize>) -> Self {
        let Range { start, end } = range;
        assert!(start <= end && end <= buffer.len(), "a part of the buffer");
        Self(Memory::Part { buffer, start, end })
    }

    /// Its bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self
    }

    /// The value as a vector; copied if it is part of a buffer.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Memory::Bytes(bytes) => bytes,
            Memory::Part { buffer, start, end } => buffer[start..end].to_vec(),
        }
    }
}

impl Deref for OwnedValue {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Bytes(bytes) => bytes,
            Memory::Part { buffer, start, end } => &buffer[*start..*end],
        }
    }
}

impl From<Vec<u8>> for OwnedValue {
    #[inline]
    fn from(bytes: Vec<u8>) -> Self {
        Self(Memory::Bytes(bytes))
    }
}

impl From<Value<'_>> for OwnedValue {
    fn from(value: Value<'_>) -> Self {
        value.to_vec().into()
    }
}

impl Clone for OwnedValue {
    fn clone(&self) -> Self {
        self.to_vec().into()
    }
}

impl std::fmt::Debug for OwnedValue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        (**self).fmt(formatter)
    }
}

impl PartialEq for OwnedValue {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for OwnedValue {}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for OwnedValue {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

/// An item that had to be waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// All but key and value.
    pub meta: ItemMeta,
    /// The value.
    pub value: OwnedValue,
}

impl Item {
    /// A copy of a borrowed item.
    pub fn copy(item: &ItemRef<'_>) -> Self {
        Self { meta: item.meta, value: item.value.into() }
    }

    /// The item as a visitor wants it.
    pub fn as_ref(&self) -> ItemRef<'_> {
        ItemRef { meta: self.meta, value: Value::whole(&self.value) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resolves_as_memcached_does() {
        assert_eq!(Expiry::resolve(Exptime(0), 1000), Expiry::NEVER);
        assert!(Expiry::resolve(Exptime(-1), 1000).is_dead(1000));
        assert_eq!(Expiry::resolve(Exptime(10), 1000), Expiry(1010));
        assert_eq!(Expiry::resolve(Exptime(2_592_000), 1000), Expiry(2_593_000));
        assert_eq!(Expiry::resolve(Exptime(2_592_001), 5_000_000), Expiry(2_592_001));
        assert_eq!(Expiry::resolve(Exptime(i64::MAX), 1000), Expiry(u32::MAX));
    }

    #[test]
    fn an_owned_value_is_what_its_range_says_wherever_it_lies() {
        let mut buffer = Aligned::zeroed(4096);
        buffer[100..105].copy_from_slice(b"value");
        let part = OwnedValue::part(buffer, 100..105);
        assert_eq!(part, *b"value");
        assert_eq!((part.clone(), part.len()), (OwnedValue::from(b"value".to_vec()), 5));
        assert_eq!(format!("{part:?}"), format!("{:?}", b"value"));
        assert_eq!(part.into_vec(), b"value");
        assert!(OwnedValue::part(Aligned::zeroed(4096), 4096..4096).is_empty());
    }

    #[test]
    #[should_panic(expected = "a part of the buffer")]
    fn a_range_beyond_the_buffer_is_refused() {
        drop(OwnedValue::part(Aligned::zeroed(4096), 4000..4097));
    }

    #[test]
    fn an_item_is_dead_from_the_second_its_expiry_names() {
        assert!(!Expiry(11).is_dead(10));
        assert!(Expiry(11).is_dead(11));
        assert!(!Expiry::NEVER.is_dead(u32::MAX));
    }
}
