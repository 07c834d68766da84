//! What the policies, the budget and the counters promise.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_store::request::{Delete, Exptime, Retrieve};
use moneta_store::{Calls, Clock, Cursor, ItemRef, Policy, Store, Walked, Walking, Written};
use moneta_testkit::doubles::UnderPolicy;
use moneta_testkit::model::ModelStore;

use crate::leaky::Leaky;
use crate::scripted::{AskedTier, Pair, START, VALUE_MAX, get_on, key, set_on};
use crate::slow::Slow;

#[test]
fn both_policies_at_once_on_the_same_keys_neither_lose_nor_tear() {
    use moneta_testkit::suite::{self, Options, SuiteConfig};
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let model = || ModelStore::new(Arc::clone(&clock), config.value_max);
        let tiers = (Leaky::new(model(), 5), Slow::mixed(model()));
        let promotion = Promotion::Percent(50);
        let config = TieredConfig { promotion, write_budget: None, item_max: config.value_max, cluster: false };
        let either = || if fastrand::bool() { Policy::Online } else { Policy::Batch };
        UnderPolicy::new(Tiered::new(tiers.0, tiers.1, config, clock), either)
    };
    suite::run(make, Options::exact().rounds(8).last_access_slack(u32::MAX).fetched_slack());
    for seed in 0..3 {
        suite::concurrent(make, 4, seed);
    }
}

#[test]
fn a_bulk_load_replaces_what_is_hot_and_brings_up_nothing() {
    let pair = Pair::new();
    let batch = UnderPolicy::batch(pair.store.clone());
    pair.set("hot", "1").done();
    for name in ["hot", "cold"] {
        assert!(matches!(set_on(&batch, name, "2").done(), Written::Stored { .. }));
    }
    assert_eq!((pair.above("hot").as_deref(), pair.below("hot").as_deref()), (Some("2"), Some("2")));
    assert_eq!((pair.above("cold"), pair.below("cold").as_deref()), (None, Some("2")));
    assert_eq!(get_on(&batch, "cold", &Retrieve::default()).done().as_deref(), Some("2"));
    let touch = Retrieve { touch: Some(Exptime(100)), ..Retrieve::default() };
    assert_eq!(get_on(&batch, "cold", &touch).done().as_deref(), Some("2"));
    assert_eq!(pair.above("cold"), None, "neither a read nor a touch brings it up");
    assert_eq!(pair.get("cold").done().as_deref(), Some("2"));
    assert_eq!(pair.above("cold").as_deref(), Some("2"), "an online read does");
}

#[test]
fn a_second_hit_promotes_where_the_policy_says_so() {
    let pair = Pair::with(Promotion::SecondHit, None);
    pair.set("k", "1").done();
    pair.evict("k");
    for above in [None, Some("1")] {
        assert_eq!(pair.get("k").done().as_deref(), Some("1"));
        assert_eq!(pair.above("k").as_deref(), above);
    }
    let tiers = pair.store.numbers();
    assert_eq!((tiers.promotions, tiers.promotions_declined), (1, 1));
}

