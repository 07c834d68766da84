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
//! and so has the lower. A change of a key holds its lock (`stripes`) and writes below first; a read holds none. A *promotion*
//! takes the lock without waiting for it, and happens only if the key has not changed since before the lower tier was
//! asked: so an old value can never replace a newer one.
//!
//! A version that cannot be kept in the upper tier (too large, no memory under `-M`) is in the lower one alone. It is in the
//! upper one alone where the daily write budget (`admission`) is spent, or while the lower tier says that it is off
//! ([`moneta_store::ErrorKind::Unavailable`]): reads and writes then go on above. The lower tier is asked all the same, and takes
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
//! could be read as the newest version ([`Store`] says how). What the lower tier fails, fails: a key that only it could have
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
mod flush;
mod keep;
mod lanes;
mod moves;
mod newer;
mod promotion;
mod reads;
mod several;
mod walk;
mod writes;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use moneta_store::component::{Component, Health, Parts, Report};
use moneta_store::{
    Clock, Cx, Key, KeyHash, Op, Outcome, Policy, Put, Reactors, ReadSeveral, Step, Store, StoreStats, Unseen, Visit,
};

use crate::stripes::Stripes;
use admission::Admission;
pub use config::{Promotion, TieredConfig};
pub use counters::TierStats;
use counters::TieredCounters;
pub(crate) use counters::metrics;
use lanes::Lanes;
use moves::Moves;

/// Two tiers as one store. Clones are handles on the same store.
pub struct Tiered<U, L>(Arc<TieredShared<U, L>>);

/// What all handles share.
struct TieredShared<U, L> {
    upper: U,
    lower: L,
    clock: Arc<Clock>,
    stripes: Stripes,
    promotion: Promotion,
    admission: Option<Admission>,
    item_max: usize,
    cluster: bool,
    /// The moment of a delayed flush, past or to come; `u32::MAX` without one.
    flush_at: AtomicU32,
    /// Seconds by which it may take place later in the lower tier.
    flush_lag: u32,
    lanes: Lanes,
    /// Keys that move during a walk.
    moves: Arc<Moves>,
    counters: TieredCounters,
}

/// One operation under way: the store, and who asks.
struct Call<'a, U, L> {
    shared: &'a Arc<TieredShared<U, L>>,
    cx: &'a Cx,
}

/// The same, kept by a future that waits.
struct Kept<U, L> {
    shared: Arc<TieredShared<U, L>>,
    cx: Cx,
}

impl<U, L> Clone for Call<'_, U, L> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<U, L> Copy for Call<'_, U, L> {}

impl<U, L> Call<'_, U, L> {
    fn kept(self) -> Kept<U, L> {
        Kept { shared: Arc::clone(self.shared), cx: self.cx.clone() }
    }

    /// Over what a change is stored in the upper tier: bulk traffic brings nothing new into it.
    fn put_above_as(self) -> Put {
        match self.cx.policy() {
            Policy::Online => Put::Any,
            Policy::Batch => Put::Present,
        }
    }
}

impl<U, L> Clone for Kept<U, L> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), cx: self.cx.clone() }
    }
}

impl<U, L> Kept<U, L> {
    fn call(&self) -> Call<'_, U, L> {
        Call { shared: &self.shared, cx: &self.cx }
    }
}

impl<U, L> Clone for Tiered<U, L> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<U, L> std::fmt::Debug for Tiered<U, L> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tiered").finish_non_exhaustive()
    }
}

impl<U: Store + 'static, L: Store + 'static> Tiered<U, L> {
    /// `upper` over `lower`, whatever the latter holds already; the upper one is to be empty.
    ///
    /// # Panics
    /// If the tiers hash under different seeds, or if the lower one remembers a delayed flush and the upper one has to wait
    /// to be told of it.
    pub fn new(upper: U, lower: L, config: TieredConfig, clock: Arc<Clock>) -> Self {
        assert_eq!(upper.seed(), lower.seed(), "both tiers hash keys alike");
        let admission = config.write_budget.map(|bytes| Admission::new(bytes, clock.millis()));
        let shared = TieredShared {
            upper,
            flush_lag: lower.parts().flush.map_or(0, |part| part.lag()),
            lower,
            clock,
            stripes: Stripes::new(),
            promotion: config.promotion,
            admission,
            item_max: config.item_max,
            cluster: config.cluster,
            flush_at: AtomicU32::new(u32::MAX),
            lanes: Lanes::new(),
            moves: Arc::default(),
            counters: TieredCounters::default(),
        };
        shared.take_over_flush();
        Self(Arc::new(shared))
    }

