//! Which of a key's records is the newest, after a restart that has only regions' sequence numbers and places to go by.
//!
//! Guards against a version in an older region than what it followed: a restart would take the older one for the newer.

use std::sync::Arc;

use moneta_flash::Flash;
use moneta_flash::testing::MemoryMedia;
use moneta_store::Clock;

use super::drive::{START, config, delete, device_bytes, get, open, set, wait};

/// Does things to a tier in which the region of what never dies is older than that of what dies soon, and opens it again.
fn after_a_crash(act: impl FnOnce(&Flash, &Clock)) -> Flash {
    let media = MemoryMedia::new(device_bytes(16));
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    set(&flash, b"for ever", b"x", 0).expect("a set");
    set(&flash, b"for minutes", b"x", 300).expect("a set");
    act(&flash, &clock);
    wait(flash.sync()).expect("a sync");
    flash.crash();
    open(media, &config(), &clock)
}

#[test]
fn what_is_stored_after_a_delete_is_there_after_a_crash() {
    let flash = after_a_crash(|flash, _| {
        set(flash, b"key", b"old", 300).expect("a set");
        delete(flash, b"key").expect("a delete");
        set(flash, b"key", b"new", 0).expect("a set");
    });
    assert_eq!(get(&flash, b"key").expect("a get").as_deref(), Some(&b"new"[..]));
}

#[test]
fn what_is_stored_after_an_expiry_is_there_after_a_crash() {
    let flash = after_a_crash(|flash, clock| {
        set(flash, b"key", b"old", 5).expect("a set");
        clock.advance(10);
        assert_eq!(get(flash, b"key").expect("a get"), None);
        set(flash, b"key", b"new", 0).expect("a set");
    });
    assert_eq!(get(&flash, b"key").expect("a get").as_deref(), Some(&b"new"[..]));
}

#[test]
fn what_is_deleted_or_overwritten_stays_so_after_a_crash() {
    let flash = after_a_crash(|flash, _| {
        set(flash, b"deleted", b"old", 300).expect("a set");
        set(flash, b"deleted", b"newer", 0).expect("a set");
        delete(flash, b"deleted").expect("a delete");
        set(flash, b"overwritten", b"old", 300).expect("a set");
        set(flash, b"overwritten", b"newer", 0).expect("a set");
    });
    assert_eq!(get(&flash, b"deleted").expect("a get"), None);
    assert_eq!(get(&flash, b"overwritten").expect("a get").as_deref(), Some(&b"newer"[..]));
}
