//! The engine on the least library, beside the model. Guards against an engine that loses, tears or brings back items by
//! itself, whatever the library.

mod common;

use std::sync::Arc;

use common::{Rig, Shelf, ShelfConfig};
use moneta_embedded::Embedded;
use moneta_store::Clock;
use moneta_testkit::suite::{self, Options, Restarting, SuiteConfig};

fn options(options: Options) -> Options {
    options.last_access_slack(u32::MAX).fetched_slack()
}

#[test]
fn comes_back_as_it_was() {
    let ample = |suite: SuiteConfig, clock| Rig::new(suite, clock, usize::MAX);
    suite::run_restarting(ample, options(Options::exact()).rounds(8).operations(1500));
}

#[test]
fn makes_room_and_does_not_err() {
    let short = |suite: SuiteConfig, clock| Rig::new(suite, clock, 100);
    suite::run_restarting(short, options(Options::lossy()).rounds(4).operations(3000));
}

#[test]
fn the_newest_write_wins_in_any_order_of_arrival() {
    let rigs = std::cell::RefCell::new(Vec::new());
    let make = |suite: SuiteConfig, versioning, clock: Arc<Clock>| {
        let mut rig = Rig::new(suite, clock, usize::MAX);
        rig.config.versioning = versioning;
        let store = rig.start();
        rigs.borrow_mut().push(rig);
        store
    };
    suite::versions(make, suite::seed());
}

#[test]
fn threads_neither_lose_nor_tear() {
    let rig = Rig::new(SuiteConfig { memory: 0, value_max: 0 }, Arc::new(Clock::manual(0)), usize::MAX);
    let make = |suite: SuiteConfig, clock| {
        let config = ShelfConfig { item_max: suite.value_max, ..rig.config.clone() };
        Embedded::<Shelf>::open(&config, clock).expect("the folder opens")
    };
    suite::concurrent(make, 4, 7);
}
