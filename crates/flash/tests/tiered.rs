//! RAM over SSD as a node has them: the suite on both together, with far too little RAM, by either policy.

mod common;

use std::sync::Arc;

use common::tier;
use moneta_flash::Flash;
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::{Clock, Store};
use moneta_testkit::doubles::UnderPolicy;
use moneta_testkit::suite::{self, Options, SuiteConfig};

/// More than a sequence ever writes: nothing is emptied.
const AMPLE: u64 = 2 << 30;

/// A memory engine of the suite's limit over a tier that loses nothing.
fn tiered(config: SuiteConfig, clock: Arc<Clock>, promotion: Promotion) -> Tiered<Memory, Flash> {
    budgeted(config, clock, promotion, None)
}

/// The same with a budget of bytes a day for the lower tier.
fn budgeted(
    config: SuiteConfig,
    clock: Arc<Clock>,
    promotion: Promotion,
    write_budget: Option<u64>,
) -> Tiered<Memory, Flash> {
    let lower = tier(AMPLE, Arc::clone(&clock), |_| {});
    let memory = MemoryConfig {
        limit: config.memory,
        item_max: config.value_max,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: lower.seed(),
        versioning: Default::default(),
    };
    let upper = Memory::new(&memory, Arc::clone(&clock)).expect("the suite's limits are possible");
    let config = TieredConfig { promotion, write_budget, item_max: config.value_max, cluster: false };
    Tiered::new(upper, lower, config, clock)
}

/// Small memory, but nothing may be lost.
fn options() -> Options {
    let config = SuiteConfig { memory: 4 << 20, value_max: 64 << 10 };
    Options::exact().config(config).operations(4000).keys(1000).last_access_slack(u32::MAX).fetched_slack()
}

#[test]
fn nothing_shows_of_the_two_tiers() {
    for promotion in [Promotion::Always, Promotion::SecondHit] {
        suite::run(|config, clock| tiered(config, clock, promotion), options().rounds(4));
    }
}

#[test]
fn the_newest_write_wins_in_any_order_of_arrival() {
    let make = |config: SuiteConfig, versioning, clock: Arc<Clock>| {
        let lower = tier(AMPLE, Arc::clone(&clock), move |config| config.versioning = versioning);
        let memory = MemoryConfig {
            limit: 8 << 20,
            item_max: config.value_max,
            evict: true,
            threads: 1,
            shards: Some(1),
            seed: lower.seed(),
            versioning: Default::default(),
        };
        let upper = Memory::new(&memory, Arc::clone(&clock)).expect("the suite's limits are possible");
        let (promotion, item_max) = (Promotion::Always, config.value_max);
        Tiered::new(upper, lower, TieredConfig { promotion, write_budget: None, item_max, cluster: true }, clock)
    };
    suite::versions(make, suite::seed());
}

#[test]
fn nothing_shows_of_the_batch_policy() {
    suite::run(|config, clock| UnderPolicy::batch(tiered(config, clock, Promotion::Always)), options().rounds(4));
}

/// What is kept out of the SSD lies in RAM alone, and there must be room for it.
#[test]
fn nothing_shows_of_a_budget() {
    let ample = Options::exact().last_access_slack(u32::MAX).fetched_slack().rounds(4);
    suite::run(|config, clock| budgeted(config, clock, Promotion::Always, Some(1 << 20)), ample);
}

#[test]
fn threads_neither_lose_nor_tear() {
    for seed in 0..2 {
        let make = |_: SuiteConfig, clock: Arc<Clock>| {
            let small = SuiteConfig { memory: MemoryConfig::limit_min(16 << 10), value_max: 16 << 10 };
            tiered(small, clock, Promotion::Always)
        };
        suite::concurrent(make, 4, seed);
    }
}
