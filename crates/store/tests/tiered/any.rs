//! Tiers whose kind is known at run time only: nothing gets lost on the way through the pointer.

use std::sync::Arc;

use moneta_store::model::ModelStore;
use moneta_store::suite::{self, Options, SuiteConfig};
use moneta_store::{Any, Clock, Promotion, Store, Tier, Tiered, TieredConfig};

use crate::leaky::Leaky;
use crate::scripted::{Mode, START, Scripted, VALUE_MAX, get_on, key, set_on};
use crate::slow::Slow;

fn model(config: SuiteConfig, clock: &Arc<Clock>) -> ModelStore {
    ModelStore::new(Arc::clone(clock), config.value_max)
}

#[test]
fn a_tier_of_any_kind_equals_the_model() {
    suite::run(|config, clock| Any::new(model(config, &clock)), Options::exact().rounds(5));
    suite::run(|config, clock| Any::new(Slow::mixed(model(config, &clock))), Options::exact().rounds(5));
}

#[test]
fn two_tiers_of_any_kind_equal_the_model() {
    let options = Options::exact().last_access_slack(u32::MAX).fetched_slack().rounds(5);
    let uppers: [fn(ModelStore) -> Any; 2] =
        [|model| Any::new(Leaky::new(model, 5)), |model| Any::new(Slow::mixed(model))];
    for upper in uppers {
        let make = |config: SuiteConfig, clock: Arc<Clock>| {
            let tiers = (upper(model(config, &clock)), Any::new(Slow::mixed(model(config, &clock))));
            let config = TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: config.value_max };
            Tiered::new(tiers.0, tiers.1, config, clock)
        };
        suite::run(make, options);
        suite::concurrent(make, 4, 1);
    }
}

#[test]
fn what_has_a_default_is_passed_on_too() {
    let clock = Arc::new(Clock::manual(START));
    let scripted = Scripted::remembering_flush(ModelStore::new(Arc::clone(&clock), VALUE_MAX), START + 10);
    let any = Any::new(scripted.clone());
    assert_eq!(any.pending_flush(), Some(START + 10));
    assert_eq!(Any::new(Scripted::lagging(scripted.inner.clone(), 3)).flush_lag(), 3);
    assert!(any.next_cas(&key("k")) > 0);
    any.note_hit(&key("k"));
    assert_eq!(scripted.noted.load(std::sync::atomic::Ordering::Relaxed), 1);
    set_on(&any, "k", "1").done();
    assert!(any.holds(&key("k")));
    any.forget(&key("k"));
    assert!(!any.holds(&key("k")));
    assert_eq!(get_on(&scripted, "k", &Default::default()).done(), None);
    scripted.set_mode(Mode::Parked);
    assert!(any.health().unready);
}
