//! Runs a sequence on a store and on the model and stops at the first difference.

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_store::component::{Observer, RemovalCause, Removed};
use moneta_store::{Calls, Clock, Deleted, Expiry, Key, Store, Written};
use parking_lot::Mutex;

use super::call::{Driven, Outcome};
use super::cas_book::{CasBook, CasPair};
use super::compare::Comparison;
use super::operation::Operation;
use super::walking::Walk;
use super::{Mode, Options};
use crate::model::ModelStore;

/// Against hangs only: a shrink of the suite's few megabytes takes milliseconds.
const SHRINK_MAX: Duration = Duration::from_secs(60);

/// The first operation after which a store is not as the model.
pub(super) struct Difference {
    pub(super) index: usize,
    pub(super) reason: String,
}

/// Both stores and what is known of them.
pub(super) struct Runner<'a, S> {
    pub(super) driven: Driven<'a, S>,
    restart: &'a dyn Fn(&S, bool),
    pub(super) model: ModelStore,
    pub(super) options: Options,
    pub(super) book: CasBook,
    /// Keys under which something may lie: a dead or flushed item may, until the store notices.
    pub(super) laid: HashSet<usize>,
    /// When items die of which the store may have lost a part and kept the rest.
    remains: HashMap<usize, Expiry>,
    clock: Arc<Clock>,
    keys: &'a [Vec<u8>],
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
        driven: Driven { store, idle },
        restart,
        model: ModelStore::new(Arc::clone(&clock), options.config.value_max),
        options,
        book: CasBook::default(),
        laid: HashSet::new(),
        remains: HashMap::new(),
        clock,
        keys,
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
                let keys: Vec<_> = keys.iter().map(|key| self.key(*key)).collect();
                self.driven.store.announce(&keys);
            }
            Operation::Flush { delay } => {
                self.driven.finish(self.driven.store.flush(*delay))?;
                self.model_driven().finish(self.model.flush(*delay))?;
            }
            Operation::Advance { seconds } => self.clock.advance(*seconds),
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
        let store = self.driven.store;
        if !store.resize(self.options.config.memory / 100 * percent) {
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
        self.driven.store.observe(Some(Arc::clone(&self.departures) as Arc<dyn Observer>));
    }

    /// A walk under way ends with the store, and so does its observer.
    fn restart(&mut self, kill: bool) {
        self.walk = None;
        (self.restart)(self.driven.store, kill);
        self.listen();
    }

    /// A key as the store takes it.
    pub(super) fn key(&self, number: usize) -> Key<'a> {
        let seed = self.driven.store.seed();
        let shared = self.options.keys_per_hash.max(1);
        let hash = Key::new(&self.keys[number / shared * shared], seed).hash;
        Key { bytes: &self.keys[number], hash }
    }

    /// How many keys there are.
    pub(super) fn key_numbers(&self) -> std::ops::Range<usize> {
        0..self.keys.len()
    }

    /// The number of a key that a store shows.
    pub(super) fn number_of(&self, key: &[u8]) -> Option<usize> {
        self.keys.iter().position(|known| known == key)
    }

    pub(super) fn model_driven(&self) -> Driven<'_, ModelStore> {
        Driven { store: &self.model, idle: &|_| unreachable!("the model never waits") }
    }

    /// What the model shows of a key.
    pub(super) fn model_peek(&self, number: usize) -> Result<Outcome, String> {
        self.model_driven().peek(&self.key(number))
    }

    pub(super) fn comparison(&self, number: usize) -> Comparison {
        let Options {
            last_access_slack, fetched_slack, expiry_slack, bare_numbers, bare_items, versions_unknown, ..
        } = self.options;
        let (versions, came_back) = (self.book.versions(number), self.options.restarts);
        let remains_died = self.remains.get(&number).is_some_and(|expiry| expiry.is_dead(self.clock.now()));
        let may_be_expired = came_back || remains_died;
        Comparison {
            versions,
            last_access_slack,
            fetched_slack,
            expiry_slack,
            bare_numbers,
            bare_items,
            versions_unknown,
            may_be_expired,
        }
    }

    /// Notes that the store has evicted a key.
    pub(super) fn forget(&mut self, number: usize) {
        if let Some(item) = self.model.remember(&self.keys[number]) {
            self.remains.insert(number, item.expiry);
        }
        self.model.restore(&self.keys[number], None);
        self.laid.remove(&number);
    }

    /// An operation on a key, and a look at what lies there afterwards. In lossy mode the store may instead have done what
    /// it does where nothing is.
    fn on_a_key(&mut self, operation: &Operation) -> Result<(), String> {
        let number = operation.key().expect("the operation is on a key");
        let key = self.key(number);
        let compare = self.choose_cas(operation, number)?;
        let before = self.model.remember(key.bytes);
        let done = self.driven.perform(operation, &key, compare.map(|pair| pair.store))?;
        let after = self.driven.peek(&key)?;
        if let Some(walk) = self.walk.as_mut().filter(|_| operation.changes()) {
            walk.changed(number);
        }
        let compare = compare.map(|pair| pair.model);
        let Err(reason) = self.agree(operation, number, compare, &done, &after) else { return Ok(()) };
        let Some(before) = before.filter(|_| self.options.mode == Mode::Lossy) else { return Err(reason) };
        self.remains.insert(number, before.expiry);
        self.model.restore(key.bytes, None);
        self.agree(operation, number, compare, &done, &after)
            .map_err(|other| format!("{reason}; nor had the item been evicted before: {other}"))
    }

    fn choose_cas(&self, operation: &Operation, number: usize) -> Result<Option<CasPair>, String> {
        let Some(choice) = operation.compare() else { return Ok(None) };
        let current = match self.model_peek(number)? {
            Outcome::Hit(item) => Some(item.meta.cas),
            _ => None,
        };
        Ok(Some(self.book.choose(number, choice, current)))
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
        let key = self.key(number);
        let expected = self.model_driven().perform(operation, &key, compare)?;
        let mut comparison = self.comparison(number);
        comparison.outcomes(&expected, done)?;
        let lies = self.model_peek(number)?;
        let gone = matches!((&lies, after), (Outcome::Hit(_), Outcome::Miss { .. }));
        if !(gone && self.options.mode == Mode::Lossy) {
            comparison.outcomes(&lies, after).map_err(|reason| format!("afterwards a peek: {reason}"))?;
        }
        self.book.keep(number, comparison.versions);
        if matches!((done, &lies), (Outcome::Written(Written::Stored { .. }), Outcome::Hit(_))) {
            self.kept.count(!gone)?;
        }
        if gone {
            self.forget(number);
        } else if self.model.remember(key.bytes).is_some() {
            self.laid.insert(number);
            self.remains.remove(&number);
        } else if matches!(done, Outcome::Deleted(Deleted::Deleted)) {
            self.laid.remove(&number);
        }
        Ok(())
    }

    fn walk_on(&mut self) -> Result<(), String> {
        let mut walk = match self.walk.take() {
            Some(walk) => walk,
            None => Walk::begin(self)?,
        };
        if walk.batch(self)? {
            self.walk = Some(walk);
            return Ok(());
        }
        walk.end(self)
    }

    fn walk_all(&mut self) -> Result<(), String> {
        let mut walk = Walk::begin(self)?;
        while walk.batch(self)? {}
        let shown = walk.shown();
        walk.end(self)?;
        self.check_gauges(shown)
    }

    /// Between what a walk shows and what may lie there: dead items count until noticed.
    fn check_gauges(&self, shown: usize) -> Result<(), String> {
        let stats = self.driven.store.stats();
        // Of two tiers the gauge is of the upper one, which may hold any part of what there is. An engine on devices makes
        // room on a thread of its own, also since the walk.
        let makes_room = self.options.mode == Mode::Lossy && stats.oldest_second.is_some();
        let least = if stats.below.is_some() || makes_room { 0 } else { shown as u64 };
        let most = if self.options.counts_parts { u64::MAX } else { self.laid.len() as u64 };
        if !self.options.items_estimated && !(least..=most).contains(&stats.items) {
            return Err(format!("{} items by the gauge, but {least} to {most} live and dead ones", stats.items));
        }
        let limit = self.options.config.memory;
        let parts = stats.index_bytes + stats.log_bytes + stats.ghost_bytes;
        if stats.limit > 0 && (stats.bytes > limit || parts > limit) {
            return Err(format!("{} bytes in items and {parts} in all, over the limit of {limit}", stats.bytes));
        }
        Ok(())
    }

    fn check_departures(&self) -> Result<(), String> {
        let mut departures = self.departures.0.lock();
        for (key, expiry, why) in departures.drain(..) {
            let wrong = match why {
                RemovalCause::Evicted => self.options.mode == Mode::Exact,
                RemovalCause::Expired => !expiry.is_dead(self.clock.now()),
            };
            if wrong {
                return Err(format!("reported b\"{}\" of {expiry:?} as {why:?}", key.escape_ascii()));
            }
        }
        Ok(())
    }
}
