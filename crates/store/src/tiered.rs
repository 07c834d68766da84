//! Two tiers as one store: a small fast one above, which has the hot items, and a large one below, which has all of them.
//!
//! | command | online | batch |
//! |---|---|---|
//! | set | lower; if that fails, fail and leave the upper without the key. Then upper | lower, then replace in the upper only if it is there |
//! | add, replace, append, prepend, incr, decr, cas | decided on the newest copy, under the key's lock; then as set | the same |
//! | delete, touch | both tiers; the reply follows the newest copy | the same |
//! | get, gat | upper; on a miss lower, then promote to the upper | upper; on a miss lower, no promotion |
//!
//! What holds at any moment at which no change of a key is under way: the upper tier has the newest version of it or nothing,
//! and so has the lower. Who changes a key has its lock (`stripes`) and writes below first; who reads has none. A *promotion*
//! takes the lock without waiting for it, and happens only if nobody has changed the key since before the lower tier was
//! asked: so an old value can never replace a newer one.
//!
//! A version that cannot be kept in the upper tier (too large, no memory under `-M`) is in the lower one alone. It is in the
//! upper one alone where the daily write budget (`admission`) is spent, or while the lower tier says that it is off
//! ([`crate::ErrorKind::Unavailable`]): reads and writes then go on above. The lower tier is asked all the same, and takes
//! note of what is changed meanwhile, so that it shows none of that when it is back. While it is off, a batch write to a key
//! that is not hot has nowhere to go and fails.
//!
//! Either tier may wait. A hit in an upper tier that answers at once takes no lock and no allocation, and neither does a plain
//! set where nothing waits; over an upper tier that waits (another process) every request is a future. It waits for the upper
//! tier too, a read for its promotion included: that is done under the key's lock, before the reply. So an upper tier that
//! hangs costs each request its timeout until it is given up, and no more.
//!
//! Either may fail. A read that the upper tier fails goes on to the lower one; a write that it fails is a success all the
//! same if the lower one took it. This is safe because a tier that fails or is given up half way leaves nothing behind that
//! could be read as the newest version ([`Tier`] says how). What the lower tier fails, fails: a key that only it could have
//! is not a miss.
//!
//! Both have to hash keys under the same seed and to go by the same clock.
//!
//! What an observer hears is what the lower tier says: an item that leaves only the upper one has not left the store. An item
//! that was in the upper tier alone leaves unheard.

mod admission;
mod changes;
mod config;
mod counters;
mod drivers;
mod flush;
mod keep;
mod lanes;
mod moves;
mod promotion;
mod reads;
mod walk;
mod writes;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use moneta_protocol::request::{Arithmetic, Delete, Exptime, Retrieve, Write};

use crate::key::Key as StoreKey;
use crate::key_hash::KeyHash;
use crate::outcome::{Deleted, Lookup, Number, Step, Written};
use crate::stats::{Figure, StoreStats, TierStats};
use crate::steps::start;
use crate::store::{Cursor, Driver, Health, Install, Observer, Store, Tier, Visit, Walked, Walking};
use crate::stripes::Stripes;
use crate::time::Clock;
use admission::Admission;
pub use config::{Promotion, TieredConfig};
use counters::Counters;
use lanes::Lanes;
use moves::Moves;

/// Two tiers as one store. Clones are handles on the same store, with the same policy.
pub struct Tiered<U, L> {
    shared: Arc<Shared<U, L>>,
    policy: Policy,
}

/// How requests that come through a handle treat the upper tier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    /// What is read and written is wanted soon.
    Online,
    /// What is read and written says nothing about what is wanted.
    Batch,
}

/// What all handles share.
struct Shared<U, L> {
    upper: U,
    lower: L,
    clock: Arc<Clock>,
    stripes: Stripes,
    promotion: Promotion,
    admission: Option<Admission>,
    item_max: usize,
    /// The moment of a delayed flush, past or to come; `u32::MAX` without one.
    flush_at: AtomicU32,
    /// Seconds by which it may take place later in the lower tier.
    flush_lag: u32,
    lanes: Lanes,
    /// Keys that move while somebody walks.
    moves: Arc<Moves>,
    counters: Counters,
}

impl<U, L> Clone for Tiered<U, L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), policy: self.policy }
    }
}

