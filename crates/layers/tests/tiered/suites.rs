//! The store suite on pairs of tiers: nothing may show that there are two.

use std::sync::Arc;

use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_store::{Clock, Store};
use moneta_testkit::doubles::UnderPolicy;
use moneta_testkit::model::ModelStore;
use moneta_testkit::suite::{self, Options, SuiteConfig};

use crate::leaky::Leaky;
use crate::slow::Slow;

/// Seconds by which a tier that was not told of a read may be behind: as many as a sequence has.
const ANY: u32 = u32::MAX;

fn model(config: SuiteConfig, clock: &Arc<Clock>) -> ModelStore {
    ModelStore::new(Arc::clone(clock), config.value_max)
}

/// For tiers of which the lower does not hear of every read.
fn options() -> Options {
    Options::exact().last_access_slack(ANY).fetched_slack()
}

fn tiered<U: Store + 'static, L: Store + 'static>(
    upper: U,
    lower: L,
    promotion: Promotion,
    config: SuiteConfig,
    clock: Arc<Clock>,
) -> Tiered<U, L> {
    let config = TieredConfig { promotion, write_budget: None, item_max: config.value_max, cluster: false };
    Tiered::new(upper, lower, config, clock)
}

#[test]
fn two_tiers_that_answer_at_once_equal_the_model() {
    let make = |config, clock: Arc<Clock>| {
        tiered(
            Leaky::tight(model(config, &clock)),
            Slow::never(model(config, &clock)),
            Promotion::Always,
            config,
            clock,
        )
    };
    suite::run(make, options());
    suite::run(make, options().keys_per_hash(3).rounds(5));
    suite::run(make, Options::lossy().rounds(3).last_access_slack(ANY).fetched_slack());
}

#[test]
fn a_lower_tier_that_always_waits_equals_the_model() {
    let make = |config, clock: Arc<Clock>| {
        tiered(
            Leaky::tight(model(config, &clock)),
            Slow::always(model(config, &clock)),
            Promotion::Always,
            config,
            clock,
        )
    };
    suite::run(make, options());
}

#[test]
fn an_upper_tier_that_forgets_cannot_be_told_from_one_that_does_not() {
    for promotion in [Promotion::Always, Promotion::SecondHit, Promotion::Percent(50), Promotion::Percent(0)] {
        let make = |config, clock: Arc<Clock>| {
            let upper = Leaky::new(model(config, &clock), 3);
            tiered(upper, Slow::mixed(model(config, &clock)), promotion, config, clock)
        };
        let options = options().rounds(8);
        suite::run(make, options);
        suite::run(make, options.keys_per_hash(3).rounds(3));
    }
}

#[test]
fn the_batch_policy_equals_the_model() {
    let make = |config, clock: Arc<Clock>| {
        let upper = Leaky::new(model(config, &clock), 3);
        UnderPolicy::batch(tiered(upper, Slow::mixed(model(config, &clock)), Promotion::Always, config, clock))
    };
    suite::run(make, options());
}

#[test]
fn an_upper_tier_too_small_for_some_values_never_keeps_an_older_one() {
    let make = |config, clock: Arc<Clock>| {
        let upper = Leaky::tight(ModelStore::new(Arc::clone(&clock), 1000));
        tiered(upper, Slow::mixed(model(config, &clock)), Promotion::Always, config, clock)
    };
    suite::run(make, options());
}

#[test]
fn a_spent_budget_changes_nothing_that_can_be_seen() {
    for budget in [0, 10_000, 1 << 20] {
        let make = |config: SuiteConfig, clock: Arc<Clock>| {
            let tiers = (Leaky::tight(model(config, &clock)), Slow::mixed(model(config, &clock)));
            let config = TieredConfig {
                promotion: Promotion::Always,
                write_budget: Some(budget),
                item_max: config.value_max,
                cluster: false,
            };
            Tiered::new(tiers.0, tiers.1, config, clock)
        };
        suite::run(make, options().rounds(8));
    }
}

#[test]
fn an_upper_tier_that_waits_equals_the_model() {
    for promotion in [Promotion::Always, Promotion::SecondHit] {
        let make = |config, clock: Arc<Clock>| {
            let upper = Slow::always(model(config, &clock));
            tiered(upper, Slow::mixed(model(config, &clock)), promotion, config, clock)
        };
        suite::run(make, options().rounds(6));
    }
    let make = |config, clock: Arc<Clock>| {
        let upper = Slow::mixed(ModelStore::new(Arc::clone(&clock), 1000));
        tiered(upper, Slow::mixed(model(config, &clock)), Promotion::Always, config, clock)
    };
    suite::run(make, options().rounds(6));
    suite::run(|config, clock| UnderPolicy::batch(make(config, clock)), options().rounds(4));
    suite::run(make, options().keys_per_hash(3).rounds(3));
}

#[test]
fn a_spent_budget_under_an_upper_tier_that_waits_changes_nothing_that_can_be_seen() {
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let tiers = (Slow::mixed(model(config, &clock)), Slow::mixed(model(config, &clock)));
        let config = TieredConfig {
            promotion: Promotion::Always,
            write_budget: Some(10_000),
            item_max: config.value_max,
            cluster: false,
        };
        Tiered::new(tiers.0, tiers.1, config, clock)
    };
    suite::run(make, options().rounds(6));
}

#[test]
fn threads_over_an_upper_tier_that_waits_neither_lose_nor_tear() {
    for seed in 0..2 {
        for upper in [Slow::always, Slow::mixed] {
            let make = |config: SuiteConfig, clock: Arc<Clock>| {
                let upper = upper(model(config, &clock));
                tiered(upper, Slow::mixed(model(config, &clock)), Promotion::Always, config, clock)
            };
            suite::concurrent(make, 4, seed);
        }
    }
}

#[test]
fn threads_neither_lose_nor_tear() {
    for seed in 0..3 {
        let make = |config: SuiteConfig, clock: Arc<Clock>| {
            let upper = Leaky::new(model(config, &clock), 5);
            tiered(upper, Slow::mixed(model(config, &clock)), Promotion::Always, config, clock)
        };
        suite::concurrent(make, 4, seed);
        let make = |config: SuiteConfig, clock: Arc<Clock>| {
            let tiers = (Leaky::tight(model(config, &clock)), Slow::mixed(model(config, &clock)));
            let config = TieredConfig {
                promotion: Promotion::Always,
                write_budget: Some(1 << 20),
                item_max: config.value_max,
                cluster: false,
            };
            Tiered::new(tiers.0, tiers.1, config, clock)
        };
        suite::concurrent(make, 4, seed);
    }
}
