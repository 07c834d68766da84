//! The item that is there, and the one that is to be.

use moneta_item::{Expiry, ItemMeta, ItemRef};

use super::content::Content;

/// The live item that a request meets. What is dead counts as nothing.
#[derive(Clone, Copy, Debug)]
pub struct Old<'a> {
    /// All but key and value, as nothing has touched it: `expiry_before` and `won` are not looked at.
    pub meta: ItemMeta,
    /// The value.
    pub value: &'a [u8],
}

/// The version of an item that a request makes: what is to be stored, whole.
#[derive(Clone, Copy, Debug)]
pub struct Version<'a> {
    /// The value.
    pub value: Content<'a>,
    /// Opaque client flags.
    pub flags: u32,
    /// When it dies. May be in the past: then it is dead from the start, and what it replaces is gone.
    pub expiry: Expiry,
    /// Unix second of the last access.
    pub last_access: u32,
    /// Whether it has been read.
    pub fetched: bool,
    /// Whether it is old and someone is to fetch a new one.
    pub stale: bool,
    /// Whether some reader has won the right to recache it.
    pub token_sent: bool,
    /// Its CAS value; `None`: the store makes the next version.
    pub cas: Option<u64>,
    /// A client chose the CAS value: the item counts as version 0.
    pub unversioned: bool,
}

impl<'a> Version<'a> {
    /// A version as a write makes it: not yet read, not stale.
    pub(super) fn fresh(value: Content<'a>, flags: u32, expiry: Expiry, now: u32, cas: Option<u64>) -> Self {
        let unversioned = cas.is_some();
        Self {
            value,
            flags,
            expiry,
            last_access: now,
            fetched: false,
            stale: false,
            token_sent: false,
            cas,
            unversioned,
        }
    }

    /// The item that is there, unchanged, with its CAS value.
    pub(super) fn same(old: &Old<'a>) -> Self {
        let meta = &old.meta;
        Self {
            value: Content::whole(old.value),
            flags: meta.flags,
            expiry: meta.expiry,
            last_access: meta.last_access,
            fetched: meta.fetched,
            stale: meta.stale,
            token_sent: meta.token_sent,
            cas: Some(meta.cas),
            unversioned: meta.unversioned,
        }
    }

    /// A whole item, as [`crate::Op::Put`] has it.
    pub fn of(meta: &ItemMeta, value: Content<'a>) -> Self {
        let ItemMeta { flags, cas, unversioned, expiry, last_access, fetched, stale, token_sent, .. } = *meta;
        let cas = (cas != 0).then_some(cas);
        Self { value, flags, expiry, last_access, fetched, stale, token_sent, cas, unversioned }
    }

    /// The version as a store makes it that is one of several copies: what drops a part of an item or shortens its life gets a
    /// new CAS value, so that the other copies can tell which of both is newer.
    #[must_use]
    pub fn in_cluster(self, old: &ItemMeta, old_length: usize) -> Self {
        let moment = |expiry: Expiry| if expiry == Expiry::NEVER { u32::MAX } else { expiry.0 };
        let is_less = moment(self.expiry) < moment(old.expiry)
            || self.value.len() != old_length
            || self.flags != old.flags
            || self.stale != old.stale;
        if is_less && self.cas == Some(old.cas) { Self { cas: None, unversioned: false, ..self } } else { self }
    }

    /// All but key and value once the version has this CAS value.
    pub fn meta(&self, cas: u64) -> ItemMeta {
        ItemMeta {
            flags: self.flags,
            cas,
            unversioned: self.unversioned && self.cas.is_some(),
            expiry: self.expiry,
            expiry_before: self.expiry,
            last_access: self.last_access,
            fetched: self.fetched,
            stale: self.stale,
            token_sent: self.token_sent,
            won: false,
        }
    }

    /// The version as [`crate::Op::Put`] takes it. Its CAS value is 0, the store's choice, where it has none yet.
    pub fn item(&self) -> ItemRef<'_> {
        ItemRef { meta: self.meta(self.cas.unwrap_or(0)), value: self.value.value() }
    }
}
