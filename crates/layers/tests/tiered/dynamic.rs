//! Tiers whose kind is known at run time only: nothing gets lost on the way through the pointer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_store::{Calls, Clock, Store};
use moneta_testkit::model::ModelStore;
use moneta_testkit::suite::{self, Options, SuiteConfig};

use crate::leaky::Leaky;
use crate::scripted::{Mode, START, Scripted, VALUE_MAX, get_on, key, set_on};
use crate::slow::Slow;

fn model(config: SuiteConfig, clock: &Arc<Clock>) -> ModelStore {
    ModelStore::new(Arc::clone(clock), config.value_max)
}

#[test]
fn a_tier_of_any_kind_equals_the_model() {
    let kinds: [fn(ModelStore) -> Arc<dyn Store>; 2] = [|model| Arc::new(model), |model| Arc::new(Slow::mixed(model))];
    for kind in kinds {
        suite::run(|config, clock| kind(model(config, &clock)), Options::exact().rounds(5));
    }
}

#[test]
fn two_tiers_of_any_kind_equal_the_model() {
    let options = Options::exact().last_access_slack(u32::MAX).fetched_slack().rounds(5);
    let uppers: [fn(ModelStore) -> Arc<dyn Store>; 2] =
        [|model| Arc::new(Leaky::new(model, 5)), |model| Arc::new(Slow::mixed(model))];
    for upper in uppers {
        let make = |config: SuiteConfig, clock: Arc<Clock>| {
            let lower: Arc<dyn Store> = Arc::new(Slow::mixed(model(config, &clock)));
            let tiers = (upper(model(config, &clock)), lower);
            let config = TieredConfig {
                promotion: Promotion::Always,
                write_budget: None,
                item_max: config.value_max,
                cluster: false,
            };
            Tiered::new(tiers.0, tiers.1, config, clock)
        };
        suite::run(make, options);
        suite::concurrent(make, 4, 1);
    }
}

#[test]
fn a_pointer_passes_on_every_operation_and_part() {
    let clock = Arc::new(Clock::manual(START));
    let scripted = Scripted::remembering_flush(ModelStore::new(Arc::clone(&clock), VALUE_MAX), START + 10);
    let store: Arc<dyn Store> = Arc::new(scripted.clone());
    assert_eq!(store.parts().flush.and_then(|part| part.pending()), Some(START + 10));
    let lagging: Arc<dyn Store> = Arc::new(Scripted::lagging(scripted.inner.clone(), 3));
    assert_eq!(lagging.parts().flush.map(|part| part.lag()), Some(3));
    assert!(store.next_cas(&key("k")) > 0);
    store.note_hit(&key("k"));
    assert_eq!(scripted.noted.load(Ordering::Relaxed), 1);
    set_on(&store, "k", "1").done();
    assert!(store.holds(&key("k")));
    store.forget(&key("k"));
    assert!(!store.holds(&key("k")));
    assert_eq!(get_on(&scripted, "k", &Default::default()).done(), None);
    scripted.set_mode(Mode::Parked);
    assert!(store.health().unready);
}
