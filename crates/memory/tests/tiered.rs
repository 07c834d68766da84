//! The memory engine as the upper of two tiers, with far too little room: evictions, moves and promotions all the time, and
//! nothing of it may show.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::Write;
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, Key, KeyHash};
use moneta_testkit::suite::{self, Options, SuiteConfig};

fn memory(limit: u64, item_max: usize, evict: bool, clock: &Arc<Clock>) -> Memory {
    versioned(limit, item_max, evict, Versioning::default(), clock)
}

fn versioned(limit: u64, item_max: usize, evict: bool, versioning: Versioning, clock: &Arc<Clock>) -> Memory {
    let config =
        MemoryConfig { limit, item_max, evict, threads: 1, shards: Some(1), seed: KeyHash::seeded(0), versioning };
    Memory::new(&config, Arc::clone(clock)).expect("the suite's limits are possible")
}

/// A memory engine of the suite's limit over one that is large enough for all there is.
fn tiered(config: SuiteConfig, clock: Arc<Clock>, evict: bool) -> Tiered<Memory, Memory> {
    let upper = memory(config.memory, config.value_max, evict, &clock);
    let lower = memory(256 << 20, config.value_max, true, &clock);
    let config =
        TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: config.value_max, cluster: false };
    Tiered::new(upper, lower, config, clock)
}

/// Small memory, but nothing may be lost.
fn options() -> Options {
    let config = SuiteConfig { memory: 4 << 20, value_max: 64 << 10 };
    Options::exact().config(config).operations(6000).keys(1000).last_access_slack(u32::MAX).fetched_slack()
}

#[test]
fn the_newest_write_wins_in_any_order_of_arrival() {
    let make = |config: SuiteConfig, versioning, clock: Arc<Clock>| {
        let upper = memory(8 << 20, config.value_max, true, &clock);
        let lower = versioned(config.memory, config.value_max, true, versioning, &clock);
        let tiers = TieredConfig {
            promotion: Promotion::Always,
            write_budget: None,
            item_max: config.value_max,
            cluster: true,
        };
        Tiered::new(upper, lower, tiers, clock)
    };
    suite::versions(make, suite::seed());
}

#[test]
fn nothing_shows_of_evictions_above() {
    suite::run(|config, clock| tiered(config, clock, true), options().rounds(8));
}

#[test]
fn nothing_shows_of_large_values_that_do_not_fit_above() {
    let config = SuiteConfig { memory: 8 << 20, value_max: 1 << 20 };
    suite::run(|config, clock| tiered(config, clock, true), options().config(config).rounds(6));
}

#[test]
fn nothing_shows_of_writes_that_find_no_memory_above() {
    suite::run(|config, clock| tiered(config, clock, false), options().rounds(8));
}

#[test]
fn nothing_shows_of_values_longer_than_the_upper_tier_takes() {
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let upper = memory(8 << 20, 4 << 10, true, &clock);
        let lower = memory(config.memory, config.value_max, true, &clock);
        let config = TieredConfig {
            promotion: Promotion::Always,
            write_budget: None,
            item_max: config.value_max,
            cluster: false,
        };
        Tiered::new(upper, lower, config, clock)
    };
    suite::run(make, Options::exact().rounds(8).last_access_slack(u32::MAX).fetched_slack());
}

#[test]
fn threads_neither_lose_nor_tear_what_comes_and_goes_above() {
    for seed in 0..3 {
        let (handle, done) = (Mutex::new(None::<Tiered<Memory, Memory>>), AtomicBool::new(false));
        let make = |_: SuiteConfig, clock: Arc<Clock>| {
            let small = SuiteConfig { memory: MemoryConfig::limit_min(16 << 10), value_max: 16 << 10 };
            let store = tiered(small, clock, true);
            *handle.lock().unwrap() = Some(store.clone());
            store
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Others' items, which push those of the suite out.
                let mut number = 0;
                while !done.load(Ordering::Relaxed) {
                    let filler = format!("filler {}", number % 1000);
                    let key = Key::new(filler.as_bytes(), KeyHash::seeded(0));
                    if let Some(store) = handle.lock().unwrap().as_ref() {
                        // One that finds its lock taken leaves again.
                        drop(store.set(&key, &[b'f'; 16_000], &Write::default()));
                    }
                    number += 1;
                }
            });
            let ran = catch_unwind(AssertUnwindSafe(|| suite::concurrent(make, 4, seed)));
            done.store(true, Ordering::Relaxed);
            ran.unwrap_or_else(|panic| resume_unwind(panic));
        });
        let store = handle.lock().unwrap().take().expect("the suite made a store");
        assert!(store.stats().evictions > 0 && store.numbers().promotions > 0, "{:?}", store.stats());
    }
}
