//! The suite of all stores with restarts and kills in its sequences: on the SSD alone, and with RAM above it.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use moneta_flash::{DeviceConfig, Durability, Flash, FlashConfig, Io};
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, Store};
use moneta_testkit::suite::{self, Options, Restarting, SuiteConfig};
use tempfile::TempDir;

/// More than a sequence ever writes, with what each restart leaves unused: nothing is emptied.
const AMPLE: u64 = 512 << 20;

/// A folder with a tier in it.
struct Folder {
    config: FlashConfig,
    clock: Arc<Clock>,
    _folder: TempDir,
}

impl Folder {
    fn new(clock: Arc<Clock>, change: impl FnOnce(&mut FlashConfig)) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.path().into(), bytes: AMPLE }]);
        config.io = Io::Threads;
        config.io_threads = 2;
        config.region_bytes = 2 << 20;
        config.flush_interval = Duration::from_millis(20);
        config.threads = 2;
        change(&mut config);
        Self { config, clock, _folder: folder }
    }

    fn open(&self) -> Flash {
        Flash::open(&self.config, Arc::clone(&self.clock)).expect("the tier opens")
    }
}

fn kill(flash: Flash) {
    let mut synced = flash.sync();
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match synced.as_mut().poll(&mut context) {
            Poll::Ready(ended) => break ended.expect("a sync"),
            Poll::Pending => std::thread::sleep(Duration::from_micros(200)),
        }
    }
    flash.crash();
}

/// The tier alone.
struct Alone(Folder);

impl Restarting for Alone {
    type Store = Flash;

    fn start(&mut self) -> Flash {
        self.0.open()
    }

    fn stop(&mut self, store: Flash) {
        store.close_all();
    }

    fn kill(&mut self, store: Flash) {
        kill(store);
    }
}

/// With little RAM above.
struct Below {
    folder: Folder,
    suite: SuiteConfig,
    lower: Option<Flash>,
}

impl Restarting for Below {
    type Store = Tiered<Memory, Flash>;

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
            versioning: Versioning { counts_from: lower.counts().then_some(1 << 52), ..self.folder.config.versioning },
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
        kill(self.lower.take().expect("it was started"));
        drop(store);
    }
}

/// When an item was read is not kept over a restart.
fn options(options: Options) -> Options {
    options.last_access_slack(u32::MAX).fetched_slack().operations(1500)
}

#[test]
fn the_tier_comes_back_as_it_was() {
    let make = |_: SuiteConfig, clock| Alone(Folder::new(clock, |_| {}));
    suite::run_restarting(make, options(Options::exact()).rounds(8));
}

fn lone(config: &mut FlashConfig) {
    config.versioning.counts_from = Some(0);
}

#[test]
fn counted_cas_values_come_back_and_never_again() {
    let make = |_: SuiteConfig, clock| Alone(Folder::new(clock, lone));
    suite::run_restarting(make, options(Options::exact()).counted().rounds(5));
    let small = SuiteConfig { memory: 4 << 20, value_max: 64 << 10 };
    let make = |suite: SuiteConfig, clock| Below { folder: Folder::new(clock, lone), suite, lower: None };
    suite::run_restarting(make, options(Options::exact()).counted().config(small).keys(1000).rounds(3));
}

#[test]
fn a_tier_that_writes_at_once_comes_back_as_it_was() {
    let durable = |config: &mut FlashConfig| config.durability = Durability::EveryWrite;
    let make = |_: SuiteConfig, clock| Alone(Folder::new(clock, durable));
    suite::run_restarting(make, options(Options::exact()).rounds(2).operations(300));
}

#[test]
fn what_was_evicted_does_not_come_back() {
    let short = |config: &mut FlashConfig| {
        config.devices[0].bytes = 16 << 20;
        config.region_bytes = 512 << 10;
        config.item_max = 64 << 10;
        config.carry_percent = 20;
    };
    let make = |_: SuiteConfig, clock| Alone(Folder::new(clock, short));
    suite::run_restarting(make, options(Options::lossy()).operations(5000).rounds(5));
}

#[test]
fn both_tiers_come_back_as_they_were() {
    let small = SuiteConfig { memory: 4 << 20, value_max: 64 << 10 };
    let make = |suite: SuiteConfig, clock| Below { folder: Folder::new(clock, |_| {}), suite, lower: None };
    suite::run_restarting(make, options(Options::exact()).config(small).keys(1000).rounds(6));
}