    /// The upper tier.
    pub fn upper(&self) -> &U {
        &self.0.upper
    }

    /// The lower tier.
    pub fn lower(&self) -> &L {
        &self.0.lower
    }

    /// What happened between the tiers, without names and numbers of the tiers themselves.
    pub fn numbers(&self) -> TierStats {
        self.0.counters.with(&self.0.lanes.sum())
    }
}

impl<U: Store + 'static, L: Store + 'static> Store for Tiered<U, L> {
    #[inline]
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let call = Call { shared: &self.0, cx };
        match op {
            Op::Read(request) => call.read(key, request, out),
            Op::Peek => call.look(key, out),
            Op::Write(value, request) => call.write(key, value, request),
            Op::Delete(request) => call.remove(key, request),
            Op::Arithmetic(request) => call.compute(key, request),
            Op::Put(item, how) => call.put(key, item, how),
            Op::Bury(version) => call.bury(key, version),
            Op::Drop => {
                // A promotion under way must not bring it back.
                self.0.stripes.note_change(key.hash);
                let _ = self.0.lower.call(cx, key, Op::Drop, &mut Unseen);
                let _ = self.0.upper.call(cx, key, Op::Drop, &mut Unseen);
                Step::Done(Ok(Outcome::Done))
            }
            Op::Holds => {
                let holds = |step: Step| step.holds();
                let held = holds(self.0.upper.call(cx, key, Op::Holds, &mut Unseen))
                    || holds(self.0.lower.call(cx, key, Op::Holds, &mut Unseen));
                Step::Done(Ok(Outcome::Held(held)))
            }
            Op::NoteHit | Op::NextCas | Op::BuriedAs => self.0.lower.call(cx, key, op, &mut Unseen),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        self.0.lower.together().map(|_| self as _)
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.0.upper.announce(keys);
    }

    fn seed(&self) -> KeyHash {
        self.0.upper.seed()
    }
}

impl<U: Store + 'static, L: Store + 'static> Component for Tiered<U, L> {
    fn parts(&self) -> Parts<'_> {
        Parts {
            below: vec![&self.0.upper, &self.0.lower],
            // The list of one tier alone would lack items.
            walk: (self.0.upper.parts().walk.is_some() && self.0.lower.parts().walk.is_some()).then_some(self as _),
            flush: Some(self),
            resize: self.0.upper.parts().resize,
            // An item that leaves only the upper tier has not left the store.
            observe: self.0.lower.parts().observe,
            // Every change goes below first, unless a budget keeps some of them above.
            feed: if self.0.admission.is_none() { self.0.lower.parts().feed } else { None },
        }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, below: Vec<Report>) -> Report {
        let [upper, lower] = <[Report; 2]>::try_from(below).expect("a report of each tier");
        // Both may be servers elsewhere: which of the two is meant must show.
        let name = |kind, remote, unknown| match kind {
            "" => unknown,
            "remote" => remote,
            kind => kind,
        };
        let numbers = TierStats {
            upper: name(upper.stats.kind, "remote_l1", "l1"),
            lower: name(lower.stats.kind, "remote_l2", "l2"),
            upper_items: upper.stats.items,
            upper_evictions: upper.stats.evictions,
            lower_items: lower.stats.items,
            ..self.numbers()
        };
        let StoreStats { device_bytes, oldest_second, tombstones, tombstone_bytes, horizon, .. } = lower.stats;
        let below = Some(lower.stats.together());
        let stats =
            StoreStats { device_bytes, oldest_second, tombstones, tombstone_bytes, horizon, below, ..upper.stats };
        Report { stats, metrics: numbers.samples() }
    }

    fn health(&self, below: Vec<Health>) -> Health {
        let [upper, mut health] = <[Health; 2]>::try_from(below).expect("the health of each tier");
        // The lower tier has every item: without the upper one all is answered, only later. A balancer that took the node out
        // would make an outage of that.
        if upper.unready {
            health.notes.push("the upper tier is out of service: the lower one answers everything".into());
        }
        health.notes.splice(0..0, upper.notes);
        health
    }

    fn close(&self) {}
}
