//! Runs a sequence on a store and on the model and stops at the first difference.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_store::component::{Observer, RemovalCause, Removed};
use moneta_store::{Calls, Clock, Deleted, Expiry, Store, Written};
use parking_lot::Mutex;

use super::call::{Driven, Outcome};
use super::cas_book::CasPair;
use super::operation::Operation;
use super::options::{Mode, Options};
use super::pair::Pair;
use super::walking::Walk;

/// Against hangs only: a shrink of the suite's few megabytes takes milliseconds.
const SHRINK_MAX: Duration = Duration::from_secs(60);

/// The first operation after which a store is not as the model.
pub(super) struct Difference {
    pub(super) index: usize,
    pub(super) reason: String,
}

/// A run in progress.
struct Runner<'a, S> {
    pair: Pair<'a, S>,
    restart: &'a dyn Fn(&S, bool),
    walk: Option<Walk>,
    departures: Arc<Departures>,
    kept: Kept,
}

/// How often what was just stored was there. A store that may forget must not forget everything.
#[derive(Default)]
struct Kept {
    stored: u32,
    kept: u32,
}

impl Kept {
    /// Writes before it is judged.
    const STORED_MIN: u32 = 50;

    fn count(&mut self, kept: bool) -> Result<(), String> {
        self.stored += 1;
        self.kept += u32::from(kept);
        if self.stored < Self::STORED_MIN || self.kept >= self.stored / 2 {
            return Ok(());
        }
        Err(format!("of {} items only {} were there when just stored", self.stored, self.kept))
    }
}

/// Keeps what a store reports of items that left by themselves.
#[derive(Default)]
struct Departures(Mutex<Vec<(Vec<u8>, Expiry, RemovalCause)>>);

impl Observer for Departures {
    fn removed(&self, item: &Removed<'_>) {
        let mut departures = self.0.lock();
        departures.push((item.key.to_vec(), item.meta.expiry, item.cause));
    }
}

/// Runs `operations`; a panic in the store is a difference too.
pub(super) fn run<S: Store>(
    store: &S,
    idle: &dyn Fn(&S),
    restart: &dyn Fn(&S, bool),
    clock: Arc<Clock>,
    keys: &[Vec<u8>],
    operations: &[Operation],
    options: Options,
) -> Option<Difference> {
    let mut runner = Runner {
        pair: Pair::new(Driven { store, idle }, options, clock, keys),
        restart,
        walk: None,
        departures: Arc::default(),
        kept: Kept::default(),
    };
    runner.listen();
    for (index, operation) in operations.iter().enumerate() {
        let ended = catch_unwind(AssertUnwindSafe(|| runner.step(operation)))
            .unwrap_or_else(|panic| Err(format!("panicked: {}", message(&*panic))));
        if let Err(reason) = ended {
            return Some(Difference { index, reason });
        }
    }
    store.observe(None);
    None
}

