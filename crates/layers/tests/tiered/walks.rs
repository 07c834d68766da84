//! Walks of two tiers while keys move from one to the other.
//!
//! Guards against a key that lives all the time and that neither part of a walk shows: it was above while the lower tier's end
//! was fixed, and below when the upper one was looked through.

use std::collections::BTreeSet;
use std::sync::Arc;

use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_store::request::{Delete, Write};
use moneta_store::{Calls, Clock, Cursor, ErrorKind, Store, StoreError, Walked, Walking, Written};
use moneta_testkit::model::ModelStore;

use crate::policies::finish;
use crate::scripted::{AskedTier, Mode, Pair, START, VALUE_MAX, key, set_on};
use crate::slow::Slow;

const DAY: u32 = 24 * 60 * 60;

/// A walk, batch by batch.
#[derive(Default)]
struct Steps {
    cursor: Cursor,
    shown: BTreeSet<String>,
}

impl Steps {
    /// The next batch; false when that was the last.
    fn step(&mut self, store: &impl Store) -> Result<bool, StoreError> {
        let mut show = |item: &Walked<'_>| {
            self.shown.insert(String::from_utf8(item.key.to_vec()).expect("text"));
        };
        match store.walk(&mut self.cursor, &mut show) {
            Walking::More => Ok(true),
            Walking::End => Ok(false),
            Walking::Wait(pending) => {
                let mut waited = AskedTier::new(moneta_store::Step::Wait(pending));
                loop {
                    match waited.poll() {
                        Some(ended) => break ended.map(|()| true),
                        None => std::thread::yield_now(),
                    }
                }
            }
        }
    }

    fn finish(mut self, store: &impl Store) -> BTreeSet<String> {
        while self.step(store).expect("nothing fails") {}
        self.shown
    }

    /// After so many batches, if there are as many.
    fn after(mut self, store: &impl Store, batches: usize) -> Option<Self> {
        for _ in 0..batches {
            if !self.step(store).expect("nothing fails") {
                return None;
            }
        }
        Some(self)
    }
}

/// Some keys that both tiers have, and one that only the upper one has.
fn pair(write_budget: Option<u64>) -> Pair {
    let pair = Pair::with(Promotion::Always, write_budget);
    (0..70).for_each(|number| {
        pair.set(&format!("both {number}"), "1").done();
    });
    pair.set("moves", "1").done();
    drop_below(&pair, "moves");
    pair
}

/// The lower tier makes room.
fn drop_below(pair: &Pair, name: &str) {
    let _ = pair.lower.inner.delete(&key(name), &Delete::default());
}

#[test]
fn a_key_that_moves_down_at_any_moment_of_a_walk_is_shown() {
    for wait in [false, true] {
        for batches in 1.. {
            let pair = pair(None);
            let Some(walk) = Steps::default().after(&pair.store, batches) else { break };
            pair.set("moves", "2").done();
            // What is above now leaves room for what is not wanted below.
            pair.evict("moves");
            if wait {
                pair.lower.set_mode(Mode::Parked);
            }
            let mut walk = walk;
            let more = walk.step_or_wait(&pair);
            pair.lower.set_mode(Mode::Open);
            let shown = if more { walk.finish(&pair.store) } else { walk.shown };
            assert_eq!(shown.len(), 71, "moved after {batches} batches: {:?}", shown.contains("moves"));
        }
    }
}

impl Steps {
    /// The next batch, over a lower tier that waits until this one is begun.
    fn step_or_wait(&mut self, pair: &Pair) -> bool {
        let mut show = |item: &Walked<'_>| {
            self.shown.insert(String::from_utf8(item.key.to_vec()).expect("text"));
        };
        match pair.store.walk(&mut self.cursor, &mut show) {
            Walking::More => true,
            Walking::End => false,
            Walking::Wait(pending) => {
                let waited = AskedTier::new(moneta_store::Step::Wait(pending)).waits();
                pair.lower.set_mode(Mode::Open);
                waited.done();
                true
            }
        }
    }
}

#[test]
fn a_key_that_moves_up_and_down_again_is_shown() {
    // Enough for what the pair holds, and not for a long value.
    let long = "v".repeat(5000);
    for up in 1.. {
        let mut ended = false;
        for down in up.. {
            let pair = pair(Some(4000));
            pair.clock.advance(DAY);
            pair.set("moves", "2").done();
            assert!(pair.below("moves").is_some(), "the test is wrong");
            let Some(mut walk) = Steps::default().after(&pair.store, up) else {
                ended = down == up;
                break;
            };
            pair.set("moves", &long).done();
            assert!(pair.below("moves").is_none(), "the test is wrong");
            if let Some(later) = walk.after(&pair.store, down - up) {
                walk = later;
            } else {
                break;
            }
            pair.set("moves", "3").done();
            pair.evict("moves");
            let shown = walk.finish(&pair.store);
            assert_eq!(shown.len(), 71, "up after {up} batches and down after {down}");
        }
        if ended {
            break;
        }
    }
}

#[test]
fn a_walk_waits_for_a_change_that_began_before_it() {
    let pair = pair(None);
    pair.lower.set_mode(Mode::Parked);
    let mut change = pair.set("moves", "2").waits();
    let mut walk = Steps::default();
    let Walking::Wait(pending) = pair.store.walk(&mut walk.cursor, &mut |_: &Walked<'_>| ()) else {
        panic!("the walk begins before the change has ended")
    };
    let waited = AskedTier::new(moneta_store::Step::Wait(pending)).waits();
    pair.lower.set_mode(Mode::Open);
    assert!(change.poll().is_some());
    drop(change);
    waited.done();
    assert_eq!(walk.finish(&pair.store).len(), 71);
}

#[test]
fn a_walk_that_stands_still_while_too_much_moves_fails() {
    const KEYS: usize = (1 << 16) + 1;
    let pair = pair(None);
    let names: Vec<_> = (0..KEYS).map(|number| format!("above {number}")).collect();
    for name in &names {
        let stored = pair.upper.set(&key(name), b"1", &Write::default()).now();
        assert!(matches!(stored, Ok(Written::Stored { .. })));
    }
    let mut walk = Steps::default().after(&pair.store, 1).expect("there is more");
    for name in &names {
        pair.set(name, "2").done();
    }
    let failed = loop {
        match walk.step(&pair.store) {
            Ok(true) => {}
            Ok(false) => panic!("it ends well with {} of {} keys", walk.shown.len(), KEYS + 71),
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(failed, ErrorKind::OutOfMemory);
}

#[test]
fn a_key_that_moves_all_the_time_is_in_every_walk() {
    let clock = Arc::new(Clock::manual(START));
    let model = || ModelStore::new(Arc::clone(&clock), VALUE_MAX);
    let (upper, lower) = (model(), Slow::mixed(model()));
    let config =
        TieredConfig { promotion: Promotion::Always, write_budget: Some(1000), item_max: VALUE_MAX, cluster: false };
    let store = Tiered::new(upper.clone(), lower, config, Arc::clone(&clock));
    let withheld = "v".repeat(2000);
    finish(set_on(&store, "k", "first"));
    let mut walks = 0;
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for _ in 0..300 {
                // What a short value costs.
                clock.advance(DAY / 20);
                finish(set_on(&store, "k", "covered"));
                let _ = upper.delete(&key("k"), &Delete::default());
                finish(set_on(&store, "k", &withheld));
            }
        });
        while !writer.is_finished() {
            walks += 1;
            assert!(Steps::default().finish(&store).contains("k"), "walk {walks} does not show the key");
        }
    });
    assert!(walks > 0);
}
