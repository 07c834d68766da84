//! The store suite on items cut small: nothing may show that they are.

use std::sync::Arc;

use moneta_layers::{Chunked, ChunkedConfig, Promotion, Tiered, TieredConfig};
use moneta_store::{Clock, Store};
use moneta_testkit::doubles::{Layer, UnderPolicy};
use moneta_testkit::model::ModelStore;
use moneta_testkit::suite::{self, Options, SuiteConfig};

use crate::leaky::Leaky;
use crate::slow::Slow;

/// What a read was is not written down.
fn options(value_max: usize) -> Options {
    let config = SuiteConfig { memory: 256 << 20, value_max };
    Options::exact().config(config).last_access_slack(u32::MAX).fetched_slack().counts_parts()
}

fn chunked<S: Store + 'static>(
    below: impl FnOnce(ModelStore) -> S,
    piece_bytes: u32,
    whole_max: usize,
    config: SuiteConfig,
    clock: &Arc<Clock>,
) -> Chunked<S> {
    // The longest entry is a piece's or a whole value's, and what is known of it.
    let entry_max = whole_max.max(piece_bytes as usize) + 64;
    let below = below(ModelStore::new(Arc::clone(clock), entry_max));
    Chunked::new(below, ChunkedConfig { piece_bytes, whole_max, item_max: config.value_max }, Arc::clone(clock))
}

#[test]
fn items_in_pieces_equal_the_model() {
    for (piece_bytes, whole_max, value_max) in
        [(1, 0, 60), (50, 10, 5000), (1000, 300, 100_000), (21 << 10, 21 << 10, 1 << 20)]
    {
        let make = |config, clock: Arc<Clock>| chunked(|below| below, piece_bytes, whole_max, config, &clock);
        suite::run(make, options(value_max).rounds(6));
    }
    let make = |config, clock: Arc<Clock>| chunked(|below| below, 100, 50, config, &clock);
    suite::run(make, options(5000).keys_per_hash(3).rounds(4));
}

#[test]
fn the_newest_write_wins_in_any_order_of_arrival() {
    let make = |config: SuiteConfig, versioning, clock: Arc<Clock>| {
        let below = ModelStore::new(Arc::clone(&clock), 4096);
        let cut = ChunkedConfig { piece_bytes: 1000, whole_max: 300, item_max: config.value_max };
        Chunked::versioned(below, cut, &versioning, clock)
    };
    suite::versions(make, suite::seed());
}

#[test]
fn items_in_pieces_over_a_store_that_waits_equal_the_model() {
    let make = |config, clock: Arc<Clock>| chunked(Slow::always, 100, 50, config, &clock);
    suite::run(make, options(5000).rounds(6));
    let make = |config, clock: Arc<Clock>| chunked(Slow::mixed, 1000, 0, config, &clock);
    suite::run(make, options(50_000).rounds(6));
}

#[test]
fn items_that_lose_pieces_are_gone_and_never_torn() {
    let make = |config, clock: Arc<Clock>| chunked(|below| Leaky::new(below, 400), 1000, 300, config, &clock);
    let config = SuiteConfig { memory: 256 << 20, value_max: 20_000 };
    let options = Options::lossy().config(config).last_access_slack(u32::MAX).fetched_slack().counts_parts();
    suite::run(make, options.operations(2000).rounds(6));
}

/// Cut so that few values are in pieces: those of overwritten values stay below, and the model is slow to walk.
#[test]
fn threads_neither_lose_nor_tear() {
    for seed in 0..2 {
        suite::concurrent(|config, clock| chunked(Slow::mixed, 2000, 2000, config, &clock), 4, seed);
        suite::concurrent(|config, clock| chunked(|below| below, 1000, 2500, config, &clock), 4, seed);
    }
}

/// As a node has it: an upper tier in pieces, which forgets, over one that has everything.
fn over<S: Store + 'static>(
    below: impl FnOnce(ModelStore) -> S,
    config: SuiteConfig,
    clock: Arc<Clock>,
) -> Tiered<Chunked<S>, Layer<Slow>> {
    let upper = chunked(below, 1500, 2000, config, &clock);
    let lower = Slow::mixed(ModelStore::new(Arc::clone(&clock), config.value_max));
    let config =
        TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: config.value_max, cluster: false };
    Tiered::new(upper, lower, config, clock)
}

#[test]
fn nothing_shows_of_an_upper_tier_in_pieces() {
    suite::run(|config, clock| over(Slow::mixed, config, clock), options(20_000).rounds(6));
    suite::run(|config, clock| over(|below| Leaky::new(below, 20), config, clock), options(20_000).rounds(6));
    suite::run(|config, clock| UnderPolicy::batch(over(Slow::mixed, config, clock)), options(20_000).rounds(4));
}

#[test]
fn threads_over_an_upper_tier_in_pieces_neither_lose_nor_tear() {
    for seed in 0..2 {
        suite::concurrent(|config, clock| over(Slow::mixed, config, clock), 4, seed);
        suite::concurrent(|config, clock| over(|below| Leaky::new(below, 20), config, clock), 4, seed);
    }
}
