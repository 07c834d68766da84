//! Bringing an item up from the lower tier, and only if it is still the newest.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Waker};

use moneta_store::request::Retrieve;
use moneta_store::steps::finish;
use moneta_store::{ItemMeta, ItemRef, Key, Lookup, Op, Outcome, Policy, Put, Store, Unseen, Written};

use super::{Call, TieredShared};

/// How new a key is when a reader asks the lower tier for it.
pub(super) struct ReadSnapshot {
    version: u64,
    flushed: bool,
    /// The upper tier had to be waited for.
    pub(super) above_waits: bool,
}

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    /// Whether this hit in the lower tier is one to promote.
    pub(super) fn promotes(self, meta: &ItemMeta) -> bool {
        let wanted = self.cx.policy() == Policy::Online && self.shared.promotion.wants(meta.fetched);
        if !wanted {
            self.shared.counters.promotions_declined.bump();
        }
        wanted
    }

    /// Puts an item that the lower tier showed into the upper one, as the read leaves it, unless the key was changed since.
    /// Does not wait for a change under way: its outcome is what belongs above.
    pub(super) async fn promote(self, key: &Key<'_>, item: &ItemRef<'_>, request: &Retrieve, snapshot: &ReadSnapshot) {
        let shared = &self.shared;
        let Some(held) = shared.stripes.try_lock(key.hash) else {
            return shared.counters.promotions_overtaken.bump();
        };
        if shared.stripes.version(key.hash) != snapshot.version || shared.is_flush_past() != snapshot.flushed {
            shared.counters.promotions_overtaken.bump();
        } else if snapshot.above_waits || !self.is_above(key).await {
            // Where it is there already it is the same version: asking first only pays where that costs less than storing it.
            self.bring_up(key, item, request).await;
        }
        // A flush that came to be due just now has passed the item by.
        if shared.is_flush_past() != snapshot.flushed {
            let _ = finish(self.drop_above(key)).await;
        }
        held.release_unchanged();
    }

    /// The same over an upper tier that answered the read at once, and so seldom has to wait: where it would, this is given up.
    pub(super) fn promote_now(self, key: &Key<'_>, item: &ItemRef<'_>, request: &Retrieve, snapshot: &ReadSnapshot) {
        let promotion = pin!(self.promote(key, item, request, snapshot));
        let _ = promotion.poll(&mut Context::from_waker(Waker::noop()));
    }

    /// Puts an item into the upper tier as a read leaves it. The caller holds the key's lock.
    pub(super) async fn bring_up(self, key: &Key<'_>, item: &ItemRef<'_>, request: &Retrieve) {
        let mut meta = item.meta;
        if request.bump {
            meta.fetched = true;
            meta.last_access = self.shared.clock.now();
        }
        let above = finish(self.put_above(key, &ItemRef { meta, value: item.value }, Put::Any)).await;
        if above.is_ok_and(|written| written == Written::Stored { cas: meta.cas }) {
            self.shared.counters.promotions.bump();
        }
    }
}

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    /// Whether the upper tier has the key.
    pub(super) async fn is_above(self, key: &Key<'_>) -> bool {
        let above = finish(self.shared.upper.call(self.cx, key, Op::Peek, &mut Unseen)).await;
        matches!(self.shared.counted(above), Ok(Outcome::Read(Lookup::Visited | Lookup::Found(_))))
    }
}

impl<U, L> TieredShared<U, L> {
    /// To be called before the lower tier is asked, and after the upper one was. `above_waits`: that one had to wait.
    pub(super) fn snapshot(&self, key: &Key<'_>, above_waits: bool) -> ReadSnapshot {
        ReadSnapshot { version: self.stripes.version(key.hash), flushed: self.is_flush_past(), above_waits }
    }

    /// Whether the key was changed since, or is being changed.
    pub(super) fn is_overtaken(&self, key: &Key<'_>, snapshot: &ReadSnapshot) -> bool {
        self.stripes.is_held(key.hash) || self.stripes.version(key.hash) != snapshot.version
    }

    /// Whether what a reader found is there still: no change of the key has ended since, and nothing was flushed.
    pub(super) fn still_holds(&self, key: &Key<'_>, snapshot: &ReadSnapshot) -> bool {
        self.stripes.version(key.hash) == snapshot.version && self.is_flush_past() == snapshot.flushed
    }
}
