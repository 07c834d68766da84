//! The executable specification: a plain map that does all a [`Store`] can be asked for, slowly and plainly.
//!
//! Every engine and every stack of layers is compared with it (see the `suite` module), so here an obvious line is worth
//! more than a fast one. What it does follows memcached 1.6.45; `tests/meta_semantics/` holds the truth table.

mod state;

use std::sync::Arc;

use moneta_store::request::Exptime;
use moneta_store::{Item, ItemRef, Key, KeyHash, Lookup, Value, Version};

use moneta_store::component::{self, Component, Flush, Health, Parts, Report};
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Clock, Cursor, Cx, Op, Outcome, Put, Reactors, ReadSeveral, Step, Store, StoreError, Visit, Walked, Walking,
};
use parking_lot::{Mutex, MutexGuard};
use state::{Missing, ModelItem, ModelState};

/// Items a batch of a walk shows: few, so that walks and changes interleave even in small tests.
const WALK_BATCH: usize = 16;

/// A store of unlimited memory in a locked map. Clones are handles on the same map.
///
/// An item that expires stays in the map, unreadable, until something is stored under its key or a flush takes it: so
/// [`Lookup::Miss`] says `expired` for as long as a store could possibly know.
#[derive(Clone, Debug)]
pub struct ModelStore {
    state: Arc<Mutex<ModelState>>,
    clock: Arc<Clock>,
}

impl ModelStore {
    /// An empty store that takes values of up to `value_max` bytes and reads the time from `clock`.
    pub fn new(clock: Arc<Clock>, value_max: usize) -> Self {
        Self { state: Arc::new(Mutex::new(ModelState::new(value_max))), clock }
    }

    /// The state as of now: a flush whose moment has come has happened.
    fn settled(&self) -> MutexGuard<'_, ModelState> {
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
fn answer(found: Result<moneta_store::Item, Missing>, visitor: &mut dyn Visit) -> Step {
    Step::ended(match found {
        Ok(item) => {
            visitor.item(&ItemRef { meta: item.meta, value: Value::whole(&item.value) });
            Lookup::Visited
        }
        Err(missing) => Lookup::Miss { expired: missing == Missing::Expired },
    })
}

impl Store for ModelStore {
    fn call(&self, _: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        let mut state = self.settled();
        let key = key.bytes;
        match op {
            Op::Read(request) => {
                let found = state.get(key, request);
                drop(state);
                answer(found, out)
            }
            Op::Peek => {
                let found = state.peek(key);
                drop(state);
                answer(found, out)
            }
            Op::Write(value, request) => Step::ended(state.set(key, value, request)),
            Op::Delete(request) => Step::ended(state.delete(key, request)),
            Op::Arithmetic(request) => Step::ended(state.arithmetic(key, request)),
            // What versions order has another model: [`crate::suite::versions`].
            Op::Put(_, Put::Newer { .. }) | Op::Bury(_) => Step::Done(Err(StoreError::no_versions())),
            Op::Put(item, how) => {
                let item = Item::copy(item);
                Step::ended(state.install(key, item, how))
            }
            Op::Drop => {
                state.delete(key, &Default::default());
                Step::Done(Ok(Outcome::Done))
            }
            Op::Holds => Step::Done(Ok(Outcome::Held(state.peek(key).is_ok()))),
            Op::NoteHit => Step::Done(Ok(Outcome::Done)),
            Op::BuriedAs => Step::Done(Ok(Outcome::Cas(0))),
            Op::NextCas => Step::Done(Ok(Outcome::Cas(state.new_cas(None)))),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        KeyHash::seeded(0)
    }
}

impl Component for ModelStore {
    /// The model's memory has no limit, and nothing leaves it by itself.
    fn parts(&self) -> Parts<'_> {
        Parts { below: Vec::new(), walk: Some(self), flush: Some(self), resize: None, observe: None, feed: None }
    }

    fn attach(&self, _: &mut Reactors) {}

    fn report(&self, _: &Cx, _: Vec<Report>) -> Report {
        Report { stats: self.settled().stats(), ..Report::default() }
    }

    fn health(&self, _: Vec<Health>) -> Health {
        Health::default()
    }

    fn close(&self) {}
}

impl Flush for ModelStore {
    fn flush(&self, _: &Cx, delay: Exptime) -> Step<()> {
        self.settled().flush(delay);
        Step::done(())
    }

    fn pending(&self) -> Option<u32> {
        None
    }

    fn floor(&self, _: &Cx, _: Floor) -> Step<()> {
        Step::Done(Err(StoreError::no_versions()))
    }

    fn floors(&self) -> Floors {
        Floors::default()
    }

    fn newest(&self, _: &Cx) -> Step<Version> {
        Step::done(Version::ZERO)
    }

    fn lag(&self) -> u32 {
        0
    }
}

/// Where a walk stands.
struct WalkPlace {
    /// Serial number of the next item to show.
    next: u64,
    /// Where the walk ends, fixed by its first batch so that a walk among steady writes comes to an end.
    end: u64,
}

impl component::Walk for ModelStore {
    /// Shows live items in the order their keys came in.
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        let state = self.settled();
        let mut place = cursor.take().unwrap_or_else(|| Box::new(WalkPlace { next: 0, end: state.next_serial() }));
        let batch = state.batch(place.next, place.end, WALK_BATCH);
        drop(state);
        let Some(last) = batch.last() else { return Walking::End };
        place.next = last.serial + 1;
        cursor.keep(place);
        for entry in &batch {
            show(&entry.walked());
        }
        Walking::More
    }
}
