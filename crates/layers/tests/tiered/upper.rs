//! An upper tier that waits or fails: clients do not learn of its failures, its waits hold up only those who need it, and
//! what only the lower tier could have is never mistaken for a miss.

use std::sync::Arc;

use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_store::request::{Exptime, Retrieve, WriteMode};
use moneta_store::{Calls, Clock, Cursor, Deleted, ErrorKind, Step, Walked, Walking, Written};
use moneta_testkit::doubles::Layer;
use moneta_testkit::model::ModelStore;

use crate::scripted::{AskedTier, Mode, START, Scripted, VALUE_MAX, get_on, key, set_on};

struct Pair {
    upper: Layer<Scripted>,
    lower: Layer<Scripted>,
    store: Tiered<Layer<Scripted>, Layer<Scripted>>,
}

fn pair() -> Pair {
    let clock = Arc::new(Clock::manual(START));
    let model = || Scripted::new(ModelStore::new(Arc::clone(&clock), VALUE_MAX));
    let (upper, lower) = (model(), model());
    let config = TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: VALUE_MAX, cluster: false };
    let store = Tiered::new(upper.clone(), lower.clone(), config, clock);
    Pair { upper, lower, store }
}

impl Pair {
    fn get(&self, name: &str) -> AskedTier<Option<String>> {
        get_on(&self.store, name, &Retrieve::default())
    }

    fn set(&self, name: &str, value: &str) -> AskedTier<Written> {
        set_on(&self.store, name, value)
    }

    fn delete(&self, name: &str) -> AskedTier<Deleted> {
        AskedTier::new(self.store.delete(&key(name), &Default::default()))
    }

    fn above(&self, name: &str) -> Option<String> {
        get_on(&self.upper.inner, name, &Retrieve::default()).done()
    }

    fn below(&self, name: &str) -> Option<String> {
        get_on(&self.lower.inner, name, &Retrieve::default()).done()
    }

    fn evict(&self, name: &str) {
        let _ = self.upper.inner.delete(&key(name), &Default::default());
    }
}

#[test]
fn a_failing_upper_tier_fails_no_request_and_is_counted() {
    let pair = pair();
    pair.set("k", "1").done();
    pair.upper.set_mode(Mode::Failing(ErrorKind::Timeout));
    assert_eq!(pair.get("k").done().as_deref(), Some("1"));
    assert!(matches!(pair.set("k", "2").done(), Written::Stored { .. }));
    assert_eq!(pair.below("k").as_deref(), Some("2"));
    let touch = Retrieve { touch: Some(Exptime(100)), ..Retrieve::default() };
    assert_eq!(get_on(&pair.store, "k", &touch).done().as_deref(), Some("2"));
    let append = moneta_store::request::Write { mode: WriteMode::Append, ..Default::default() };
    let appended = pair.store.set(&key("k"), b"3", &append).now().unwrap();
    assert!(matches!(appended, Written::Stored { .. }));
    assert_eq!(pair.get("k").done().as_deref(), Some("23"));
    assert_eq!(pair.delete("k").done(), Deleted::Deleted);
    assert_eq!(pair.get("k").done(), None);
    assert!(pair.store.numbers().upper_failures >= 10);
}

#[test]
fn what_is_above_is_served_while_the_lower_tier_fails_and_the_rest_is_no_miss() {
    let pair = pair();
    pair.set("hot", "1").done();
    pair.set("cold", "1").done();
    pair.evict("cold");
    pair.lower.set_mode(Mode::Failing(ErrorKind::Unreachable));
    pair.upper.set_mode(Mode::Parked);
    let (hot, cold) = (pair.get("hot").waits(), pair.get("cold").waits());
    pair.upper.set_mode(Mode::Open);
    assert_eq!(hot.done().as_deref(), Some("1"));
    assert_eq!(cold.failed(), ErrorKind::Unreachable);
    assert_eq!(pair.set("hot", "2").failed(), ErrorKind::Unreachable);
    assert_eq!(pair.above("hot"), None, "whether it is stored is unknown");
}

