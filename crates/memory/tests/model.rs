//! The store suite on the memory engine: every answer equal to the plain map's with ample memory, nothing ever wrong with
//! too little of it, and nothing lost or torn between threads.

use std::sync::Arc;

use moneta_memory::{Memory, MemoryConfig};
use moneta_store::versions::Versioning;
use moneta_store::{Clock, KeyHash};
use moneta_testkit::suite::{self, Options, SuiteConfig};

fn memory(config: SuiteConfig, clock: Arc<Clock>, shards: usize) -> Memory {
    versioned(config, Versioning::default(), clock, shards)
}

fn versioned(config: SuiteConfig, versioning: Versioning, clock: Arc<Clock>, shards: usize) -> Memory {
    let config = MemoryConfig {
        limit: config.memory,
        item_max: config.value_max,
        evict: true,
        threads: 1,
        shards: Some(shards),
        seed: KeyHash::seeded(0),
        versioning,
    };
    Memory::new(&config, clock).expect("the suite's limits are possible")
}

#[test]
fn equals_the_model_with_ample_memory() {
    suite::run(|config, clock| memory(config, clock, 4), Options::exact());
}

#[test]
fn tells_keys_of_one_hash_apart() {
    suite::run(|config, clock| memory(config, clock, 1), Options::exact().keys_per_hash(3).rounds(10));
}

#[test]
fn forgets_but_never_errs_when_memory_is_short() {
    suite::run(|config, clock| memory(config, clock, 1), Options::lossy());
}

/// Found by the test above: a read with touch and vivify, whose item went to make room for its touch, missed.
#[test]
fn a_read_that_drives_its_own_item_out_creates_it_where_that_is_asked() {
    let make = |config, clock| memory(config, clock, 1);
    let failure =
        suite::find_failure(make, |_| unreachable!("RAM never waits"), Options::lossy(), 7_581_172_789_060_246_780);
    assert!(failure.is_none(), "{}", failure.expect("there is one").reason);
}

/// A large item that `decr` wrote, without an expiry, kept none when it was touched.
#[test]
fn a_touch_of_a_large_number_is_kept() {
    let make = |config, clock| memory(config, clock, 1);
    let options = Options::exact().keys_per_hash(3);
    let failure = suite::find_failure(make, |_| unreachable!("RAM never waits"), options, 4_174_647_775_981_224_815);
    assert!(failure.is_none(), "{}", failure.expect("there is one").reason);
}

#[test]
fn forgets_but_never_errs_with_values_of_many_segments() {
    let config = SuiteConfig { memory: 8 << 20, value_max: 1 << 20 };
    suite::run(|config, clock| memory(config, clock, 1), Options::lossy().config(config).rounds(10));
}

#[test]
fn threads_neither_lose_nor_tear() {
    suite::concurrent(|config, clock| memory(config, clock, 2), 4, 1);
}

#[test]
fn the_newest_write_wins_in_any_order_of_arrival() {
    suite::versions(|config, versioning, clock| versioned(config, versioning, clock, 1), suite::seed());
    suite::versions(|config, versioning, clock| versioned(config, versioning, clock, 4), suite::seed());
}
