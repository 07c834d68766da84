//! The suite of all stores on this one, with restarts and kills: random operations on it and on the model, side by side.

mod common;

use std::sync::Arc;

use common::{AMPLE, Folder, SHORT};
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_rocks::{Compaction, Compression, Filter, Log, Rocks};
use moneta_store::{Calls, Clock, Store};
use moneta_testkit::suite::{self, Options, Restarting, SuiteConfig};

/// Reads are not written down, and RocksDB estimates how many items it has.
fn options(options: Options) -> Options {
    options.last_access_slack(u32::MAX).fetched_slack().items_estimated().operations(1200)
}

#[test]
fn fifo_comes_back_as_it_was() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| Folder::new(suite, clock, AMPLE, |_| {});
    suite::run_restarting(make, options(Options::exact()).rounds(3));
}

#[test]
fn a_log_keeps_what_no_flush_has_written() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| {
        Logged(Folder::new(suite, clock, AMPLE, |config| {
            config.log = Log::On;
            config.filter = Filter::Ribbon(10.0);
            config.compression = Compression::Lz4;
        }))
    };
    suite::run_restarting(make, options(Options::exact()).rounds(3));
}

#[test]
fn level_and_universal_come_back_as_they_were() {
    for compaction in [Compaction::Level, Compaction::Universal] {
        let make = |suite: SuiteConfig, clock: Arc<Clock>| {
            Folder::new(suite, clock, AMPLE, |config| {
                config.compaction = compaction;
                config.write_buffer = Some(256 << 10);
                config.block_cache = 1 << 20;
            })
        };
        suite::run_restarting(make, options(Options::exact()).rounds(1));
    }
}

#[test]
fn what_fifo_let_go_does_not_come_back() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| Folder::new(suite, clock, SHORT, |_| {});
    suite::run_restarting(make, options(Options::lossy()).operations(4000).rounds(2));
}

#[test]
fn a_log_that_is_synced_keeps_every_write() {
    let make = |suite: SuiteConfig, clock: Arc<Clock>| {
        Logged(Folder::new(suite, clock, AMPLE, |config| config.log = Log::EveryWrite))
    };
    suite::run_restarting(make, options(Options::exact()).rounds(1).operations(300));
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
    let make = |_: SuiteConfig, clock| Rocks::open(&common::config(&folder, AMPLE), clock).expect("the folder opens");
    suite::concurrent(make, 4, suite::seed());
}

/// An engine with a log, which is killed without a sync before.
struct Logged(Folder);

impl Restarting for Logged {
    type Store = Rocks;

    fn start(&mut self) -> Rocks {
        self.0.open()
    }

    fn stop(&mut self, store: Rocks) {
        store.close_all();
    }

    fn kill(&mut self, store: Rocks) {
        store.crash();
    }
}

/// With little RAM above.
struct Below {
    folder: Folder,
    suite: SuiteConfig,
    lower: Option<Rocks>,
}

impl Restarting for Below {
    type Store = Tiered<Memory, Rocks>;

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
        let config = TieredConfig { promotion: Promotion::Always, write_budget: None, item_max, cluster: false };
        Tiered::new(upper, lower, config, Arc::clone(clock))
    }

    fn stop(&mut self, store: Self::Store) {
        store.close_all();
        self.lower = None;
    }

    fn kill(&mut self, store: Self::Store) {
        let lower = self.lower.take().expect("it was started");
        moneta_embedded::testing::wait(lower.sync()).expect("a sync");
        lower.crash();
        drop(store);
    }
}

#[test]
fn nothing_shows_of_ram_above_it() {
    let small = SuiteConfig { memory: 4 << 20, value_max: 64 << 10 };
    let make = |suite: SuiteConfig, clock: Arc<Clock>| {
        let folder = Folder::new(suite, Arc::clone(&clock), AMPLE, |_| {});
        Below { folder, suite, lower: None }
    };
    suite::run_restarting(make, options(Options::exact()).config(small).keys(1000).rounds(2));
}
