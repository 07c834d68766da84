//! The suite of all stores on this one: random operations on it and on the model, side by side.

mod common;

use common::tier;
use moneta_flash::{Durability, FlashConfig};
use moneta_testkit::suite::{self, Options};

/// More than a sequence ever writes: nothing is emptied.
const AMPLE: u64 = 2 << 30;

#[test]
fn does_what_the_model_does() {
    suite::run(|_, clock| tier(AMPLE, clock, |_| {}), options(Options::exact().rounds(10)));
}

#[test]
fn does_what_the_model_does_where_cas_values_are_counted() {
    let lone = |config: &mut FlashConfig| config.versioning.counts_from = Some(0);
    suite::run(|_, clock| tier(AMPLE, clock, lone), options(Options::exact().rounds(5)).counted());
}

#[test]
fn does_what_the_model_does_when_every_write_is_durable() {
    let durable = |config: &mut moneta_flash::FlashConfig| config.durability = Durability::EveryWrite;
    suite::run(|_, clock| tier(AMPLE, clock, durable), options(Options::exact().rounds(2).operations(300)));
}

#[test]
fn forgets_but_does_not_err_when_room_is_short() {
    let small = |config: &mut moneta_flash::FlashConfig| {
        config.region_bytes = 512 << 10;
        config.item_max = 64 << 10;
        config.carry_percent = 20;
    };
    suite::run(|_, clock| tier(12 << 20, clock, small), options(Options::lossy()));
}

#[test]
fn keeps_its_promises_among_threads() {
    suite::concurrent(|_, clock| tier(AMPLE, clock, |_| {}), 4, suite::seed());
}

#[test]
fn the_newest_write_wins_in_any_order_of_arrival() {
    let make = |_, versioning, clock| tier(AMPLE, clock, move |config| config.versioning = versioning);
    suite::versions(make, suite::seed());
}

/// When an item was read last is not written down.
fn options(options: Options) -> Options {
    options.last_access_slack(u32::MAX)
}
