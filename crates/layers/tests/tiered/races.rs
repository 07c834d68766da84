//! What two tiers and several clients can get wrong, step by step.

use std::sync::Arc;

use moneta_layers::Promotion;
use moneta_store::request::{Exptime, Retrieve};
use moneta_store::{Calls, Clock, Deleted, ErrorKind, Written};
use moneta_testkit::model::ModelStore;

use crate::scripted::{Mode, Pair, START, Scripted, VALUE_MAX};

/// The guard of promotions, without which this fails: an old value that was read before a newer one was written would come
/// back above it.
#[test]
fn an_old_value_never_comes_up_over_a_newer_one() {
    let pair = Pair::new();
    pair.set("k", "old").done();
    pair.evict("k");
    pair.lower.set_mode(Mode::Parked);
    let reader = pair.get("k").waits();
    pair.lower.set_mode(Mode::Open);
    pair.set("k", "new").done();
    // The upper tier has it no more, so nothing but the version tells that the reader is too late.
    pair.evict("k");
    assert_eq!(reader.done().as_deref(), Some("old"), "the read began before the write");
    assert_eq!(pair.above("k"), None);
    assert_eq!(pair.get("k").done().as_deref(), Some("new"));
    assert_eq!(pair.above("k").as_deref(), Some("new"));
    let tiers = pair.store.numbers();
    assert_eq!((tiers.promotions, tiers.promotions_overtaken), (1, 1));
}

/// The lower tier has a new value before the upper one has; who saw it there would see the old one again above.
#[test]
fn no_reader_sees_a_new_value_and_then_the_old_one() {
    for delete in [false, true] {
        let pair = Pair::new();
        pair.set("k", "old").done();
        pair.evict("k");
        pair.lower.set_mode(Mode::Late);
        let reader = pair.get("k").waits();
        pair.lower.set_mode(Mode::Open);
        assert_eq!(pair.get("k").done().as_deref(), Some("old"), "another reader, who brings it up");
        pair.lower.set_mode(Mode::Parked);
        let (setter, deleter) =
            if delete { (None, Some(pair.delete("k").waits())) } else { (Some(pair.set("k", "new").waits()), None) };
        assert_eq!(reader.done().as_deref(), Some("old"), "the change is not done yet");
        assert_eq!(pair.get("k").done().as_deref(), Some("old"));
        pair.lower.set_mode(Mode::Open);
        setter.map(|asked| asked.done());
        deleter.map(|asked| asked.done());
        assert_eq!(pair.get("k").done().as_deref(), if delete { None } else { Some("new") });
    }
}

#[test]
fn nothing_comes_up_that_was_deleted_or_flushed_meanwhile() {
    for change in ["delete", "flush", "flush later"] {
        let pair = Pair::new();
        pair.set("k", "old").done();
        pair.evict("k");
        pair.lower.set_mode(Mode::Parked);
        let reader = pair.get("k").waits();
        pair.lower.set_mode(Mode::Open);
        match change {
            "delete" => assert_eq!(pair.delete("k").done(), Deleted::Deleted),
            "flush" => pair.flush(0).done(),
            _ => {
                pair.flush(1).done();
                pair.clock.advance(1);
            }
        }
        assert_eq!(reader.done().as_deref(), Some("old"));
        assert_eq!(pair.above("k"), None, "after {change}");
        assert_eq!(pair.get("k").done(), None, "after {change}");
    }
}

#[test]
fn a_promotion_does_not_wait_for_a_change_under_way() {
    let pair = Pair::new();
    pair.set("k", "old").done();
    pair.evict("k");
    pair.lower.set_mode(Mode::Parked);
    let reader = pair.get("k").waits();
    let writer = pair.set("k", "new").waits();
    pair.lower.set_mode(Mode::Open);
    assert_eq!(reader.done().as_deref(), Some("old"));
    assert_eq!(pair.above("k"), None);
    writer.done();
    assert_eq!(pair.above("k").as_deref(), Some("new"));
}

#[test]
fn a_hit_above_does_not_wait() {
    let pair = Pair::new();
    pair.set("k", "old").done();
    pair.lower.set_mode(Mode::Parked);
    let writer = pair.set("k", "new").waits();
    assert_eq!(pair.get("k").done().as_deref(), Some("old"), "the write is not answered yet");
    pair.lower.set_mode(Mode::Open);
    writer.done();
    assert_eq!(pair.get("k").done().as_deref(), Some("new"));
}

#[test]
fn changes_of_a_key_take_their_turns() {
    let pair = Pair::new();
    pair.lower.set_mode(Mode::Parked);
    let first = pair.set("k", "1").waits();
    let second = pair.append("k", "2").waits();
    let third = pair.append("k", "3").waits();
    pair.lower.set_mode(Mode::Open);
    let (second, third) = (second.waits(), third.waits());
    first.done();
    second.done();
    third.done();
    assert_eq!(pair.get("k").done().as_deref(), Some("123"));
    assert_eq!(pair.below("k").as_deref(), Some("123"));
    assert_eq!(pair.store.numbers().key_waits, 2);
}

#[test]
fn a_client_that_leaves_blocks_no_other() {
    let pair = Pair::new();
    pair.set("k", "0").done();
    pair.lower.set_mode(Mode::Parked);
    let holder = pair.set("k", "1").waits();
    let leaver = pair.append("k", "2").waits();
    let stayer = pair.append("k", "3").waits();
    let flusher = pair.flush(0).waits();
    drop(leaver);
    drop(flusher);
    drop(holder);
    pair.lower.set_mode(Mode::Open);
    stayer.done();
    let value = pair.get("k").done().unwrap();
    assert!(value.ends_with('3') && !value.contains('2'), "{value}");
    pair.flush(0).done();
    pair.set("k", "4").done();
    assert_eq!(pair.get("k").done().as_deref(), Some("4"));
}

