//! The store suite on the memory engine: every answer equal to the plain map's with ample memory, nothing ever wrong with
//! too little of it, and nothing lost or torn between threads.

use std::sync::Arc;

use moneta_memory::{Memory, MemoryConfig};
use moneta_store::request::{Delete, Write};
use moneta_store::versions::Versioning;
use moneta_store::{Calls, Clock, Deleted, Item, ItemRef, Key, KeyHash, Store, Written};
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

fn lone() -> Versioning {
    Versioning { counts_from: Some(0), ..Versioning::default() }
}

#[test]
fn equals_the_model_where_cas_values_are_counted() {
    suite::run(|config, clock| versioned(config, lone(), clock, 4), Options::exact().counted());
    suite::run(|config, clock| versioned(config, lone(), clock, 1), Options::lossy().counted().rounds(5));
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

/// The clock was set back by more than versions may be ahead: the node's own deletes are no other clock's.
#[test]
fn a_clock_that_is_set_back_refuses_no_delete_of_a_client() {
    let config = SuiteConfig { memory: 64 << 20, value_max: 1 << 10 };
    let versioning = Versioning { cluster: true, ..Versioning::default() };
    let clock = Arc::new(Clock::manual(1_700_000_000));
    let memory = versioned(config, versioning, Arc::clone(&clock), 1);
    let store = moneta_layers::feed::Feed::new(memory, 1 << 20, Arc::clone(&clock));
    let key = Key::new(b"key", store.seed());
    assert!(matches!(store.set(&key, b"value", &Write::default()).now(), Ok(Written::Stored { .. })));
    clock.set_millis(clock.millis() - 3000);
    assert_eq!(store.delete(&key, &Delete::default()).now().expect("it is taken"), Deleted::Deleted);
}

/// What a node gives up half way is gone there alone.
#[test]
fn a_drop_leaves_no_tombstone_among_copies() {
    let config = SuiteConfig { memory: 64 << 20, value_max: 1 << 10 };
    let versioning = Versioning { cluster: true, ..Versioning::default() };
    let store = versioned(config, versioning, Arc::new(Clock::manual(1_700_000_000)), 1);
    let key = Key::new(b"key", store.seed());
    assert!(matches!(store.set(&key, b"value", &Write::default()).now(), Ok(Written::Stored { .. })));
    let mut item = None;
    drop(store.peek(&key, &mut |shown: &ItemRef<'_>| item = Some(Item::copy(shown))));
    store.forget(&key);
    assert!(!store.holds(&key));
    let item = item.expect("it was there");
    let again = store.put_newer(&key, &item.as_ref(), 1_700_000_001_000).now();
    assert_eq!(again.expect("RAM answers"), Written::Stored { cas: item.meta.cas }, "another copy's is taken");
}
