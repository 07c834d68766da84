//! The layer round a node's store that refuses what the node cannot answer while it is behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use moneta_store::component::{self, Component, Flush, Health, Parts, Report};
use moneta_store::metric::{Metric, Reading, Unit, samples_of};
use moneta_store::request::{Exptime, Retrieve, WriteMode};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cx, Key, KeyHash, Op, PendingReads, Put, Reactors, ReadSeveral, Step, Store, StoreError, Version, Visit,
};
use parking_lot::Mutex;

use super::state::{CatchUpConfig, CatchUpCounts, CatchUpState};
use crate::decide::is_plain;

const OF_NODE: &[Reading<CatchUpState>] = &[
    Metric::gauge(
        "catch_up_behind",
        Unit::Count,
        "Whether the node learns from other copies what it has missed: 1 or 0.",
    )
    .read(|state| u64::from(state.is_behind()).into()),
    Metric::counter("catch_up_taken_total", Unit::Count, "Changes of other copies that were newer than what was here.")
        .read(|state| state.counts.taken.get().into()),
    Metric::counter("catch_up_superseded_total", Unit::Count, "Changes of other copies that were older.")
        .read(|state| state.counts.superseded.get().into()),
    Metric::counter(
        "catch_up_dropped_total",
        Unit::Count,
        "Times that everything was dropped, since the node was away for longer than feeds reach.",
    )
    .read(|state| state.counts.dropped.get().into()),
    Metric::counter(
        "catch_up_again_total",
        Unit::Count,
        "Times that the node was behind though it had not restarted: it was stopped, cut off, or its clock was wrong.",
    )
    .read(|state| state.counts.again.get().into()),
    Metric::gauge("catch_up_seconds", Unit::Seconds, "How long the node was behind, the last time.")
        .read(|state| (state.counts.took.load(Ordering::Relaxed) as f64 / 1000.0).into()),
];

/// The declarations of a node's metrics on catching up.
pub fn catch_up_metrics() -> impl Iterator<Item = Metric> {
    OF_NODE.iter().map(Reading::metric)
}

/// A node's store that may be behind. Cheap to clone.
#[derive(Clone)]
pub struct CatchUp(Arc<CatchUpState>);

impl CatchUp {
    /// Round `store`. It is behind from now on if it holds something from before; [`CatchUp::start`] begins to learn.
    pub fn new(store: Arc<dyn Store>, config: CatchUpConfig, clock: Arc<Clock>) -> Self {
        Self(Arc::new(CatchUpState {
            store,
            clock,
            behind: AtomicBool::new(config.kept_until.is_some()),
            config,
            whole_until: AtomicU64::new(0),
            percent: AtomicU8::new(0),
            note: Mutex::new(None),
            counts: CatchUpCounts::default(),
            runs_until: AtomicU64::new(u64::MAX),
            trouble: Mutex::default(),
            peers: Mutex::default(),
            large: Arc::default(),
            gate: Arc::default(),
        }))
    }

    pub(super) fn state(&self) -> &Arc<CatchUpState> {
        &self.0
    }
}

/// What is taken whatever the store holds, and answers nothing of it.
fn is_whole_write(op: &Op<'_>) -> bool {
    match op {
        Op::Write(_, request) => request.mode == WriteMode::Set && request.compare.is_none(),
        Op::Delete(request) => is_plain(request),
        Op::Put(_, how) => *how != Put::Present,
        Op::Bury(_) | Op::Drop | Op::Holds | Op::NoteHit | Op::NextCas | Op::BuriedAs => true,
        Op::Read(_) | Op::Peek | Op::Arithmetic(_) => false,
    }
}

impl CatchUpState {
    /// An operation while the node is behind. The node's other threads, such as those that serve its feed, see what there is.
    #[cold]
    fn call_behind(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let op = match op {
            // What lies here may be something that was deleted elsewhere.
            Op::Put(item, Put::Newer { as_of, base: Some(Version::ZERO) }) => {
                Op::Put(item, Put::Newer { as_of, base: None })
            }
            op => op,
        };
        if cx.is_worker() && !is_whole_write(&op) {
            return Step::Done(Err(StoreError::catching_up()));
        }
        self.store.call(cx, key, op, out)
    }
}

impl Store for CatchUp {
    #[inline]
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        // A worker refreshes the clock before it looks at requests: it may be the first to see that the node was stopped.
        if self.0.was_stopped() || self.0.is_behind() {
            return self.0.call_behind(cx, key, op, out);
        }
        self.0.store.call(cx, key, op, out)
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        self.0.store.together().map(|_| self as _)
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.0.store.announce(keys);
    }

    fn seed(&self) -> KeyHash {
        self.0.store.seed()
    }
}

impl ReadSeveral for CatchUp {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        // Behind, each key is refused by itself.
        if self.0.was_stopped() || self.0.is_behind() {
            return None;
        }
        self.0.store.together()?.read_several(cx, keys, request)
    }
}

impl Component for CatchUp {
    fn parts(&self) -> Parts<'_> {
        let parts = self.0.store.parts();
        let flush = parts.flush.is_some().then_some(self as &dyn Flush);
        Parts { below: vec![&*self.0.store], flush, ..parts }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, mut below: Vec<Report>) -> Report {
        let mut report = below.pop().expect("a report of the store below");
        report.metrics.extend(samples_of([], OF_NODE, &*self.0));
        report
    }

    fn health(&self, mut below: Vec<Health>) -> Health {
        let mut health = below.pop().expect("the health of the store below");
        if self.0.is_behind() {
            health.unready = true;
            let percent = self.0.percent.load(Ordering::Relaxed);
            health.notes.push(format!("catching up with other copies, {percent} %"));
        }
        health.notes.extend(self.0.trouble.lock().note());
        health.notes.extend(self.0.note.lock().clone());
        health
    }

    fn close(&self) {
        self.0.gate.close();
    }
}

impl Flush for CatchUp {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        component::flush(&*self.0.store, cx, delay)
    }

    fn pending(&self) -> Option<u32> {
        self.0.store.parts().flush.and_then(Flush::pending)
    }

    /// A flush of this copy alone, which lacks writes: it need not, if those have come from other copies.
    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        if floor.is_local() {
            if self.0.is_behind() {
                return Step::Done(Err(StoreError::catching_up()));
            }
            let newest = floor.version.millis() + self.0.config.skew_max;
            if newest < self.0.whole_until.load(Ordering::Relaxed) {
                return Step::done(());
            }
        }
        component::floor(&*self.0.store, cx, floor)
    }

    fn floors(&self) -> Floors {
        self.0.store.parts().flush.map_or_else(Floors::default, Flush::floors)
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        component::newest(&*self.0.store, cx)
    }

    fn lag(&self) -> u32 {
        self.0.store.parts().flush.map_or(0, Flush::lag)
    }
}
