//! Which of a key's records is the newest, after a restart that has only regions' sequence numbers and places to go by.
//!
//! Guards against a version in an older region than what it followed: a restart would take the older one for the newer.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{Flash, Media};
use moneta_store::Clock;

use super::drive::{HEAD, REGION, START, config, delete, device_bytes, get, numbers, open, set, wait};

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

/// A device on which the wipe of a region waits.
struct SlowWipes {
    memory: Arc<MemoryMedia>,
    waiting: AtomicBool,
    released: AtomicBool,
}

impl Media for SlowWipes {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.memory.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let begins_region = offset >= HEAD && (offset - HEAD).is_multiple_of(REGION);
        if begins_region && bytes[..64].iter().all(|byte| *byte == 0) {
            self.waiting.store(true, Ordering::Release);
            while !self.released.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.memory.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.memory.sync()
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

#[test]
fn what_is_deleted_while_its_region_is_emptied_stays_so_after_a_crash() {
    let memory = MemoryMedia::new(device_bytes(16));
    let (waiting, released) = (AtomicBool::new(false), AtomicBool::new(false));
    let media = Arc::new(SlowWipes { memory: Arc::clone(&memory), waiting, released });
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    set(&flash, b"deleted", b"old", 0).expect("a set");
    let started = Instant::now();
    for number in 0.. {
        if media.waiting.load(Ordering::Acquire) {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(60), "no region is emptied");
        if numbers(&flash).regions_free < 4 {
            std::thread::sleep(Duration::from_millis(1));
        } else {
            set(&flash, format!("filler {number}").as_bytes(), &[7; 40_000], 0).expect("a set");
        }
    }
    delete(&flash, b"deleted").expect("a delete");
    assert_eq!(get(&flash, b"deleted").expect("a get"), None);
    wait(flash.sync()).expect("a sync");
    let image = memory.image();
    media.released.store(true, Ordering::Release);
    flash.crash();
    let flash = open(MemoryMedia::of(image), &config(), &clock);
    assert_eq!(get(&flash, b"deleted").expect("a get"), None);
}