/// What a panic had to say.
fn message(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

impl<'a, S: Store> Runner<'a, S> {
    fn step(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::Prefetch { keys } => {
                let keys: Vec<_> = keys.iter().map(|key| self.pair.key(*key)).collect();
                self.pair.driven.store.announce(&keys);
            }
            Operation::Flush { delay } => {
                self.pair.driven.finish(self.pair.driven.store.flush(*delay))?;
                self.pair.model_driven().finish(self.pair.model.flush(*delay))?;
            }
            Operation::Advance { seconds } => self.pair.clock.advance(*seconds),
            Operation::Restart { kill } => self.restart(*kill),
            Operation::WalkOn => self.walk_on()?,
            Operation::WalkAll => self.walk_all()?,
            Operation::Resize { percent } => self.resize(*percent)?,
            on_a_key => self.on_a_key(on_a_key)?,
        }
        self.check_departures()
    }

    /// Waits until the store has shrunk: evictions beside the sequence would come between what is done and what is looked
    /// at, and no seed would repeat.
    fn resize(&self, percent: u64) -> Result<(), String> {
        let store = self.pair.driven.store;
        if !store.resize(self.pair.options.config.memory / 100 * percent) {
            return Ok(());
        }
        let begun = Instant::now();
        while store.stats().shrinking {
            if begun.elapsed() > SHRINK_MAX {
                return Err(format!("still shrinks {SHRINK_MAX:?} after a resize to {percent} %"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }

    fn listen(&self) {
        self.pair.driven.store.observe(Some(Arc::clone(&self.departures) as Arc<dyn Observer>));
    }

    /// A walk under way ends with the store, and so does its observer.
    fn restart(&mut self, kill: bool) {
        self.walk = None;
        (self.restart)(self.pair.driven.store, kill);
        self.listen();
    }

    /// An operation on a key, and a look at what lies there afterwards. In lossy mode the store may instead have done what
    /// it does where nothing is.
    fn on_a_key(&mut self, operation: &Operation) -> Result<(), String> {
        let number = operation.key().expect("the operation is on a key");
        let key = self.pair.key(number);
        let compare = self.choose_cas(operation, number)?;
        let before = self.pair.model.remember(key.bytes);
        let done = self.pair.driven.perform(operation, &key, compare.map(|pair| pair.store))?;
        let after = self.pair.driven.peek(&key)?;
        if let Some(walk) = self.walk.as_mut().filter(|_| operation.changes()) {
            walk.changed(number);
        }
        let compare = compare.map(|pair| pair.model);
        let Err(reason) = self.agree(operation, number, compare, &done, &after) else { return Ok(()) };
        let Some(before) = before.filter(|_| self.pair.options.mode == Mode::Lossy) else { return Err(reason) };
        self.pair.remains.insert(number, before.expiry);
        self.pair.model.restore(key.bytes, None);
        self.agree(operation, number, compare, &done, &after)
            .map_err(|other| format!("{reason}; nor had the item been evicted before: {other}"))
    }

    fn choose_cas(&self, operation: &Operation, number: usize) -> Result<Option<CasPair>, String> {
        let Some(choice) = operation.compare() else { return Ok(None) };
        let current = match self.pair.model_peek(number)? {
            Outcome::Hit(item) => Some(item.meta.cas),
            _ => None,
        };
        Ok(Some(self.pair.book.choose(number, choice, current)))
    }

    /// Does to the model what was done to the store, and compares what came of it and what lies there.
    fn agree(
        &mut self,
        operation: &Operation,
        number: usize,
        compare: Option<u64>,
        done: &Outcome,
        after: &Outcome,
    ) -> Result<(), String> {
        let key = self.pair.key(number);
        let expected = self.pair.model_driven().perform(operation, &key, compare)?;
        let mut comparison = self.pair.comparison(number);
        comparison.outcomes(&expected, done)?;
        let lies = self.pair.model_peek(number)?;
        let gone = matches!((&lies, after), (Outcome::Hit(_), Outcome::Miss { .. }));
        if !(gone && self.pair.options.mode == Mode::Lossy) {
            comparison.outcomes(&lies, after).map_err(|reason| format!("afterwards a peek: {reason}"))?;
        }
        self.pair.book.keep(number, comparison.versions);
        if matches!((done, &lies), (Outcome::Written(Written::Stored { .. }), Outcome::Hit(_))) {
            self.kept.count(!gone)?;
        }
        if gone {
            self.pair.forget(number);
        } else if self.pair.model.remember(key.bytes).is_some() {
            self.pair.laid.insert(number);
            self.pair.remains.remove(&number);
        } else if matches!(done, Outcome::Deleted(Deleted::Deleted)) {
            self.pair.laid.remove(&number);
        }
        Ok(())
    }

    fn walk_on(&mut self) -> Result<(), String> {
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => Walk::begin(&self.pair)?,
        };
        if walk.batch(&self.pair)? {
            self.walk = Some(walk);
            return Ok(());
        }
        walk.end(&mut self.pair)
    }

    fn walk_all(&mut self) -> Result<(), String> {
        let mut walk = Walk::begin(&self.pair)?;
        while walk.batch(&self.pair)? {}
        let shown = walk.shown();
        walk.end(&mut self.pair)?;
        self.check_gauges(shown)
    }

    /// Between what a walk shows and what may lie there: dead items count until noticed.
    fn check_gauges(&self, shown: usize) -> Result<(), String> {
        let report = self.pair.driven.store.report_all();
        let stats = report.stats;
        // Of two tiers the gauge is of the upper one, which may hold any part of what there is. An engine on devices makes
        // room on a separate thread, also since the walk.
        let makes_room = self.pair.options.mode == Mode::Lossy && stats.oldest_second.is_some();
        let least = if stats.below.is_some() || makes_room { 0 } else { shown as u64 };
        let most = if self.pair.options.counts_parts { u64::MAX } else { self.pair.laid.len() as u64 };
        if !self.pair.options.items_estimated && !(least..=most).contains(&stats.items) {
            return Err(format!("{} items by the gauge, but {least} to {most} live and dead ones", stats.items));
        }
        let limit = self.pair.options.config.memory;
        let memory = report.metrics.iter().filter(|sample| sample.metric.name == "memory_bytes");
        let parts = memory.map(|sample| sample.value.number()).sum::<f64>() as u64;
        // Of two tiers in memory the parts are those of both, each within a limit of its own.
        if stats.limit > 0 && (stats.bytes > limit || stats.below.is_none() && parts > limit) {
            return Err(format!("{} bytes in items and {parts} in all, over the limit of {limit}", stats.bytes));
        }
        Ok(())
    }

    fn check_departures(&self) -> Result<(), String> {
        let mut departures = self.departures.0.lock();
        for (key, expiry, why) in departures.drain(..) {
            let wrong = match why {
                RemovalCause::Evicted => self.pair.options.mode == Mode::Exact,
                RemovalCause::Expired => !expiry.is_dead(self.pair.clock.now()),
            };
            if wrong {
                return Err(format!("reported b\"{}\" of {expiry:?} as {why:?}", key.escape_ascii()));
            }
        }
        Ok(())
    }
}