impl<U, L> std::fmt::Debug for Tiered<U, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiered").field("policy", &self.policy).finish_non_exhaustive()
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Tiered<U, L> {
    /// `upper` over `lower`, whatever the latter holds already; the upper one is to be empty. The handle has the online
    /// policy.
    ///
    /// # Panics
    /// If the tiers hash under different seeds, or if the lower one remembers a delayed flush and the upper one has to wait
    /// to be told of it.
    pub fn new(upper: U, lower: L, config: TieredConfig, clock: Arc<Clock>) -> Self {
        assert_eq!(upper.seed(), lower.seed(), "both tiers hash keys alike");
        let admission = config.write_budget.map(|bytes| Admission::new(bytes, clock.now()));
        let shared = Shared {
            upper,
            flush_lag: lower.flush_lag(),
            lower,
            clock,
            stripes: Stripes::new(),
            promotion: config.promotion,
            admission,
            item_max: config.item_max,
            flush_at: AtomicU32::new(u32::MAX),
            lanes: Lanes::new(),
            moves: Arc::default(),
            counters: Counters::default(),
        };
        shared.take_over_flush();
        Self { shared: Arc::new(shared), policy: Policy::Online }
    }

    /// A handle on the same store with the batch policy: writes replace in the upper tier what is there and bring nothing new
    /// into it, and neither do reads.
    #[must_use]
    pub fn batch(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), policy: Policy::Batch }
    }

    /// The upper tier.
    pub fn upper(&self) -> &U {
        &self.shared.upper
    }

    /// The lower tier.
    pub fn lower(&self) -> &L {
        &self.shared.lower
    }

    /// Over what a change is stored in the upper tier.
    fn install_above(&self) -> Install {
        match self.policy {
            Policy::Online => Install::Set,
            Policy::Batch => Install::Replace,
        }
    }
}

impl<U: Tier + 'static, L: Tier + 'static> Store for Tiered<U, L> {
    fn seed(&self) -> KeyHash {
        self.shared.upper.seed()
    }

    fn prefetch(&self, keys: &[StoreKey<'_>]) {
        self.shared.upper.prefetch(keys);
    }

    #[inline]
    fn get(&self, key: &StoreKey<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        self.read(key, request, visitor)
    }

    #[inline]
    fn set(&self, key: &StoreKey<'_>, value: &[u8], request: &Write) -> Step<Written> {
        self.write(key, value, request)
    }

    fn delete(&self, key: &StoreKey<'_>, request: &Delete) -> Step<Deleted> {
        self.remove(key, request)
    }

    fn arithmetic(&self, key: &StoreKey<'_>, request: &Arithmetic) -> Step<Number> {
        self.compute(key, request)
    }

    fn peek(&self, key: &StoreKey<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        self.look(key, visitor)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        let this = self.clone();
        start(async move { this.shared.flush(delay).await })
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.walk_both(cursor, show)
    }

    fn stats(&self) -> StoreStats {
        let (upper, lower) = (self.shared.upper.stats(), self.shared.lower.stats());
        // Both may be servers elsewhere: which of the two is meant must show.
        let name = |kind, remote, unknown| match kind {
            "" => unknown,
            "remote" => remote,
            kind => kind,
        };
        let tiers = TierStats {
            upper: name(upper.kind, "remote_l1", "l1"),
            lower: name(lower.kind, "remote_l2", "l2"),
            lower_items: lower.items,
            lower_evictions: lower.evictions,
            lower_evicted_unfetched: lower.evicted_unfetched,
            ..self.shared.counters.with(&self.shared.lanes.sum())
        };
        StoreStats { flash: lower.flash, tiers: Some(tiers), ..upper }
    }

    fn figures(&self) -> Vec<Figure> {
        let mut figures = vec![self.shared.counters.upper_failures_figure()];
        figures.extend(self.shared.upper.figures());
        figures.extend(self.shared.lower.figures());
        figures
    }

    fn resize(&self, limit: u64) -> bool {
        self.shared.upper.resize(limit)
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.shared.lower.observe(observer);
    }

    fn driver(&self) -> Option<Box<dyn Driver>> {
        drivers::both(self.shared.upper.driver(), self.shared.lower.driver())
    }

    fn health(&self) -> Health {
        let (upper, mut health) = (self.shared.upper.health(), self.shared.lower.health());
        // The lower tier has every item: without the upper one all is answered, only later. A balancer that took the node out
        // would make an outage of that.
        if upper.unready {
            health.notes.push("the upper tier is out of service: the lower one answers everything".into());
        }
        health.notes.splice(0..0, upper.notes);
        health
    }

    fn close(&self) {
        self.shared.upper.close();
        self.shared.lower.close();
    }
}
