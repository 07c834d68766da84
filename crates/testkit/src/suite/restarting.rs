//! Stores that end in the middle of a sequence and come back with what they kept.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use moneta_store::component::{self, Component, Flush, Health, Observe, Observer, Parts, Report, Resize, Walk};
use moneta_store::request::Exptime;
use moneta_store::versions::{Floor, Floors};
use moneta_store::{
    Calls, Clock, Cursor, Cx, Key, KeyHash, Op, Reactors, ReadSeveral, Step, Store, Version, Visit, Walked, Walking,
};

use super::options::{Options, SuiteConfig};
use super::running::run_with;

/// What keeps what a store has when the store itself ends.
pub trait Restarting: Send {
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
        Held { rig: Mutex::new(rig), store: RwLock::new(store) }
    };
    let options = Options { restarts: true, ..options };
    run_with(make, |_| std::thread::park(), Held::restart, options);
}

/// A store that another one can take the place of.
struct Held<R: Restarting> {
    rig: Mutex<R>,
    store: RwLock<Option<R::Store>>,
}

impl<R: Restarting> Held<R> {
    fn restart(&self, kill: bool) {
        let mut rig = self.rig.lock().unwrap_or_else(PoisonError::into_inner);
        let mut store = self.store.write().unwrap_or_else(PoisonError::into_inner);
        let ended = store.take().expect("it was started");
        if kill {
            rig.kill(ended);
        } else {
            rig.stop(ended);
        }
        *store = Some(rig.start());
    }

    fn with<T>(&self, ask: impl FnOnce(&R::Store) -> T) -> T {
        ask(self.store.read().unwrap_or_else(PoisonError::into_inner).as_ref().expect("it was started"))
    }
}

impl<R: Restarting> Store for Held<R> {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, out: &mut dyn Visit) -> Step {
        self.with(|store| store.call(cx, key, op, out))
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        None
    }

    fn announce(&self, keys: &[Key<'_>]) {
        self.with(|store| store.announce(keys));
    }

    fn seed(&self) -> KeyHash {
        self.with(Store::seed)
    }
}

impl<R: Restarting> Component for Held<R> {
    fn parts(&self) -> Parts<'_> {
        Parts {
            below: Vec::new(),
            walk: Some(self),
            flush: Some(self),
            resize: Some(self),
            observe: Some(self),
            feed: None,
        }
    }

    fn attach(&self, worker: &mut Reactors) {
        self.with(|store| component::attach(store, worker));
    }

    fn report(&self, cx: &Cx, _: Vec<Report>) -> Report {
        self.with(|store| component::report(store, cx))
    }

    fn health(&self, _: Vec<Health>) -> Health {
        self.with(|store| component::health(store))
    }

    fn close(&self) {
        self.with(|store| component::close(store));
    }
}

impl<R: Restarting> Walk for Held<R> {
    fn walk(&self, _: &Cx, cursor: &mut Cursor, show: &mut dyn FnMut(&Walked<'_>)) -> Walking {
        self.with(|store| Calls::walk(store, cursor, show))
    }
}

impl<R: Restarting> Flush for Held<R> {
    fn flush(&self, cx: &Cx, delay: Exptime) -> Step<()> {
        self.with(|store| component::flush(store, cx, delay))
    }

    fn pending(&self) -> Option<u32> {
        self.with(|store| store.parts().flush.and_then(Flush::pending))
    }

    fn floor(&self, cx: &Cx, floor: Floor) -> Step<()> {
        self.with(|store| component::floor(store, cx, floor))
    }

    fn floors(&self) -> Floors {
        self.with(Calls::floors)
    }

    fn newest(&self, cx: &Cx) -> Step<Version> {
        self.with(|store| component::newest(store, cx))
    }

    fn lag(&self) -> u32 {
        self.with(|store| store.parts().flush.map_or(0, Flush::lag))
    }
}

impl<R: Restarting> Resize for Held<R> {
    fn fits(&self, limit: u64) -> bool {
        self.with(|store| store.parts().resize.is_some_and(|part| part.fits(limit)))
    }

    fn resize(&self, limit: u64) -> bool {
        self.with(|store| Calls::resize(store, limit))
    }
}

impl<R: Restarting> Observe for Held<R> {
    fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        self.with(|store| Calls::observe(store, observer));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::ModelStore;

    /// The model, which may forget everything when it is killed.
    struct Rig {
        kept: Option<ModelStore>,
        make: Box<dyn Fn() -> ModelStore + Send>,
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
