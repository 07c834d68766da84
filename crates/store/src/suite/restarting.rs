//! Stores that end in the middle of a sequence and come back with what they kept.

use std::cell::RefCell;
use std::sync::Arc;

use moneta_protocol::request::{Arithmetic, Delete, Exptime, Retrieve, Write};

use super::{Options, SuiteConfig, run_with};
use crate::key::Key;
use crate::key_hash::KeyHash;
use crate::outcome::{Deleted, Lookup, Number, Step, Written};
use crate::stats::StoreStats;
use crate::store::{Cursor, Observer, Store, Visit, Walked, Walking};
use crate::time::Clock;

/// What keeps what a store has when the store itself ends.
pub trait Restarting {
    /// The store.
    type Store: Store;

    /// Starts it: for the first time, or on what it left. Always under the same seed.
    fn start(&mut self) -> Self::Store;

    /// Ends it in good order.
    fn stop(&mut self, store: Self::Store);

    /// Waits until everything accepted so far is where it outlives a kill, and ends it as a kill does.
    fn kill(&mut self, store: Self::Store);
}

/// As [`super::run`], with [`super::Operation::Restart`] among the operations: the store has to come back with all that it
/// had but when items were read. It needs [`Options::last_access_slack`] and [`Options::fetched_slack`] if it does not keep
/// these either.
///
/// # Panics
/// As [`super::run`].
pub fn run_restarting<R: Restarting>(make: impl Fn(SuiteConfig, Arc<Clock>) -> R, options: Options) {
    let make = |config, clock| {
        let mut rig = make(config, clock);
        let store = Some(rig.start());
        Held { rig: RefCell::new(rig), store: RefCell::new(store) }
    };
    let options = Options { restarts: true, ..options };
    run_with(make, |_| std::thread::park(), Held::restart, options);
}

/// A store that another one can take the place of.
struct Held<R: Restarting> {
    rig: RefCell<R>,
    store: RefCell<Option<R::Store>>,
}

impl<R: Restarting> Held<R> {
    fn restart(&self, kill: bool) {
        let mut rig = self.rig.borrow_mut();
        let ended = self.store.borrow_mut().take().expect("it was started");
        if kill {
            rig.kill(ended);
        } else {
            rig.stop(ended);
        }
        *self.store.borrow_mut() = Some(rig.start());
    }

    fn with<T>(&self, ask: impl FnOnce(&R::Store) -> T) -> T {
        ask(self.store.borrow().as_ref().expect("it was started"))
    }
}

impl<R: Restarting> Store for Held<R> {
    fn seed(&self) -> KeyHash {
        self.with(Store::seed)
    }

    fn prefetch(&self, keys: &[Key<'_>]) {
        self.with(|store| store.prefetch(keys));
    }

    fn get(&self, key: &Key<'_>, request: &Retrieve, visitor: &mut impl Visit) -> Step<Lookup> {
        self.with(|store| store.get(key, request, visitor))
    }

    fn set(&self, key: &Key<'_>, value: &[u8], request: &Write) -> Step<Written> {
        self.with(|store| store.set(key, value, request))
    }

    fn delete(&self, key: &Key<'_>, request: &Delete) -> Step<Deleted> {
        self.with(|store| store.delete(key, request))
    }

    fn arithmetic(&self, key: &Key<'_>, request: &Arithmetic) -> Step<Number> {
        self.with(|store| store.arithmetic(key, request))
    }

    fn peek(&self, key: &Key<'_>, visitor: &mut impl Visit) -> Step<Lookup> {
        self.with(|store| store.peek(key, visitor))
    }

    fn flush(&self, delay: Exptime) -> Step<()> {
        self.with(|store| store.flush(delay))
    }

    fn walk(&self, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.with(|store| store.walk(cursor, show))
    }

    fn stats(&self) -> StoreStats {
        self.with(Store::stats)
    }

    fn resize(&self, limit: u64) -> bool {
        self.with(|store| store.resize(limit))
    }

    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.with(|store| store.observe(observer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelStore;

    /// The model, which may forget everything when it is killed.
    struct Rig {
        kept: Option<ModelStore>,
        make: Box<dyn Fn() -> ModelStore>,
        forgets: bool,
    }

    impl Rig {
        fn new(config: SuiteConfig, clock: Arc<Clock>, forgets: bool) -> Self {
            Self { kept: None, make: Box::new(move || ModelStore::new(Arc::clone(&clock), config.value_max)), forgets }
        }
    }

    impl Restarting for Rig {
        type Store = ModelStore;

        fn start(&mut self) -> ModelStore {
            self.kept.take().unwrap_or_else(&self.make)
        }

        fn stop(&mut self, store: ModelStore) {
            self.kept = Some(store);
        }

        fn kill(&mut self, store: ModelStore) {
            self.kept = Some(store).filter(|_| !self.forgets);
        }
    }

    #[test]
    fn a_store_that_comes_back_as_it_was_passes() {
        run_restarting(|config, clock| Rig::new(config, clock, false), Options::exact().rounds(3).operations(500));
    }

    #[test]
    #[should_panic(expected = "kill and start again")]
    fn a_store_that_comes_back_empty_is_found_and_the_sequence_shrunk() {
        run_restarting(|config, clock| Rig::new(config, clock, true), Options::exact().rounds(20).operations(500));
    }
}
