//! Writes by version that come late, after a restart or while devices are off, to what was deleted or flushed.

use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use moneta_flash::testing::{Odds, VolatileMedia};
use moneta_store::versions::Floor;
use moneta_store::{Calls, Clock, Origin, Version, Written};

use super::super::drive::{START, delete, device_bytes, finish, key, numbers, wait};
use super::super::history::name;
use super::copies::{is_stored, look, put, start};
use super::world::{Alone, Below};

/// The record of an item that a floor took stays in the index. A delete finds nothing there, and is in RAM alone.
#[test]
fn what_was_deleted_behind_a_floor_is_not_created_by_an_older_write_after_a_restart() {
    let clock = Arc::new(Clock::manual(START));
    let media = VolatileMedia::of(vec![0; device_bytes(20) as usize], 1);
    let (flash, _) = start::<Alone>(Arc::clone(&media), &clock);
    let version = |millis: u64| Version::new(Version::at(clock.millis() + millis).local(), Origin::new(3, 1));
    let (first, floor, kept, older) = (version(1), version(2), version(3), version(4));
    clock.set_millis(clock.millis() + 3000);
    put(&flash, 0, 1, first, clock.millis()).expect("a put");
    put(&flash, 1, 1, kept, clock.millis()).expect("a put that the floor leaves there");
    finish(flash.floor(Floor { version: floor, second: START })).expect("a floor");
    assert_eq!(look(&flash, 0).expect("a get"), None);
    delete(&flash, &name(0)).expect("a delete");
    wait(flash.sync()).expect("a sync");
    flash.crash();
    let (mut replay, log) = (media.replay(), media.log());
    log.iter().for_each(|event| replay.apply(event));
    let as_of = clock.millis();
    clock.set_millis(as_of + 3000);
    let (flash, _) = start::<Alone>(VolatileMedia::of(replay.image(&mut Rng::with_seed(1)), 0), &clock);
    assert!(look(&flash, 1).expect("a get").is_some());
    let late = put(&flash, 0, 2, older, as_of).expect("an answer");
    assert!(matches!(late, Written::Superseded { .. } | Written::NotStored), "{late:?}");
    assert_eq!(look(&flash, 0).expect("a get"), None);
    flash.crash();
}

/// The upper tier goes on alone, and knows of no delete.
#[test]
fn what_was_deleted_or_flushed_is_not_taken_while_the_device_is_off() {
    let clock = Arc::new(Clock::manual(START));
    let media = VolatileMedia::of(vec![0; device_bytes(20) as usize], 1);
    let (flash, store) = start::<Below>(Arc::clone(&media), &clock);
    clock.set_millis(clock.millis() + 3000);
    let version = |millis: u64| Version::new(Version::at(clock.millis() - 1000 + millis).local(), Origin::new(3, 1));
    finish(store.floor(Floor { version: version(10), second: START })).expect("a floor");
    finish(store.bury(&key(&store, &name(0)), version(30))).expect("a delete");
    media.set(Odds { syncs: 1, ..Odds::default() });
    wait(flash.sync()).expect_err("the sync fails");
    assert!(numbers(&flash).off);
    delete(&store, &name(1)).expect("a delete in RAM");
    for (number, version) in [(0, version(20)), (1, version(20)), (2, version(5))] {
        let written = put(&store, number, 1, version, version.millis()).expect("an answer");
        assert!(matches!(written, Written::Superseded { .. }), "key {number}: {written:?}");
        assert_eq!(look(&store, number).expect("a get"), None, "key {number}");
    }
    let new = put(&store, 2, 2, version(20), version(20).millis()).expect("RAM takes it");
    assert!(is_stored(new));
    media.set(Odds::default());
    while wait(flash.sync()).is_err() {
        std::thread::sleep(Duration::from_millis(2));
    }
    let late = put(&store, 1, 1, version(20), version(20).millis()).expect("an answer");
    assert!(matches!(late, Written::Superseded { .. }), "what was deleted in RAM alone: {late:?}");
    flash.crash();
}