#[test]
fn every_answer_waits_for_the_tier_it_comes_from_and_a_write_for_both() {
    let pair = pair();
    pair.upper.set_mode(Mode::Parked);
    let writer = pair.set("k", "1").waits();
    assert_eq!(pair.below("k").as_deref(), Some("1"), "the lower one comes first");
    pair.upper.set_mode(Mode::Open);
    writer.done();
    pair.lower.set_mode(Mode::Parked);
    let writer = pair.set("k", "2").waits();
    assert_eq!(pair.above("k").as_deref(), Some("1"), "the upper one waits for it");
    pair.lower.set_mode(Mode::Open);
    writer.done();
    assert_eq!(pair.above("k").as_deref(), Some("2"));
    pair.upper.set_mode(Mode::Parked);
    let (reader, deleter) = (pair.get("k").waits(), pair.delete("k").waits());
    let flusher = AskedTier::new(pair.store.flush(Exptime(0))).waits();
    pair.upper.set_mode(Mode::Open);
    assert_eq!(reader.done().as_deref(), Some("2"));
    assert_eq!(deleter.done(), Deleted::Deleted);
    flusher.done();
}

#[test]
fn a_promotion_that_waits_has_the_key_to_itself() {
    let pair = pair();
    pair.set("k", "old").done();
    pair.evict("k");
    pair.lower.set_mode(Mode::Parked);
    pair.upper.set_mode(Mode::Late);
    let mut reader = pair.get("k").waits();
    pair.upper.set_mode(Mode::Parked);
    assert!(reader.poll().is_none(), "it waits for the lower tier");
    pair.lower.set_mode(Mode::Open);
    assert!(reader.poll().is_none(), "it waits for its promotion");
    let writer = pair.set("k", "new").waits();
    assert_eq!(pair.below("k").as_deref(), Some("old"), "the writer waits for the reader");
    pair.upper.set_mode(Mode::Open);
    let writer = writer.waits();
    assert_eq!(reader.done().as_deref(), Some("old"));
    writer.done();
    assert_eq!((pair.above("k").as_deref(), pair.below("k").as_deref()), (Some("new"), Some("new")));
    assert_eq!(pair.store.numbers().promotions, 1);
}

#[test]
fn a_reader_that_leaves_during_its_promotion_blocks_no_other() {
    let pair = pair();
    pair.set("k", "old").done();
    pair.evict("k");
    pair.upper.set_mode(Mode::Late);
    let mut reader = pair.get("k").waits();
    pair.upper.set_mode(Mode::Parked);
    assert!(reader.poll().is_none(), "it waits for its promotion");
    drop(reader);
    pair.upper.set_mode(Mode::Open);
    pair.set("k", "new").done();
    assert_eq!(pair.get("k").done().as_deref(), Some("new"));
}

#[test]
fn both_tiers_are_asked_how_they_are() {
    let pair = pair();
    assert!(!pair.store.health().unready);
    pair.lower.set_mode(Mode::Failing(ErrorKind::Timeout));
    let health = pair.store.health();
    assert!(health.unready && health.notes.len() == 1, "{health:?}");
    pair.lower.set_mode(Mode::Open);
    // The lower tier answers everything: the node is slower, and ready.
    pair.upper.set_mode(Mode::Failing(ErrorKind::Timeout));
    let health = pair.store.health();
    assert!(!health.unready && health.notes.len() == 2, "{health:?}");
    pair.set("k", "1").done();
    assert_eq!(pair.get("k").done().as_deref(), Some("1"));
}

#[test]
fn a_walk_does_without_an_upper_tier_that_fails_and_not_without_the_lower_one() {
    let pair = pair();
    pair.set("k", "1").done();
    let walk = || {
        let (mut cursor, mut shown) = (Cursor::default(), 0);
        loop {
            match pair.store.walk(&mut cursor, &mut |_: &Walked<'_>| shown += 1) {
                Walking::More => {}
                Walking::End => return Ok(shown),
                Walking::Wait(pending) => {
                    if let Some(Err(error)) = AskedTier::new(Step::Wait(pending)).poll() {
                        return Err(error.kind());
                    }
                }
            }
        }
    };
    pair.upper.set_mode(Mode::Failing(ErrorKind::Unreachable));
    assert_eq!(walk(), Ok(1));
    pair.upper.set_mode(Mode::Open);
    pair.lower.set_mode(Mode::Failing(ErrorKind::Unreachable));
    assert_eq!(walk(), Err(ErrorKind::Unreachable));
}
