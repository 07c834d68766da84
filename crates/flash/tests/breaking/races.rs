//! Requests that meet each other, restarts, flushes and emptied regions half way.
//!
//! Guards against a change made to a version that was overwritten while it was read, against a read of a region's next use,
//! against items that outlive a flush because something was done to them meanwhile, and against CAS values given twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moneta_flash::testing::{Faults, FaultyMedia, MemoryMedia};
use moneta_flash::{Flash, FlashConfig};
use moneta_store::request::{Arithmetic, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Calls, Clock, Number};

use super::drive::{START, config, device_bytes, finish, get, get_with, key, numbers, open, set, wait};

struct Stalling {
    media: Arc<FaultyMedia<MemoryMedia>>,
    flash: Flash,
}

impl Stalling {
    fn new() -> Self {
        let media = FaultyMedia::new(MemoryMedia::new(device_bytes(16)));
        let flash = open(Arc::clone(&media) as _, &config(), &Arc::new(Clock::manual(START)));
        Self { media, flash }
    }

    /// Fills so many regions, so that what was stored before is on the device alone.
    fn fill(&self, regions: usize) {
        for number in 0..regions * 7 {
            set(&self.flash, format!("filler {}", number % 30).as_bytes(), &[7; 40_000], 0).expect("a set");
        }
        wait(self.flash.sync()).expect("a sync");
        self.until("full regions are written", || numbers(&self.flash).regions_sealed == 0);
    }

    fn until(&self, what: &str, reached: impl Fn() -> bool) {
        let started = Instant::now();
        while !reached() {
            assert!(started.elapsed() < Duration::from_secs(60), "waited too long until {what}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Does `request` on a thread, and `meanwhile` while its read of the device is under way.
    fn during<T: Send>(&self, request: impl FnOnce() -> T + Send, meanwhile: impl FnOnce()) -> T {
        self.media.set(Faults { stall_reads: true, ..Faults::default() });
        std::thread::scope(|scope| {
            let request = scope.spawn(request);
            self.until("the read is under way", || self.media.stalled() > 0);
            meanwhile();
            self.media.set(Faults::default());
            request.join().expect("the request ends")
        })
    }
}

#[test]
fn a_change_is_made_to_the_newest_version_not_to_the_one_that_was_read() {
    let rig = Stalling::new();
    set(&rig.flash, b"number", b"5", 0).expect("a set");
    rig.fill(4);
    let number = rig.during(
        || {
            let request = Arithmetic { delta: 1, ..Arithmetic::default() };
            finish(rig.flash.arithmetic(&key(&rig.flash, b"number"), &request)).expect("an incr")
        },
        || {
            set(&rig.flash, b"number", b"100", 0).expect("a set");
            rig.fill(4);
        },
    );
    assert!(matches!(number, Number::Value { number: 101, .. }), "{number:?}");
    assert_eq!(get(&rig.flash, b"number").expect("a get").as_deref(), Some(&b"101"[..]));
}

#[test]
fn a_read_of_a_region_in_its_next_use_is_neither_shown_nor_taken_for_damage() {
    let rig = Stalling::new();
    set(&rig.flash, b"key", b"old", 0).expect("a set");
    rig.fill(4);
    let shown = rig.during(
        || get(&rig.flash, b"key").expect("a get"),
        || {
            for _ in 0..2 {
                finish(rig.flash.flush(Exptime(0))).expect("a flush");
                rig.fill(10);
            }
            set(&rig.flash, b"key", b"new", 0).expect("a set");
        },
    );
    assert_eq!(shown.as_deref(), Some(&b"new"[..]));
    let stats = numbers(&rig.flash);
    assert_eq!((stats.checksum_failures, stats.false_matches), (0, 0));
}

#[test]
fn a_flush_takes_what_is_changed_while_it_goes_on() {
    const KEYS: usize = 20_000;
    let large = FlashConfig { region_bytes: 4 << 20, ..config() };
    let media = MemoryMedia::new((1 << 20) + 16 * (4 << 20));
    let flash = open(media, &large, &Arc::new(Clock::manual(START)));
    let names: Vec<Vec<u8>> = (0..KEYS).map(|number| number.to_string().into_bytes()).collect();
    for round in 0..8 {
        names.iter().for_each(|name| {
            set(&flash, name, b"before the flush", 0).expect("a set");
        });
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for half in 0..2 {
                let (flash, names, over) = (flash.clone(), &names, &over);
                scope.spawn(move || {
                    let touch = Retrieve { touch: Some(Exptime(0)), ..Retrieve::default() };
                    let append = Write { mode: WriteMode::Append, ..Write::default() };
                    for name in names.iter().skip(half).step_by(2).cycle() {
                        if over.load(Ordering::Acquire) {
                            break;
                        }
                        get_with(&flash, name, &touch).expect("a touch");
                        finish(flash.set(&key(&flash, name), b"+", &append)).expect("an append");
                    }
                });
            }
            finish(flash.flush(Exptime(0))).expect("a flush");
            over.store(true, Ordering::Release);
        });
        let left = names.iter().filter(|name| get(&flash, name).expect("a get").is_some()).count();
        assert_eq!(left, 0, "items are there after the flush of round {round}");
    }
}

#[test]
fn cas_values_are_not_given_twice_by_nodes_that_start_in_the_same_second() {
    let media = MemoryMedia::new(device_bytes(16));
    let clock = Arc::new(Clock::manual(START));
    let mut highest = 0;
    for _ in 0..5 {
        let flash = open(Arc::clone(&media) as _, &config(), &clock);
        // None of it reaches the device.
        for _ in 0..3 {
            let cas = set(&flash, b"key", b"value", 0).expect("a set");
            assert!(cas > highest, "CAS value {cas} after {highest}");
            highest = cas;
        }
        flash.crash();
    }
}
