//! What is missing is told.

use crate::follower::{Done, Follower, Heard, whole};
use crate::tier::{Tier, done, feed, name};
use moneta_flash::Flash;
use moneta_store::feed::{Change, GapCause, Wanted};
use moneta_store::request::{Delete, Exptime, Write};
use moneta_store::versions::Floor;
use moneta_store::{Calls, Clock, Component, ItemMeta, ItemRef, Key, Store, Value, Version, Written};

/// Keys that are written once: nothing newer stands in for what is emptied before a reader comes to it.
#[test]
fn a_reader_that_was_overtaken_is_told_of_a_gap_also_after_a_restart() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let mut flash = tier.open();
    let place = feed(&flash).end().to_string();
    let from = tier.clock.millis() + 1;
    let overtaken = || Follower { from, cursor: place.clone(), heard: Heard::default() };
    tier.clock.advance_millis(1);
    let mut journal = Vec::new();
    for key in 0..12_000 {
        let bytes = name(key);
        let written = done(flash.set(&Key::new(&bytes, flash.seed()), &[7; 2000], &Write::default()));
        let Written::Stored { cas } = written else { panic!("not stored") };
        journal.push(Done { millis: tier.clock.millis(), key, version: Version(cas), expiry: 0 });
        if key % 10 == 0 {
            tier.clock.advance_millis(1);
        }
    }
    tier.clock.advance_millis(1);
    for restart in [false, true, true] {
        if restart {
            drop(flash);
            tier.clock.advance(2);
            flash = tier.open();
        }
        let mut follower = overtaken();
        follower.read_all(&flash);
        assert!(follower.heard.gaps > 0 && follower.heard.newest.len() > 1000);
        assert_eq!(follower.heard.cause, Some(GapCause::Reclaimed));
        follower.heard.check(&journal, from, |_| false);
    }
}

#[test]
fn a_flush_is_told_also_after_a_restart() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    let place = feed(&flash).end();
    done(flash.flush(Exptime(0)));
    let version = flash.floors().newest;
    let told = |flash: &Flash| {
        let batch = feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers");
        whole(&batch).any(|change| matches!(change, Change::Flush(floor) if floor.version == version))
    };
    assert!(told(&flash));
    drop(flash);
    assert!(told(&tier.open()));
}

#[test]
fn a_reader_of_a_node_that_was_killed_is_told_so_until_it_is_past_that() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    let place = feed(&flash).end();
    flash.crash();
    tier.clock.advance(5);
    let read = |flash: &Flash, place| {
        let batch = feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers");
        (whole(&batch).any(|change| matches!(change, Change::Lost { .. })), batch.gap, batch.next)
    };
    drop(tier.open());
    tier.clock.advance(5);
    let flash = tier.open();
    let (lost, gap, next) = read(&flash, place);
    assert!(lost && gap.is_none());
    assert!(!read(&flash, next).0);
}

#[test]
fn a_run_without_a_feed_leaves_a_gap() {
    let mut tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    let place = feed(&flash).end();
    let gap = |flash: &Flash| {
        feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers").gap
    };
    assert_eq!(gap(&flash), None);
    drop(flash);
    assert_eq!(gap(&tier.open()), None, "it was stopped, and all is there");
    tier.config.feed = false;
    let flash = tier.open();
    assert!(flash.parts().feed.is_none());
    drop(flash);
    tier.config.feed = true;
    assert_eq!(gap(&tier.open()).and_then(|gap| gap.cause), Some(GapCause::Start));
}

/// A flush of one copy alone takes changes that were not read, and deletes: after a restart readers are told of that, and
/// nothing that was current before is created.
#[test]
fn what_a_flush_of_one_copy_took_is_known_behind_a_restart() {
    for is_killed in [false, true] {
        let tier = Tier::new(Clock::manual(1_700_000_000));
        let flash = tier.open();
        tier.clock.advance(10);
        let place = feed(&flash).end();
        let bytes = name(1);
        let key = Key::new(&bytes, flash.seed());
        let Written::Stored { cas } = done(flash.set(&key, b"old", &Write::default())) else { panic!("not stored") };
        done(flash.delete(&key, &Delete::default()));
        let as_of = tier.clock.millis();
        tier.clock.advance(10);
        let flushed = tier.clock.millis();
        done(flash.floor(Floor::local(Version(flash.next_cas(&key)))));
        let check = |flash: &Flash, when: &str| {
            let batch = feed(flash).reader(place, Wanted::default()).read(100, 1 << 20).expect("the device answers");
            assert!(batch.gap.is_some_and(|gap| gap.since > flushed), "{when}, killed: {is_killed}: {:?}", batch.gap);
            assert!(flash.stats().horizon >= flushed, "{when}, killed: {is_killed}: {}", flash.stats().horizon);
            let item = ItemRef { meta: ItemMeta { cas, ..ItemMeta::default() }, value: Value::whole(b"old") };
            let written = done(flash.put_newer(&key, &item, as_of));
            assert!(
                matches!(written, Written::NotStored | Written::Superseded { .. }),
                "{when}, killed: {is_killed}: {written:?}"
            );
        };
        check(&flash, "before");
        if is_killed {
            flash.crash()
        } else {
            drop(flash)
        }
        tier.clock.advance(100);
        check(&tier.open(), "behind a restart");
    }
}
