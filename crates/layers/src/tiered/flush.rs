//! Dropping everything, in both tiers at one moment.
//!
//! A flush holds every stripe, so no change is half done in it: each is in both tiers before it, and goes, or after it, and
//! stays. A delayed one takes place in either tier when its moment comes, by the clock and without a lock: so an operation that
//! changes or promotes a key looks at the clock before and after, and a change that the moment fell into is taken back whole, as
//! one made before it. A lower tier with a separate clock may come to the moment later: nothing goes up until it has.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_store::component::{self, Flush};
use moneta_store::request::Exptime;
use moneta_store::steps::{delete, finish, start};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{Cx, ErrorKind, Expiry, Key, Op, Step, Store, StoreError, Unseen, Version};

use super::{Call, Kept, Tiered, TieredShared};

impl<U: Store + 'static, L: Store + 'static> Flush for Tiered<U, L> {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        if self.0.cluster {
            // One version for both tiers: they must agree which of several flushes is the last.
            let any = Key { bytes: b"-", hash: 0 };
            let version = Version(self.0.lower.call(cx, &any, Op::NextCas, &mut Unseen).cas());
            let now = self.0.clock.now();
            return Flush::floor(self, cx, Floor::new(version, Expiry::resolve(delay, now), now));
        }
        let kept = Kept { shared: Arc::clone(&self.0), cx: cx.clone() };
        start(async move { kept.call().flush(delay).await })
    }

    fn pending(&self) -> Option<u32> {
        let moment = self.0.flush_at.load(Ordering::Relaxed);
        (moment != u32::MAX && moment > self.0.clock.now()).then_some(moment)
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        let kept = Kept { shared: Arc::clone(&self.0), cx: cx.clone() };
        start(async move { kept.call().floor(floor).await })
    }

    fn floors(&self) -> Floors {
        self.0.lower.parts().flush.map_or_else(Floors::default, Flush::floors)
    }

    /// Of both tiers: while the lower one is off, only the upper one sees writes.
    fn newest(&self, cx: &Cx) -> Step<Version> {
        let both = [component::newest(&self.0.upper, cx), component::newest(&self.0.lower, cx)];
        start(async move {
            let mut newest = Version::ZERO;
            for step in both {
                // A tier without versions tells none.
                newest = newest.max(finish(step).await.unwrap_or_default());
            }
            Ok(newest)
        })
    }

    fn lag(&self) -> u32 {
        self.0.flush_lag
    }
}

impl<U: Store + 'static, L: Store + 'static> TieredShared<U, L> {
    /// Takes over a delayed flush that the lower tier remembers from before this process.
    pub(super) fn take_over_flush(&self) {
        let pending = self.lower.parts().flush.and_then(Flush::pending);
        if let Some(moment) = pending.filter(|moment| *moment > self.clock.now()) {
            self.flush_at.store(moment, Ordering::Relaxed);
            let _ = component::flush(&self.upper, &Cx::outside(), Exptime(i64::from(moment))).now();
        }
    }
}

impl<'a, U: Store + 'static, L: Store + 'static> Call<'a, U, L> {
    /// Flushes both tiers, now or later.
    async fn flush(self, delay: Exptime) -> Result<(), StoreError> {
        let shared = self.shared;
        let _all = shared.stripes.lock_all().await;
        let now = shared.clock.now();
        let moment = Expiry::resolve(delay, now).0;
        let waits = moment > now;
        // The tiers are asked one after the other and must not come to different moments.
        let exact = i64::from(moment);
        let delay = if waits && exact > Exptime::RELATIVE_MAX { Exptime(exact) } else { delay };
        // The upper one first: given up half way, the flush leaves above nothing that is not below.
        finish(component::flush(&shared.upper, self.cx, delay)).await?;
        shared.flush_at.store(if waits { moment } else { u32::MAX }, Ordering::Relaxed);
        match finish(component::flush(&shared.lower, self.cx, delay)).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(()),
            outcome => outcome,
        }
    }

    /// Takes a flush from elsewhere in both tiers.
    async fn floor(self, floor: Floor) -> Result<(), StoreError> {
        let shared = self.shared;
        let _all = shared.stripes.lock_all().await;
        if floor.is_local() {
            finish(component::floor(&shared.upper, self.cx, floor)).await?;
            return finish(component::floor(&shared.lower, self.cx, floor)).await;
        }
        if shared.lower.parts().flush.is_some_and(|below| below.floors().knows(&floor)) {
            return Ok(());
        }
        finish(component::floor(&shared.upper, self.cx, floor)).await?;
        shared.flush_at.store(if floor.waits(shared.clock.now()) { floor.second } else { u32::MAX }, Ordering::Relaxed);
        match finish(component::floor(&shared.lower, self.cx, floor)).await {
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(()),
            outcome => outcome,
        }
    }

    /// Takes back a change that a delayed flush fell into. The caller holds the key's lock; `flushed` is what
    /// [`TieredShared::is_flush_past`] said when it got it.
    pub(super) async fn take_back_if_flushed(self, key: &Key<'_>, flushed: bool) -> Result<(), StoreError> {
        let shared = self.shared;
        if shared.is_flush_past() == flushed {
            return Ok(());
        }
        let _ = finish(self.drop_above(key)).await;
        if shared.cluster {
            let _ = shared.lower.call(self.cx, key, Op::Drop, &mut Unseen);
            return Ok(());
        }
        match delete(&shared.lower, self.cx, key).await {
            Ok(_) => Ok(()),
            Err(error) if error.kind() == ErrorKind::Unavailable => Ok(()),
            Err(error) => {
                shared.counters.lower_failures.bump();
                Err(error)
            }
        }
    }
}

impl<U, L> TieredShared<U, L> {
    /// Whether the moment of a delayed flush has come.
    pub(super) fn is_flush_past(&self) -> bool {
        self.clock.now() >= self.flush_at.load(Ordering::Relaxed)
    }

    /// Whether it has come so lately that the lower tier may still show what the upper one has dropped.
    pub(super) fn is_flush_late(&self) -> bool {
        let since = self.clock.now().checked_sub(self.flush_at.load(Ordering::Relaxed));
        since.is_some_and(|since| since < self.flush_lag)
    }
}
