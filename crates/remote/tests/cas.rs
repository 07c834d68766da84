//! CAS values over a memcached that gives an item a new one whenever it is written, also where only its expiry changes.

mod common;

use std::sync::Arc;

use common::{Memcached, SEED, config, finish};
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::{Memory, MemoryConfig};
use moneta_remote::Remote;
use moneta_store::request::{Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, ItemRef, Key, Lookup, Written};

#[test]
fn a_read_that_changes_something_tells_the_cas_value_that_the_item_has_then() {
    let memcached = Memcached::start(&[]);
    let clock = Arc::new(Clock::system());
    let ram = MemoryConfig {
        limit: 64 << 20,
        item_max: 1 << 20,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: SEED,
        versioning: Default::default(),
    };
    let upper = Memory::new(&ram, Arc::clone(&clock)).unwrap();
    let lower = Remote::new(config(memcached.path()), Arc::clone(&clock)).unwrap();
    let between = TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: 1 << 20, cluster: false };
    let store = Tiered::new(upper, lower, between, clock);
    let key = Key::new(b"key", SEED);
    finish(store.set(&key, b"one", &Write::default())).unwrap();
    let touch = Retrieve { touch: Some(Exptime(100)), ..Retrieve::default() };
    let claim = Retrieve { recache: Some(Exptime(1000)), claim: true, ..Retrieve::default() };
    for request in [touch, claim] {
        let Lookup::Found(item) = finish(store.get(&key, &request, &mut |_: &ItemRef<'_>| ())).unwrap() else {
            panic!("not found")
        };
        let compare = Write { compare: Some(item.meta.cas), exptime: Exptime(100), ..Write::default() };
        let written = finish(store.set(&key, b"two", &compare)).unwrap();
        assert!(matches!(written, Written::Stored { .. }), "{request:?}: {written:?}");
    }
}