/// A change that is given up between the tiers: the lower one has it, so the upper one must not show what was before.
#[test]
fn a_write_given_up_half_way_leaves_the_tiers_of_one_mind() {
    let pair = Pair::new();
    pair.set("k", "old").done();
    pair.lower.set_mode(Mode::Parked);
    drop(pair.set("k", "new").waits());
    pair.lower.set_mode(Mode::Open);
    assert_eq!(pair.get("k").done(), pair.below("k"));
    pair.lower.set_mode(Mode::Parked);
    drop(pair.append("k", "er").waits());
    drop(pair.delete("k").waits());
    pair.lower.set_mode(Mode::Open);
    assert_eq!(pair.get("k").done(), pair.below("k"));
    pair.set("k", "once more").done();
    pair.lower.set_mode(Mode::Parked);
    drop(pair.flush(0).waits());
    pair.lower.set_mode(Mode::Open);
    assert_eq!(pair.get("k").done(), pair.below("k"));
}

#[test]
fn a_change_that_a_delayed_flush_falls_into_goes_with_it() {
    for append in [false, true] {
        let pair = Pair::new();
        pair.set("k", "old").done();
        pair.flush(1).done();
        pair.lower.set_mode(Mode::Parked);
        let writer = if append { pair.append("k", "er").waits() } else { pair.set("k", "new").waits() };
        pair.clock.advance(1);
        pair.lower.set_mode(Mode::Open);
        assert!(matches!(writer.done(), Written::Stored { .. }));
        assert_eq!((pair.above("k"), pair.below("k")), (None, None));
        pair.set("k", "later").done();
        assert_eq!(pair.get("k").done().as_deref(), Some("later"), "a flush is over when it is over");
    }
}

/// A read that would create the item holds the key's lock and finds it there all the same.
#[test]
fn a_read_with_the_lock_that_a_delayed_flush_falls_into_brings_nothing_up() {
    let pair = Pair::new();
    pair.set("k", "old").done();
    pair.evict("k");
    pair.flush(1).done();
    pair.lower.set_mode(Mode::Parked);
    let reader = pair.retrieve("k", &Retrieve { vivify: Some(Exptime(0)), ..Retrieve::default() }).waits();
    pair.clock.advance(1);
    pair.lower.set_mode(Mode::Open);
    assert_eq!(reader.done().as_deref(), Some("old"), "the read began before the flush");
    assert_eq!((pair.above("k"), pair.get("k").done()), (None, None));
}

#[test]
fn nothing_comes_up_before_a_delayed_flush_has_taken_place_below_too() {
    let (clock, behind) = (Arc::new(Clock::manual(START)), Arc::new(Clock::manual(START - 1)));
    let lower = Scripted::lagging(ModelStore::new(Arc::clone(&behind), VALUE_MAX), 3);
    let pair = Pair::over(lower, Arc::clone(&clock), Promotion::Always, None);
    let pass = |seconds| [&clock, &behind].map(|clock| clock.advance(seconds));
    for name in ["read", "changed", "set"] {
        pair.set(name, "1").done();
    }
    pair.flush(10).done();
    pass(10);
    // Below it is still the second before.
    assert_eq!(pair.get("read").done().as_deref(), Some("1"));
    pair.append("changed", "2").done();
    pair.set("set", "2").done();
    pass(1);
    for name in ["read", "changed", "set"] {
        assert_eq!((pair.below(name), pair.get(name).done()), (None, None), "{name}");
    }
    pass(2);
    pair.set("later", "3").done();
    assert_eq!(pair.above("later").as_deref(), Some("3"));
}

#[test]
fn a_flush_waits_for_changes_and_changes_for_it() {
    let pair = Pair::new();
    pair.lower.set_mode(Mode::Parked);
    let before = pair.set("k", "before").waits();
    let flush = pair.flush(0).waits();
    let after = pair.set("k", "after").waits();
    pair.lower.set_mode(Mode::Open);
    let flush = flush.waits();
    before.done();
    // Whoever came first to the key's own lock goes first.
    flush.done();
    after.done();
    assert_eq!(pair.get("k").done().as_deref(), Some("after"));
    assert_eq!(pair.below("k").as_deref(), Some("after"));
}

#[test]
fn a_flush_asked_for_before_a_restart_takes_place_in_both_tiers() {
    let before = Pair::new();
    before.set("k", "old").done();
    before.lower.inner.flush(Exptime(10)).now().unwrap();
    let lower = Scripted::remembering_flush(before.lower.inner.clone(), START + 10);
    let pair = Pair::over(lower, before.clock.clone(), Promotion::Always, None);
    assert_eq!(pair.get("k").done().as_deref(), Some("old"));
    assert_eq!(pair.above("k").as_deref(), Some("old"));
    pair.clock.advance(10);
    assert_eq!((pair.above("k"), pair.get("k").done()), (None, None));
}

#[test]
fn a_failing_tier_lets_go_of_the_key() {
    let pair = Pair::new();
    pair.lower.set_mode(Mode::Failing(ErrorKind::Device));
    assert_eq!(pair.set("k", "1").failed(), ErrorKind::Device);
    assert_eq!(pair.append("k", "1").failed(), ErrorKind::Device);
    assert_eq!(pair.delete("k").failed(), ErrorKind::Device);
    pair.lower.set_mode(Mode::Open);
    pair.set("k", "2").done();
    assert_eq!(pair.get("k").done().as_deref(), Some("2"));
}