#[test]
fn the_lower_tiers_items_are_told_beside_the_upper_ones() {
    let pair = Pair::new();
    pair.set("a", "1").done();
    pair.set("b", "1").done();
    pair.evict("a");
    let stats = pair.store.stats();
    assert_eq!((stats.items, stats.together().items), (1, 2), "whatever engine the lower tier is");
    let items: Vec<String> = pair.store.metrics().iter().map(ToString::to_string).take(2).collect();
    assert_eq!(items, [r#"tier_items{tier="l1"} 1"#, r#"tier_items{tier="l2"} 2"#], "models do not say what they are");
}

#[test]
fn an_uncounted_read_promotes_an_item_without_marking_it_as_read() {
    let pair = Pair::new();
    pair.set("k", "1").done();
    pair.evict("k");
    let quiet = Retrieve { bump: false, ..Retrieve::default() };
    assert_eq!(pair.retrieve("k", &quiet).done().as_deref(), Some("1"));
    let mut fetched = None;
    let mut show = |item: &ItemRef<'_>| fetched = Some(item.meta.fetched);
    let _ = pair.upper.peek(&key("k"), &mut show);
    assert_eq!(fetched, Some(false));
}

#[test]
fn reads_are_counted_by_the_tier_that_answers_and_some_are_told_below() {
    let pair = Pair::new();
    pair.set("k", "1").done();
    for _ in 0..640 {
        pair.get("k").done();
    }
    let uncounted = Retrieve { bump: false, ..Retrieve::default() };
    for _ in 0..640 {
        pair.retrieve("k", &uncounted).done();
    }
    pair.evict("k");
    pair.get("k").done();
    pair.get("nothing").done();
    let tiers = pair.store.numbers();
    assert_eq!((tiers.upper_hits, tiers.lower_hits, tiers.misses), (1280, 1, 1));
    assert_eq!(pair.lower.noted.load(Ordering::Relaxed), 10, "one in 64 that count");
}

#[test]
fn what_the_budget_does_not_cover_stays_above_and_leaves_nothing_old_below() {
    // Enough for two items of 125 bytes with key and header, of which the second would have to leave three times as much.
    let pair = Pair::with(Promotion::Always, Some(300));
    let long = "v".repeat(100);
    pair.set("k", &long).done();
    assert_eq!(pair.below("k").as_deref(), Some(&long[..]));
    let Written::Stored { cas: first } = pair.set("k", "first").done() else { panic!("it is stored") };
    assert!(pair.below("k").is_some(), "the rest of the budget covers a short one");
    let Written::Stored { cas: second } = pair.set("k", &long.replace('v', "w")).done() else { panic!("it is stored") };
    assert!(second > first, "CAS values grow wherever the item is");
    assert_eq!((pair.above("k").map(|value| value.len()), pair.below("k")), (Some(100), None));
    pair.evict("k");
    assert_eq!(pair.get("k").done(), None, "it was nowhere else");
    pair.clock.advance(24 * 60 * 60);
    pair.set("k", &long).done();
    assert_eq!(pair.below("k").as_deref(), Some(&long[..]), "the next day has a new budget");
    assert_eq!(pair.store.numbers().writes_withheld, 1);
}

/// Else what is left goes to whatever comes first, and most of that is never asked for.
#[test]
fn what_is_left_of_the_budget_goes_to_what_comes_again_or_was_made_from_what_is_there() {
    let pair = Pair::with(Promotion::Always, Some(1000));
    let long = "v".repeat(276);
    // 301 bytes each: the second one finds 699.
    pair.set("a", &long).done();
    pair.set("b", &long).done();
    assert!(pair.below("a").is_some() && pair.below("b").is_none() && pair.above("b").is_some());
    pair.set("b", &long).done();
    assert!(pair.below("b").is_some(), "it was withheld before");
    pair.append("a", "1").done();
    assert_eq!(pair.below("a").map(|value| value.len()), Some(277), "it was there");
    assert_eq!(pair.store.numbers().writes_withheld, 1);
}

#[test]
fn a_bulk_load_over_the_budget_replaces_what_is_hot_and_nothing_else() {
    let pair = Pair::with(Promotion::Always, Some(0));
    let batch = UnderPolicy::batch(pair.store.clone());
    pair.set("hot", "1").done();
    for name in ["hot", "cold"] {
        assert!(matches!(set_on(&batch, name, "2").done(), Written::Stored { .. }));
    }
    assert_eq!((pair.above("hot").as_deref(), pair.above("cold")), (Some("2"), None));
    assert_eq!((pair.below("hot"), pair.below("cold")), (None, None));
}

pub fn walked(store: &impl Store) -> Vec<String> {
    let (mut cursor, mut names) = (Cursor::default(), Vec::new());
    let mut show = |item: &Walked<'_>| names.push(String::from_utf8(item.key.to_vec()).expect("text"));
    while matches!(store.walk(&mut cursor, &mut show), Walking::More) {}
    names
}

#[test]
fn a_walk_shows_what_either_tier_has_once() {
    let pair = Pair::new();
    for name in ["both", "below", "above"] {
        pair.set(name, "1").done();
    }
    pair.evict("below");
    let _ = pair.lower.inner.delete(&key("above"), &Delete::default());
    let names = walked(&pair.store);
    assert_eq!(names.len(), 3, "{names:?}");
    assert_eq!(names.iter().map(String::as_str).collect::<BTreeSet<_>>(), ["above", "below", "both"].into());
}

#[test]
fn a_budget_leaves_no_moment_in_which_a_key_is_in_neither_tier() {
    // A withheld write takes the key out of the lower tier before it is above: readers must not see the gap.
    let clock = Arc::new(Clock::manual(START));
    let model = || ModelStore::new(Arc::clone(&clock), VALUE_MAX);
    let upper = model();
    let config =
        TieredConfig { promotion: Promotion::Always, write_budget: Some(1000), item_max: VALUE_MAX, cluster: false };
    let store = Tiered::new(upper.clone(), Slow::mixed(model()), config, Arc::clone(&clock));
    let withheld = "v".repeat(2000);
    finish(set_on(&store, "k", "first"));
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..3000 {
                clock.advance(24 * 60 * 60);
                finish(set_on(&store, "k", "covered"));
                let _ = upper.delete(&key("k"), &Delete::default());
                finish(set_on(&store, "k", &withheld));
            }
        });
        while !writer.is_finished() {
            let found = finish(get_on(&store, "k", &Retrieve::default()));
            assert!(found.is_some(), "the key is always there");
        }
    });
    assert_eq!(store.numbers().writes_withheld, 3000);
}

/// Polls until it is done; among threads, the others get their turn.
pub fn finish<T>(mut asked: AskedTier<T>) -> T {
    loop {
        match asked.poll() {
            Some(outcome) => return outcome.expect("nothing fails"),
            None => std::thread::yield_now(),
        }
    }
}
