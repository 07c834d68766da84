//! The suite of all stores on this one, with restarts and kills: random operations on it and on the model, side by side.

mod common;

use std::sync::Arc;

use common::{AMPLE, Folder, SHORT};
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_lmdb::{Durability, Lmdb};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::{Calls, Clock, Store};
use moneta_testkit::suite::{self, Options, Restarting, SuiteConfig};

/// Reads are not written down.
fn options(options: Options) -> Options {
    options.last_access_slack(u32::MAX).fetched_slack().operations(1200)
}

#[test]
fn comes_back_as_it_was() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| Folder::new(suite, clock, AMPLE, |_| {});
    suite::run_restarting(make, options(Options::exact()).rounds(6));
}

#[test]
fn comes_back_as_it_was_when_every_write_is_synced() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| {
        Folder::new(suite, clock, AMPLE, |config| config.durability = Durability::EveryWrite)
    };
    suite::run_restarting(make, options(Options::exact()).rounds(1).operations(300));
}

#[test]
fn counted_cas_values_come_back_and_never_again() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| {
        Folder::new(suite, clock, AMPLE, |config| config.versioning.counts_from = Some(0))
    };
    suite::run_restarting(make, options(Options::exact()).counted().rounds(3));
}

#[test]
fn what_was_evicted_does_not_come_back() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| Folder::new(suite, clock, SHORT, |_| {});
    suite::run_restarting(make, options(Options::lossy()).operations(4000).rounds(4));
}

#[test]
fn the_newest_write_wins_in_any_order_of_arrival() {
    let folders = std::cell::RefCell::new(Vec::new());
    let make = |suite: SuiteConfig, versioning, clock: Arc<Clock>| {
        let folder = Folder::new(suite, clock, AMPLE, |config| config.versioning = versioning);
        let store = folder.open();
        folders.borrow_mut().push(folder);
        store
    };
    suite::versions(make, suite::seed());
}

#[test]
fn threads_neither_lose_nor_tear() {
    let folder = tempfile::tempdir().expect("a folder");
    let make = |_: SuiteConfig, clock| Lmdb::open(&common::config(&folder, AMPLE), clock).expect("the folder opens");
    suite::concurrent(make, 4, suite::seed());
}

/// With little RAM above.
struct Below {
    folder: Folder,
    suite: SuiteConfig,
    lower: Option<Lmdb>,
}

impl Restarting for Below {
    type Store = Tiered<Memory, Lmdb>;

    fn start(&mut self) -> Self::Store {
        let lower = self.lower.insert(self.folder.open()).clone();
        let clock = &self.folder.clock;
        let memory = MemoryConfig {
            limit: self.suite.memory,
            item_max: self.suite.value_max,
            evict: true,
            threads: 1,
            shards: Some(1),
            seed: lower.seed(),
            versioning: Default::default(),
        };
        let upper = Memory::new(&memory, Arc::clone(clock)).expect("the suite's limits are possible");
        let item_max = self.suite.value_max;
        let config = TieredConfig {
            promotion: Promotion::Always,
            write_budget: None,
            item_max,
            cluster: self.folder.config.versioning.cluster,
        };
        Tiered::new(upper, lower, config, Arc::clone(clock))
    }

    fn stop(&mut self, store: Self::Store) {
        store.close_all();
        self.lower = None;
    }

    fn kill(&mut self, store: Self::Store) {
        self.lower.take().expect("it was started").crash();
        drop(store);
    }
}

#[test]
fn the_newest_write_wins_below_ram_too() {
    let below = std::cell::RefCell::new(Vec::new());
    let make = |suite: SuiteConfig, versioning, clock: Arc<Clock>| {
        let folder = Folder::new(suite, clock, AMPLE, |config| config.versioning = versioning);
        let mut below_ram = Below { folder, suite: SuiteConfig { memory: 8 << 20, ..suite }, lower: None };
        let store = below_ram.start();
        below.borrow_mut().push(below_ram);
        store
    };
    suite::versions(make, suite::seed());
}

#[test]
fn nothing_shows_of_ram_above_it() {
    let small = SuiteConfig { memory: 4 << 20, value_max: 64 << 10 };
    let make = |suite: SuiteConfig, clock: Arc<Clock>| {
        let folder = Folder::new(suite, Arc::clone(&clock), AMPLE, |_| {});
        Below { folder, suite, lower: None }
    };
    suite::run_restarting(make, options(Options::exact()).config(small).keys(1000).rounds(3));
}
