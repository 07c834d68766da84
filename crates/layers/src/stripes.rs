//! The keys' locks: what changes a key in a store of several parts has it to itself, and every change is counted.
//!
//! A key belongs to one of [`STRIPES`] stripes by its hash. A stripe is a fair lock, first come first served, and a version
//! that grows when the lock's holder releases it. Readers take no lock: one that wants to bring an item up from a lower
//! tier notes the version before it asks that tier, and afterwards brings it up only if the version is still the same.
//!
//! A request holds one stripe at a time, and waits for nothing else that a holder of a stripe could hold up; a flush takes all
//! of them, in order. So there is no deadlock.

use moneta_store::Counter;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

/// Enough that two of some hundred changes under way rarely meet in one by chance; half a megabyte of memory.
pub(crate) const STRIPES: usize = 8192;
/// Bits of the hash above this choose the stripe: the lowest choose buckets of the tiers' indexes.
const SHIFT: u32 = 24;

/// One stripe.
struct Stripe {
    /// One permit: its owner holds the stripe. A semaphore rather than a mutex, so that a holder can move from the
    /// stack into a future.
    lock: Semaphore,
    version: AtomicU64,
}

/// All stripes of a store.
#[derive(Clone)]
pub(crate) struct Stripes(Arc<[Stripe]>);

impl Stripe {
    /// A change is over: readers that noted the version before must see that.
    fn release(&self, changed: bool) {
        if changed {
            self.version.fetch_add(1, Ordering::Release);
        }
        self.lock.add_permits(1);
    }
}

/// A held stripe.
pub(crate) struct Held<'a> {
    stripes: &'a Stripes,
    index: usize,
    changed: bool,
}

/// A stripe held by a future.
pub(crate) struct HeldLong {
    stripes: Stripes,
    index: usize,
}

/// All stripes from the first on, held.
pub(crate) struct HeldAll<'a> {
    stripes: &'a Stripes,
    count: usize,
}

impl Stripes {
    pub(crate) fn new() -> Self {
        let stripe = |_| Stripe { lock: Semaphore::new(1), version: AtomicU64::new(0) };
        Self((0..STRIPES).map(stripe).collect())
    }

    /// The number of a hash's stripe.
    pub(crate) fn index(hash: u64) -> usize {
        (hash >> SHIFT) as usize % STRIPES
    }

    /// How often the stripe of a hash was changed.
    pub(crate) fn version(&self, hash: u64) -> u64 {
        self.0[Self::index(hash)].version.load(Ordering::Acquire)
    }

    /// Counts a change of a key that was made without its lock.
    pub(crate) fn note_change(&self, hash: u64) {
        self.0[Self::index(hash)].version.fetch_add(1, Ordering::Release);
    }

    /// Whether the stripe of a hash is held.
    pub(crate) fn is_held(&self, hash: u64) -> bool {
        self.0[Self::index(hash)].lock.available_permits() == 0
    }

    /// The stripe of a hash, if it is not held and has no waiters.
    #[inline]
    pub(crate) fn try_lock(&self, hash: u64) -> Option<Held<'_>> {
        let index = Self::index(hash);
        self.0[index].lock.try_acquire().ok()?.forget();
        Some(Held { stripes: self, index, changed: true })
    }

    /// The stripe of a hash, when its turn comes. Dropping the future gives up the place in the queue.
    pub(crate) async fn lock(&self, hash: u64, waits: &Counter) -> Held<'_> {
        if let Some(held) = self.try_lock(hash) {
            return held;
        }
        waits.bump();
        let index = Self::index(hash);
        self.acquire(index).await;
        Held { stripes: self, index, changed: true }
    }

    /// Every stripe.
    pub(crate) async fn lock_all(&self) -> HeldAll<'_> {
        let mut held = HeldAll { stripes: self, count: 0 };
        while held.count < STRIPES {
            self.acquire(held.count).await;
            held.count += 1;
        }
        held
    }

    /// Waits for the end of every change that holds a stripe now.
    pub(crate) async fn pass_all(&self) {
        for index in 0..STRIPES {
            self.acquire(index).await;
            self.0[index].release(false);
        }
    }

    async fn acquire(&self, index: usize) {
        self.0[index].lock.acquire().await.expect("a stripe is never closed").forget();
    }
}

impl Held<'_> {
    /// Lets go of the stripe without having changed anything.
    pub(crate) fn release_unchanged(mut self) {
        self.changed = false;
    }

    /// The same, for a future to hold.
    pub(crate) fn keep(self) -> HeldLong {
        let kept = HeldLong { stripes: self.stripes.clone(), index: self.index };
        std::mem::forget(self);
        kept
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.stripes.0[self.index].release(self.changed);
    }
}

impl Drop for HeldLong {
    fn drop(&mut self) {
        self.stripes.0[self.index].release(true);
    }
}

impl Drop for HeldAll<'_> {
    fn drop(&mut self) {
        self.stripes.0[..self.count].iter().for_each(|stripe| stripe.release(true));
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    const HASH: u64 = 77 << SHIFT;

    fn poll<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Option<T> {
        match future.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        }
    }

    #[test]
    fn the_lock_goes_to_those_who_wait_in_their_order_and_past_those_who_left() {
        let (stripes, waits) = (Stripes::new(), Counter::default());
        let held = stripes.try_lock(HASH).expect("free");
        let mut first = pin!(stripes.lock(HASH, &waits));
        let mut leaver = Box::pin(stripes.lock(HASH, &waits));
        let mut third = pin!(stripes.lock(HASH, &waits));
        assert!(poll(first.as_mut()).is_none() && poll(leaver.as_mut()).is_none() && poll(third.as_mut()).is_none());
        drop(held);
        assert!(stripes.try_lock(HASH).is_none(), "the queue is not overtaken");
        assert!(poll(third.as_mut()).is_none());
        drop(leaver);
        let held = poll(first.as_mut()).expect("first in the queue");
        drop(held);
        assert!(poll(third.as_mut()).is_some());
        assert_eq!(waits.get(), 3);
        assert!(!stripes.is_held(HASH));
    }

    #[test]
    fn every_change_is_counted_and_nothing_else() {
        let stripes = Stripes::new();
        let before = stripes.version(HASH);
        stripes.try_lock(HASH).expect("free").release_unchanged();
        assert_eq!(stripes.version(HASH), before);
        drop(stripes.try_lock(HASH));
        drop(stripes.try_lock(HASH).expect("free").keep());
        assert_eq!(stripes.version(HASH), before + 2);
    }

    #[test]
    fn all_are_held_and_let_go_of_even_by_one_who_leaves_on_the_way() {
        let stripes = Stripes::new();
        let held = stripes.try_lock(HASH).expect("free");
        let mut all = Box::pin(stripes.lock_all());
        assert!(poll(all.as_mut()).is_none());
        assert!(stripes.is_held(0) && !stripes.is_held((STRIPES as u64 - 1) << SHIFT));
        drop(all);
        assert!(!stripes.is_held(0));
        drop(held);
        let before = stripes.version(HASH);
        let all = poll(pin!(stripes.lock_all())).expect("all are free");
        assert!(stripes.is_held(HASH));
        drop(all);
        assert!(!stripes.is_held(HASH));
        assert_eq!(stripes.version(HASH), before + 1);
    }
}
