//! Bringing an item up from the lower tier, and only if it is still the newest.

use std::sync::atomic::Ordering;

use moneta_protocol::item::{ItemMeta, ItemRef};
use moneta_protocol::request::{Delete, Retrieve};

use super::counters::bump;
use super::{Policy, Shared, Tiered};
use crate::key::Key;
use crate::outcome::{Lookup, Written};
use crate::store::{Install, Tier};

/// What a reader notes before it asks the lower tier.
pub(super) struct Noted {
    version: u64,
    flushed: bool,
}

impl<U: Tier + 'static, L: Tier + 'static> Tiered<U, L> {
    /// Whether this hit in the lower tier is one to promote.
    pub(super) fn promotes(&self, meta: &ItemMeta) -> bool {
        let wanted = self.policy == Policy::Online && self.shared.promotion.wants(meta.fetched);
        if !wanted {
            bump(&self.shared.counters.promotions_declined);
        }
        wanted
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Shared<U, L> {
    /// To be called before the lower tier is asked.
    pub(super) fn note(&self, key: &Key<'_>) -> Noted {
        Noted { version: self.stripes.version(key.hash), flushed: self.is_flush_past() }
    }

    /// Whether somebody has changed the key since, or is about to.
    pub(super) fn is_overtaken(&self, key: &Key<'_>, noted: &Noted) -> bool {
        self.stripes.is_held(key.hash) || self.stripes.version(key.hash) != noted.version
    }

    /// Puts an item that the lower tier showed into the upper one, as the read leaves it, unless the key was changed since.
    /// Waits for nobody: where a change is under way, its outcome is what belongs above.
    pub(super) fn promote(&self, key: &Key<'_>, item: &ItemRef<'_>, request: &Retrieve, noted: &Noted) {
        let Some(held) = self.stripes.try_lock(key.hash) else {
            return bump(&self.counters.promotions_overtaken);
        };
        if self.stripes.version(key.hash) != noted.version || self.is_flush_past() != noted.flushed {
            bump(&self.counters.promotions_overtaken);
        } else if !self.is_above(key) {
            self.bring_up(key, item, request);
        }
        // A flush that came to be due just now has passed the item by.
        if self.is_flush_past() != noted.flushed {
            self.drop_above(key);
        }
        held.release_unchanged();
    }

    /// Puts an item into the upper tier as a read leaves it. The caller holds the key's lock.
    pub(super) fn bring_up(&self, key: &Key<'_>, item: &ItemRef<'_>, request: &Retrieve) {
        let mut meta = item.meta;
        if request.bump {
            meta.fetched = true;
            meta.last_access = self.clock.now();
        }
        if self.put_above(key, &ItemRef { meta, value: item.value }, Install::Set)
            == Some(Written::Stored { cas: meta.cas })
        {
            bump(&self.counters.promotions);
        }
    }

    /// Whether the upper tier has the key.
    pub(super) fn is_above(&self, key: &Key<'_>) -> bool {
        matches!(self.upper.peek(key, &mut |_: &ItemRef<'_>| ()).now(), Ok(Lookup::Visited | Lookup::Found(_)))
    }

    /// Stores an item in the upper tier. Whatever comes of it, nothing older is left there; `None` is a failure.
    pub(super) fn put_above(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Option<Written> {
        let written = self.upper.install(key, item, how).now().ok();
        if written.is_none() {
            self.drop_above(key);
        }
        written
    }

    /// Leaves the upper tier without the key.
    pub(super) fn drop_above(&self, key: &Key<'_>) {
        // A tier in RAM has no way to fail this.
        let _ = self.upper.delete(key, &Delete::default()).now();
    }

    /// Whether the moment of a delayed flush has come.
    pub(super) fn is_flush_past(&self) -> bool {
        self.clock.now() >= self.flush_at.load(Ordering::Relaxed)
    }
}
