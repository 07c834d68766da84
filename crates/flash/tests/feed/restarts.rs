//! Versions, deletes and flushes over restarts.

use crate::follower::{Follower, Heard, whole};
use crate::tier::{Tier, done, feed, name};
use moneta_flash::Flash;
use moneta_store::feed::Change;
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, Deleted, ItemMeta, ItemRef, Key, Lookup, Store, Unseen, Value, Written};
use std::sync::Arc;
use std::time::Duration;

/// What is lost with a kill had versions too. They must not come again, or a reader that was told of them would take what has
/// them now for what it knows already.
#[test]
fn versions_that_were_lost_with_a_kill_do_not_come_again_where_the_clock_was_set_back() {
    let mut tier = Tier::new(Clock::manual(1_700_000_000));
    tier.config.flush_interval = Duration::from_secs(2);
    let flash = tier.open();
    let store = |flash: &Flash, key: u32| {
        let (bytes, write) = (name(key), Write::default());
        let Written::Stored { cas } = done(flash.set(&Key::new(&bytes, flash.seed()), b"value", &write)) else {
            panic!("not stored")
        };
        cas
    };
    store(&flash, 1);
    pollster::block_on(flash.sync()).expect("a sync");
    tier.clock.advance_millis(1900);
    let last = (0..100).map(|key| store(&flash, key)).max().expect("some");
    let mut follower = Follower { from: 0, cursor: feed(&flash).end().to_string(), heard: Heard::default() };
    follower.read_all(&flash);
    flash.crash();
    tier.clock.set_millis(tier.clock.millis() - 3_600_000);
    let flash = tier.open();
    assert!(store(&flash, 7) > last, "a version that was given out before the kill");
    let batch = follower.reader(&flash).read(100, 1 << 20).expect("the device answers");
    let told = |change: &dyn Fn(&Change) -> bool| whole(&batch).any(change);
    assert!(told(&|change| matches!(change, Change::Lost { .. })), "the reader is not told that something was lost");
    assert!(told(&|change| matches!(change, Change::Set(set) if set.key == name(7))), "the change is not told");
}

/// A cursor is not ahead of what is stored later, nor is a flush, however long nothing was written before the restart.
#[test]
fn what_is_stored_after_a_restart_is_newer_than_all_before_where_the_clock_was_set_back() {
    for is_killed in [false, true] {
        let tier = Tier::new(Clock::manual(1_700_000_000));
        let flash = tier.open();
        let bytes = name(7);
        let store = |flash: &Flash| done(flash.set(&Key::new(&bytes, flash.seed()), b"value", &Write::default()));
        let is_there = |flash: &Flash| {
            let found = done(flash.get(&Key::new(&bytes, flash.seed()), &Retrieve::default(), &mut Unseen));
            !matches!(found, Lookup::Miss { .. })
        };
        store(&flash);
        tier.clock.advance(100);
        done(flash.flush(Exptime(0)));
        tier.clock.advance(3600);
        let mut follower = Follower { from: 0, cursor: feed(&flash).end().to_string(), heard: Heard::default() };
        follower.read_all(&flash);
        pollster::block_on(flash.sync()).expect("a sync");
        if is_killed {
            flash.crash()
        } else {
            drop(flash)
        }
        tier.clock.set_millis(tier.clock.millis() - 3_640_000);
        let flash = tier.open();
        store(&flash);
        assert!(is_there(&flash), "killed: {is_killed}: it is below the flush");
        let batch = follower.reader(&flash).read(100, 1 << 20).expect("the device answers");
        let is_told = whole(&batch).any(|change| matches!(change, Change::Set(set) if set.key == bytes));
        assert!(is_told, "killed: {is_killed}: the cursor is ahead of it");
    }
}

/// A delete that the log has keeps older versions out after a restart; and where none can be lost, the horizon stays where it
/// was.
#[test]
fn deletes_are_remembered_over_a_restart() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    let flash = tier.open();
    tier.clock.advance(10);
    let bytes = name(1);
    let key = Key::new(&bytes, flash.seed());
    let Written::Stored { cas } = done(flash.set(&key, b"old", &Write::default())) else { panic!("not stored") };
    done(flash.delete(&key, &Delete::default()));
    let began = flash.stats().horizon;
    let comes_back = |flash: &Flash| {
        let meta = ItemMeta { cas, ..ItemMeta::default() };
        let item = ItemRef { meta, value: Value::whole(b"old") };
        done(flash.put_newer(&key, &item, tier.clock.millis()))
    };
    assert!(matches!(comes_back(&flash), Written::Superseded { .. }));
    drop(flash);
    tier.clock.advance(100);
    let flash = tier.open();
    assert!(matches!(comes_back(&flash), Written::Superseded { .. }));
    assert!(flash.stats().horizon <= began + 12_000, "{} after {began}", flash.stats().horizon);
    assert!(flash.stats().tombstones > 0);
    pollster::block_on(flash.sync()).expect("a sync");
    flash.crash();
    tier.clock.advance(100);
    let flash = tier.open();
    assert!(matches!(comes_back(&flash), Written::Superseded { .. }));
    assert!(flash.stats().horizon >= began + 200_000, "a delete of its last moments may be lost");
    drop(flash);
    tier.clock.advance(3700);
    let flash = tier.open();
    assert!(
        flash.stats().horizon >= tier.clock.millis() - 3_601_000 && flash.stats().tombstones == 0,
        "they live for an hour"
    );
}

/// A ring round a tier stamps the deletes of clients itself. Behind a restart versions begin ahead of the clock.
#[test]
fn a_restart_refuses_no_delete_of_a_client() {
    let tier = Tier::new(Clock::manual(1_700_000_000));
    for _ in 0..3 {
        let flash = tier.open();
        let store = moneta_layers::feed::Feed::new(flash.clone(), 1 << 20, Arc::clone(&tier.clock));
        let name = name(1);
        let key = Key::new(&name, store.seed());
        done(store.set(&key, b"value", &Write::default()));
        assert_eq!(done(store.delete(&key, &Delete::default())), Deleted::Deleted);
        store.close_all();
    }
}
