//! The executable specification: a plain map that does all a [`Store`] can be asked for, slowly and plainly.
//!
//! Every engine and every stack of layers is compared with it (see the `suite` module), so here an obvious line is worth
//! more than a fast one. What it does follows memcached 1.6.45; `tests/meta_semantics/` holds the truth table.

mod state;

use std::sync::Arc;

use moneta_protocol::item::{Item, ItemRef, Value};
use moneta_protocol::request::{Arithmetic, Delete, Exptime, Retrieve, Write};

use crate::key::Key;
use crate::key_hash::KeyHash;
use crate::outcome::{Deleted, Lookup, Number, Step, Written};
use crate::stats::StoreStats;
use crate::store::{Cursor, Install, Observer, Store, Tier, Visit, Walked, Walking};
use crate::time::Clock;
use parking_lot::{Mutex, MutexGuard};
use state::{Missing, ModelItem, State};

/// Items a batch of a walk shows: few, so that walks and changes interleave even in small tests.
const WALK_BATCH: usize = 16;

/// A store of unlimited memory in a locked map. Clones are handles on the same map.
///
/// An item that expires stays in the map, unreadable, until something is stored under its key or a flush takes it: so
/// [`Lookup::Miss`] says `expired` for as long as a store could possibly know.
#[derive(Clone, Debug)]
pub struct ModelStore {
    state: Arc<Mutex<State>>,
    clock: Arc<Clock>,
}

impl ModelStore {
    /// An empty store that takes values of up to `value_max` bytes and reads the time from `clock`.
    pub fn new(clock: Arc<Clock>, value_max: usize) -> Self {
        Self { state: Arc::new(Mutex::new(State::new(value_max))), clock }
    }

    /// The state as of now: a flush whose moment has come has happened.
    fn settled(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.settle(self.clock.now());
        state
    }
}

/// What the suite needs beyond a store's interface: to take back one key's past.
impl ModelStore {
    /// All that lies under a key, dead or alive.
    pub(crate) fn remember(&self, key: &[u8]) -> Option<ModelItem> {
        self.settled().remember(key)
    }

    /// Puts back what lay under a key, or nothing.
    pub(crate) fn restore(&self, key: &[u8], item: Option<ModelItem>) {
        self.settled().restore(key, item);
    }
}

/// Shows a hit to its visitor, or says what kind of miss it was.
fn answer(found: Result<crate::Item, Missing>, visitor: &mut impl Visit) -> Step<Lookup> {
    Step::done(match found {
        Ok(item) => {
            visitor.item(&ItemRef { meta: item.meta, value: Value::whole(&item.value) });
            Lookup::Visited
        }
        Err(missing) => Lookup::Miss { expired: missing == Missing::Expired },
    })
}

impl Store for ModelStore {
    fn seed(&self) -> KeyHash {
        KeyHash::seeded(0)
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        let found = self.settled().get(key.bytes, request);
        answer(found, visitor)
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        Step::done(self.settled().set(key.bytes, value, request))
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        Step::done(self.settled().delete(key.bytes, request))
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        Step::done(self.settled().arithmetic(key.bytes, request))
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        let found = self.settled().peek(key.bytes);
        answer(found, visitor)
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.settled().flush(delay);
        Step::done(())
    }

    /// Shows live items in the order their keys came in. `position` is the next to show; `level` is where the walk ends,
    /// fixed by its first batch so that a walk among steady writes comes to an end.
    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let state = self.settled();
        if cursor.level == 0 {
            cursor.level = state.next_serial();
        }
        let batch = state.batch(cursor.position, cursor.level, WALK_BATCH);
        drop(state);
        let Some(last) = batch.last() else { return Walking::End };
        cursor.position = last.serial + 1;
        for entry in &batch {
            show(&entry.walked());
        }
        Walking::More
    }

    fn stats(&self) -> StoreStats {
        self.settled().stats()
    }

    /// Refuses: the model's memory has no limit.
    fn resize(&self, _limit: u64) -> bool {
        false
    }

    /// Takes no note of the observer: nothing ever leaves the model by itself.
    fn observe(&self, _observer: Option<Arc<dyn Observer>>) {}
}

impl Tier for ModelStore {
    fn install(&self, key: &Key<'_>, item: &ItemRef<'_>, how: Install) -> Step<Written> {
        let item = Item { meta: item.meta, value: item.value.to_vec() };
        Step::done(self.settled().install(key.bytes, item, how))
    }

    fn next_cas(&self, _key: &Key<'_>) -> u64 {
        self.settled().new_cas(None)
    }
}
