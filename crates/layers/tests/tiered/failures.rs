//! A lower tier that fails or is off: clients learn of it, nothing old is shown, and RAM goes on.

use moneta_store::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Calls, Deleted, ErrorKind, Number, Written};
use moneta_testkit::doubles::UnderPolicy;

use crate::scripted::{Mode, Pair, get_on, key, set_on};

const FAILED: Mode = Mode::Failing(ErrorKind::Device);
const OFF: Mode = Mode::Failing(ErrorKind::Unavailable);

#[test]
fn a_write_that_fails_below_leaves_nothing_old_above() {
    for change in ["set", "append", "delete"] {
        let pair = Pair::new();
        pair.set("k", "old").done();
        pair.lower.set_mode(FAILED);
        let kind = match change {
            "set" => pair.set("k", "new").failed(),
            "append" => pair.append("k", "new").failed(),
            _ => pair.delete("k").failed(),
        };
        assert_eq!(kind, ErrorKind::Device, "{change}");
        assert_eq!(pair.above("k"), None, "{change}");
        assert_eq!(pair.store.numbers().lower_failures, 1, "{change}");
    }
}

#[test]
fn a_touch_that_fails_below_leaves_above_what_was_there() {
    let touch = Retrieve { touch: Some(Exptime(50)), ..Retrieve::default() };
    let pair = Pair::new();
    pair.set("k", "value").done();
    pair.lower.set_mode(FAILED);
    assert_eq!(pair.retrieve("k", &touch).failed(), ErrorKind::Device);
    assert_eq!(pair.get("k").done().as_deref(), Some("value"));
    assert_eq!(pair.store.numbers().lower_failures, 1);
    pair.lower.set_mode(Mode::Open);
    pair.clock.advance(51);
    assert_eq!(pair.get("k").done().as_deref(), Some("value"), "what was refused is not done");
    assert_eq!(pair.retrieve("k", &touch).done().as_deref(), Some("value"));
    pair.clock.advance(51);
    assert_eq!(pair.get("k").done(), None);
}

#[test]
fn a_key_that_cannot_be_read_is_not_changed() {
    let pair = Pair::new();
    pair.set("k", "old").done();
    pair.evict("k");
    pair.lower.set_mode(FAILED);
    assert_eq!(pair.get("k").failed(), ErrorKind::Device);
    assert_eq!(pair.append("k", "er").failed(), ErrorKind::Device);
    let add = Write { mode: WriteMode::Add, ..Write::default() };
    assert!(pair.store.set(&key("k"), b"new", &add).now().is_err(), "whether it is there is unknown");
    pair.lower.set_mode(Mode::Open);
    assert_eq!(pair.get("k").done().as_deref(), Some("old"));
}

#[test]
fn ram_serves_on_while_the_lower_tier_is_off() {
    let pair = Pair::new();
    let Written::Stored { cas: before } = pair.set("hot", "1").done() else { panic!("it is stored") };
    pair.set("cold", "1").done();
    pair.evict("cold");
    pair.lower.set_mode(OFF);
    assert_eq!(pair.get("hot").done().as_deref(), Some("1"));
    assert_eq!(pair.get("cold").done(), None);
    let Written::Stored { cas } = pair.set("hot", "2").done() else { panic!("RAM takes it") };
    assert!(cas > before, "CAS values grow wherever the item is");
    pair.append("hot", "3").done();
    pair.set("new", "1").done();
    assert_eq!(pair.get("hot").done().as_deref(), Some("23"));
    let increment = Arithmetic { delta: 1, ..Arithmetic::default() };
    let number = pair.store.arithmetic(&key("new"), &increment).now().unwrap();
    assert!(matches!(number, Number::Value { number: 2, .. }), "{number:?}");
    let touch = Retrieve { touch: Some(Exptime(50)), ..Retrieve::default() };
    assert_eq!(pair.retrieve("new", &touch).done().as_deref(), Some("2"));
    assert_eq!(pair.delete("new").done(), Deleted::Deleted);
    assert_eq!(pair.delete("cold").done(), Deleted::NotFound);
    pair.flush(0).done();
    assert_eq!(pair.get("hot").done(), None);
    assert!(pair.store.health().unready);
}

#[test]
fn a_bulk_load_fails_while_the_lower_tier_is_off_except_for_what_is_hot() {
    let pair = Pair::new();
    let batch = UnderPolicy::batch(pair.store.clone());
    pair.set("hot", "1").done();
    pair.lower.set_mode(OFF);
    assert!(matches!(set_on(&batch, "hot", "2").done(), Written::Stored { .. }));
    assert_eq!(set_on(&batch, "cold", "2").failed(), ErrorKind::Unavailable);
    assert_eq!(get_on(&batch, "hot", &Retrieve::default()).done().as_deref(), Some("2"));
}

#[test]
fn a_tier_that_is_off_hears_of_every_change() {
    // It is asked each time, so that it can take note; here it shows in what it refused.
    let pair = Pair::new();
    pair.lower.set_mode(OFF);
    pair.set("a", "1").done();
    pair.append("a", "2").done();
    pair.delete("a").done();
    let conditional = Delete { invalidate: true, ..Delete::default() };
    pair.set("b", "1").done();
    assert_eq!(pair.store.delete(&key("b"), &conditional).now().unwrap(), Deleted::Deleted);
    assert_eq!(pair.store.numbers().lower_failures, 5);
}

#[test]
fn a_walk_of_a_store_whose_lower_tier_is_off_shows_what_is_above() {
    let pair = Pair::new();
    pair.set("a", "1").done();
    pair.set("b", "1").done();
    pair.evict("b");
    pair.lower.set_mode(OFF);
    assert_eq!(crate::policies::walked(&pair.store), ["a"]);
}
