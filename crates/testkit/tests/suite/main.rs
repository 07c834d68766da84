//! The suite itself, tested: it passes what is right, and finds what is wrong.
//!
//! Guards against a suite that agrees with everything. Each fault here is one that an engine has had, or could have.

mod faulty;
mod waiting;

use std::sync::Arc;

use faulty::{Fault, Faulty};
use moneta_store::Clock;
use moneta_testkit::model::ModelStore;
use moneta_testkit::suite::{self, Failure, Options, SuiteConfig};
use waiting::Waiting;

fn model(config: SuiteConfig, clock: Arc<Clock>) -> ModelStore {
    ModelStore::new(clock, config.value_max)
}

/// Sequences within which a fault has to be found.
const SEEDS: u64 = 20;

/// The first difference that a store with a fault shows.
fn first_failure(fault: Fault, options: Options) -> Option<Failure> {
    let make = |config: SuiteConfig, clock: Arc<Clock>| Faulty::new(model(config, Arc::clone(&clock)), clock, fault);
    (0..SEEDS).find_map(|seed| suite::find_failure(make, |_| unreachable!("it never waits"), options, seed))
}

/// That a fault is found in exact mode, and shrunk to at most `operations`.
#[track_caller]
fn is_found(fault: Fault, operations: usize) {
    let failure = first_failure(fault, Options::exact()).unwrap_or_else(|| panic!("{fault:?} was not found"));
    assert!(failure.operations.len() <= operations, "{fault:?} was not shrunk to {operations} operations: {failure}");
}

#[test]
fn the_model_passes() {
    suite::run(model, Options::exact());
    suite::run(model, Options::exact().keys_per_hash(3).rounds(5));
}

#[test]
fn the_model_passes_where_it_might_forget() {
    suite::run(model, Options::lossy().rounds(3));
}

#[test]
fn a_store_that_waits_passes_with_its_waker_or_its_loop() {
    suite::run(|config, clock| Waiting::waking(model(config, clock)), Options::exact().rounds(5));
    let polled = |config, clock| Waiting::polled(model(config, clock));
    suite::run_polled(polled, |store| store.turn(), Options::exact().rounds(5));
}

#[test]
fn a_store_that_evicts_passes_only_where_it_may() {
    let evicting = |config, clock: Arc<Clock>| Faulty::new(model(config, Arc::clone(&clock)), clock, Fault::Evicts);
    suite::run(evicting, Options::lossy().rounds(3));
    is_found(Fault::Evicts, 20);
}

#[test]
fn an_older_value_is_found() {
    is_found(Fault::ShowsOlderValue, 40);
}

#[test]
fn a_forgotten_delete_is_found() {
    is_found(Fault::ForgetsDelete, 8);
}

#[test]
fn a_second_too_long_is_found() {
    is_found(Fault::LivesASecondTooLong, 3);
}

#[test]
fn the_appender_s_flags_are_found() {
    is_found(Fault::AppendTakesNewFlags, 2);
}

#[test]
fn a_touch_that_changes_the_cas_value_is_found() {
    is_found(Fault::TouchChangesCas, 2);
}

#[test]
fn an_overwrite_that_keeps_the_cas_value_is_found() {
    is_found(Fault::KeepsCas, 2);
}

#[test]
fn an_item_left_out_of_a_walk_is_found() {
    is_found(Fault::WalkLeavesOut, 60);
}

#[test]
fn an_item_shown_twice_in_a_walk_is_found() {
    is_found(Fault::WalkShowsTwice, 60);
}

#[test]
fn a_flush_that_spares_later_items_is_found() {
    is_found(Fault::DelayedFlushSparesLaterItems, 4);
}

#[test]
fn a_token_given_twice_is_found() {
    is_found(Fault::EverybodyWins, 5);
}

#[test]
fn an_unpadded_number_is_found() {
    is_found(Fault::NumbersShrink, 3);
}

#[test]
fn a_swapped_value_is_found() {
    is_found(Fault::MixesUpHashes, 4);
}

#[test]
fn a_gauge_that_counts_overwrites_is_found() {
    is_found(Fault::CountsOverwrites, 4);
}

#[test]
fn memory_over_the_limit_is_found() {
    is_found(Fault::OverItsLimit, 1);
}

#[test]
fn reports_of_removals_that_did_not_happen_are_found() {
    is_found(Fault::ReportsEvictions, 2);
    is_found(Fault::ReportsExpiries, 2);
}

#[test]
fn a_store_that_keeps_nothing_is_found_in_either_mode() {
    is_found(Fault::KeepsNothing, 1);
    assert!(first_failure(Fault::KeepsNothing, Options::lossy()).is_some());
}

#[test]
fn a_panic_is_found() {
    let failure = first_failure(Fault::Panics, Options::exact()).expect("it panics");
    assert!(failure.reason.contains("on purpose"), "{failure}");
}

#[test]
fn an_evicted_item_that_comes_back_is_found_in_lossy_mode() {
    let failure = first_failure(Fault::Resurrects, Options::lossy()).expect("the resurrection was not found");
    assert!(failure.operations.len() <= 40, "{failure}");
}

#[test]
fn a_failure_prints_its_operations_and_its_seed() {
    let failure = first_failure(Fault::LivesASecondTooLong, Options::exact()).expect("a failure");
    let text = failure.to_string();
    assert!(text.contains(&format!("MONETA_SEED={}", failure.seed)), "{text}");
    assert!(text.contains("   1. ") && text.contains("expected"), "{text}");
}

#[test]
fn the_model_keeps_its_promises_to_several_threads() {
    suite::concurrent(model, 4, 1);
}

#[test]
fn several_threads_find_lost_updates() {
    for fault in [Fault::LosesCounts, Fault::LosesSwaps, Fault::LosesAppends, Fault::AddsTwice] {
        let make = |config, clock: Arc<Clock>| Faulty::new(model(config, Arc::clone(&clock)), clock, fault);
        let broken = (0..10).any(|seed| std::panic::catch_unwind(|| suite::concurrent(make, 4, seed)).is_err());
        assert!(broken, "{fault:?} was not found");
    }
}
