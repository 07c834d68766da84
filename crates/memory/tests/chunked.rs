//! The memory engine under a layer that cuts items into entries, as a memcached lies under it: short of memory, and as the
//! upper of two tiers. An item is many entries, of which any may be evicted.

use std::sync::Arc;

use moneta_layers::{Chunked, ChunkedConfig, Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_store::versions::Versioning;
use moneta_store::{Clock, KeyHash};
use moneta_testkit::suite::{self, Options, SuiteConfig};

fn memory(limit: u64, item_max: usize, clock: &Arc<Clock>) -> Memory {
    let config = MemoryConfig {
        limit,
        item_max,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: KeyHash::seeded(0),
        versioning: Default::default(),
    };
    Memory::new(&config, Arc::clone(clock)).expect("the suite's limits are possible")
}

fn chunked(limit: u64, cut: ChunkedConfig, clock: &Arc<Clock>) -> Chunked<Memory> {
    let entry_max = cut.whole_max.max(cut.piece_bytes as usize) + 64;
    Chunked::new(memory(limit, entry_max, clock), cut, Arc::clone(clock))
}

/// What a read was is not written down.
fn loose(options: Options) -> Options {
    options.last_access_slack(u32::MAX).fetched_slack().counts_parts()
}

/// Pieces go one by one: most long values are broken at some time, and none is ever shown torn.
#[test]
fn forgets_but_never_errs_when_memory_is_short() {
    for (piece_bytes, whole_max) in [(3000, 2000), (21 << 10, 21 << 10)] {
        let cut = ChunkedConfig { piece_bytes, whole_max, item_max: 64 << 10 };
        let make = |config: SuiteConfig, clock: Arc<Clock>| chunked(config.memory, cut, &clock);
        suite::run(make, loose(Options::lossy()).rounds(3));
    }
}

#[test]
fn counts_cas_values_where_they_are_no_versions() {
    let cut = ChunkedConfig { piece_bytes: 3000, whole_max: 2000, item_max: 64 << 10 };
    let versioning = Versioning { counts_from: Some(0), ..Versioning::default() };
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        Chunked::versioned(memory(config.memory, cut.item_max, &clock), cut, &versioning, clock)
    };
    suite::run(make, loose(Options::lossy()).counted().rounds(2));
}

/// Deletes and flushes of several copies, too.
#[test]
fn the_newest_write_wins_below_it() {
    let make = |config: SuiteConfig, versioning, clock: Arc<Clock>| {
        let cut = ChunkedConfig { piece_bytes: 3000, whole_max: 2000, item_max: config.value_max };
        let upper = chunked(64 << 20, cut, &clock);
        let lower = MemoryConfig {
            limit: config.memory,
            item_max: config.value_max,
            evict: true,
            threads: 1,
            shards: Some(1),
            seed: KeyHash::seeded(0),
            versioning,
        };
        let lower = Memory::new(&lower, Arc::clone(&clock)).expect("the suite's limits are possible");
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
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let cut = ChunkedConfig { piece_bytes: 3000, whole_max: 2000, item_max: config.value_max };
        let tiers = (chunked(4 << 20, cut, &clock), memory(256 << 20, config.value_max, &clock));
        let config = TieredConfig {
            promotion: Promotion::Always,
            write_budget: None,
            item_max: config.value_max,
            cluster: false,
        };
        Tiered::new(tiers.0, tiers.1, config, clock)
    };
    let config = SuiteConfig { memory: 256 << 20, value_max: 64 << 10 };
    suite::run(make, loose(Options::exact()).config(config).operations(4000).keys(1000).rounds(4));
    for seed in 0..2 {
        suite::concurrent(make, 4, seed);
    }
}
