//! Walks, with whatever may happen between two of their batches.
//!
//! Guards against keys that a walk leaves out although they were there from its start to its end: those that were overwritten
//! or carried forward meanwhile, those whose region went before the walk came to it, and those after a damaged record. And
//! against walks that stand still: they must not keep anything from being written, emptied or carried forward.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{Flash, FlashConfig};
use moneta_store::{Calls, Clock, Cursor, Walking};

use super::drive::{HEAD, START, config, delete, device_bytes, get, numbers, open, set, wait};

/// A walk, batch by batch.
#[derive(Default)]
struct Steps {
    cursor: Cursor,
    /// The CAS value with which each key was shown last.
    shown: HashMap<Vec<u8>, u64>,
    lines: usize,
}

impl Steps {
    /// The next batch; false when that was the last.
    fn step(&mut self, flash: &Flash) -> bool {
        let walking = flash.walk(&mut self.cursor, &mut |item| {
            self.shown.insert(item.key.to_vec(), item.meta.cas);
            self.lines += 1;
        });
        match walking {
            Walking::More => true,
            Walking::End => false,
            Walking::Wait(pending) => {
                wait(pending).expect("the device can be read");
                true
            }
        }
    }

    /// Goes on until something is shown.
    fn until_it_shows(&mut self, flash: &Flash) {
        while self.shown.is_empty() {
            assert!(self.step(flash), "the walk shows nothing");
        }
    }

    fn finish(mut self, flash: &Flash) -> Self {
        while self.step(flash) {}
        self
    }

    fn missing(&self, names: &[Vec<u8>]) -> usize {
        names.iter().filter(|name| !self.shown.contains_key(*name)).count()
    }
}

fn names(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|number| format!("key {number}").into_bytes()).collect()
}

fn tier(regions: u64, change: impl FnOnce(&mut FlashConfig)) -> Flash {
    let mut config = config();
    change(&mut config);
    let media = MemoryMedia::new(HEAD + regions * config.region_bytes as u64);
    open(media, &config, &Arc::new(Clock::manual(START)))
}

fn store(flash: &Flash, names: &[Vec<u8>], bytes: usize) {
    names.iter().for_each(|name| {
        set(flash, name, &vec![b'v'; bytes], 0).expect("a set");
    });
}

fn assert_all_live(flash: &Flash, names: &[Vec<u8>]) {
    let gone = names.iter().filter(|name| get(flash, name).expect("a get").is_none()).count();
    assert_eq!(gone, 0, "the test is wrong: keys left the tier meanwhile");
}

#[test]
fn keys_that_are_overwritten_between_the_batches_of_a_walk_are_all_shown() {
    let flash = tier(100, |_| {});
    let names = names(5000);
    store(&flash, &names, 1000);
    let mut order = names.clone();
    fastrand::Rng::with_seed(9).shuffle(&mut order);
    let mut next = order.iter().cycle();
    let mut walk = Steps::default();
    while walk.step(&flash) {
        next.by_ref().take(400).for_each(|name| {
            set(&flash, name, &[b'w'; 1000], 0).expect("a set");
        });
    }
    assert_all_live(&flash, &names);
    assert_eq!(walk.missing(&names), 0, "of {} live keys so many are missing", names.len());
}

#[test]
fn a_walk_of_what_is_new_reads_no_region_that_is_full_of_what_is_old() {
    let mut config = config();
    config.versioning.cluster = true;
    let (media, clock) = (MemoryMedia::new(device_bytes(60)), Arc::new(Clock::manual(START)));
    let flash = open(media, &config, &clock);
    let old = names(5000);
    store(&flash, &old, 1000);
    clock.advance_millis(3_600_000);
    let since = clock.millis();
    let new: Vec<Vec<u8>> = (0..50).map(|number| format!("new {number}").into_bytes()).collect();
    store(&flash, &new, 1000);
    store(&flash, &old[..50], 1000);
    // So that what is new is in regions that are full, too.
    store(&flash, &vec![b"filler".to_vec(); 600], 1000);
    // What is full is closed by a sync alone, and only such a region is passed over.
    wait(flash.sync()).expect("a sync");
    let read = |cursor| {
        let before = numbers(&flash).device_read_bytes;
        let walk = Steps { cursor, ..Steps::default() }.finish(&flash);
        (numbers(&flash).device_read_bytes - before, walk)
    };
    let ((all, of_all), (some, of_some)) = (read(Cursor::default()), read(Cursor::since(since)));
    assert_eq!((of_all.missing(&old), of_all.missing(&new)), (0, 0));
    assert_eq!((of_some.missing(&old[..50]), of_some.missing(&new)), (0, 0), "what is new is left out");
    println!("{some} bytes in place of {all}");
    assert!(all > 4 << 20 && some > 0 && some < all / 4, "{some} bytes in place of {all}");
}

#[test]
fn keys_are_shown_as_they_are_when_they_are_shown() {
    let flash = tier(100, |_| {});
    let names = names(2000);
    store(&flash, &names, 1000);
    let mut walk = Steps::default();
    walk.until_it_shows(&flash);
    let before = walk.shown.clone();
    names.iter().step_by(2).for_each(|name| {
        delete(&flash, name).expect("a delete");
    });
    let cas: HashMap<&Vec<u8>, u64> =
        names.iter().skip(1).step_by(2).map(|name| (name, set(&flash, name, b"new", 0).expect("a set"))).collect();
    let walk = walk.finish(&flash);
    for (name, shown) in walk.shown.iter().filter(|(name, _)| !before.contains_key(*name)) {
        assert_eq!(cas.get(name), Some(shown), "{} is not what the key holds", name.escape_ascii());
    }
    let kept: Vec<_> = names.iter().skip(1).step_by(2).cloned().collect();
    assert_eq!(walk.missing(&kept), 0);
}

#[test]
fn a_walk_that_stands_still_while_the_device_is_written_over_shows_all_keys() {
    let flash = tier(40, |_| {});
    let names = names(2000);
    store(&flash, &names, 500);
    let mut walk = Steps::default();
    walk.until_it_shows(&flash);
    // Three times the device.
    (0..30).for_each(|_| store(&flash, &names, 500));
    let walk = walk.finish(&flash);
    assert_eq!(walk.missing(&names), 0, "of {} live keys so many are missing", names.len());
    assert_all_live(&flash, &names);
}

#[test]
fn a_walk_that_stands_still_keeps_nothing_from_being_carried_forward() {
    let flash = tier(40, |_| {});
    let fill = |round: usize| {
        (0..8).for_each(|number| {
            set(&flash, format!("filler {round} {number}").as_bytes(), &[7; 40_000], 0).expect("a set");
        });
    };
    let hot = names(400);
    for (round, names) in hot.chunks(20).enumerate() {
        store(&flash, names, 500);
        fill(round);
    }
    let mut walk = Steps::default();
    walk.until_it_shows(&flash);
    for round in 20..100 {
        let gone = hot.iter().filter(|name| get(&flash, name).expect("a get").is_none()).count();
        assert_eq!(gone, 0, "so many of {} keys that are read all the time were dropped", hot.len());
        fill(round);
    }
    assert!(numbers(&flash).carried_items > 400, "the test is wrong: nothing had to be carried");
    let walk = walk.finish(&flash);
    assert_eq!(walk.missing(&hot), 0, "of {} live keys so many are missing", hot.len());
    assert_all_live(&flash, &hot);
}

#[test]
fn walks_that_stand_still_keep_no_memory_of_regions_from_being_used_again() {
    let flash = tier(40, |_| {});
    let mut walks = Vec::new();
    // Each stands in another region that is being filled when it comes there; there are eight buffers for such regions.
    for number in 0..10 {
        let small: Vec<_> = (0..1000).map(|key| format!("{number} {key}").into_bytes()).collect();
        store(&flash, &small, 10);
        let mut walk = Steps::default();
        while walk.missing(&small) == small.len() {
            assert!(walk.step(&flash), "the walk does not come to the last region");
        }
        walks.push(walk);
        (0..8).for_each(|_| store(&flash, &[b"filler".to_vec()], 40_000));
    }
    let is_taken = Arc::new(AtomicBool::new(false));
    let writer = {
        let is_taken = Arc::clone(&is_taken);
        std::thread::spawn(move || {
            (0..100).for_each(|_| store(&flash, &[b"filler".to_vec()], 40_000));
            is_taken.store(true, Ordering::Release);
        })
    };
    let begun = Instant::now();
    while !is_taken.load(Ordering::Acquire) {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{} walks that stand still keep writes waiting",
            walks.len()
        );
        std::thread::sleep(Duration::from_millis(1));
    }
    writer.join().expect("the writer ends");
}

#[test]
fn keys_are_shown_while_threads_overwrite_them_as_fast_as_they_can() {
    let flash = tier(64, |_| {});
    let names = names(4000);
    store(&flash, &names, 500);
    let (over, rounds) = (AtomicBool::new(false), [AtomicUsize::new(0), AtomicUsize::new(0)]);
    let missing = std::thread::scope(|scope| {
        for half in 0..2 {
            let (flash, names, over, rounds) = (flash.clone(), &names, &over, &rounds);
            scope.spawn(move || {
                let mine: Vec<_> = names.iter().skip(half).step_by(2).cloned().collect();
                while !over.load(Ordering::Acquire) {
                    // Far ahead of the other, it would drive that one's keys out of the tier.
                    if rounds[half].load(Ordering::Acquire) > rounds[1 - half].load(Ordering::Acquire) + 2 {
                        std::thread::yield_now();
                        continue;
                    }
                    store(&flash, &mine, 500);
                    rounds[half].fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let walked = |_| Steps::default().finish(&flash).missing(&names);
        let missing: Vec<usize> = (0..10).map(walked).collect();
        while rounds[0].load(Ordering::Relaxed) < 20 {
            std::thread::yield_now();
        }
        over.store(true, Ordering::Release);
        missing
    });
    assert_eq!(flash.stats().evictions, 0, "the test is wrong: keys left the tier meanwhile");
    assert_eq!(missing, [0; 10], "of {} live keys so many are missing", names.len());
}

#[test]
fn values_larger_than_what_a_walk_reads_at_once_are_shown() {
    let flash = tier(16, |config| {
        config.region_bytes = 4 << 20;
        config.item_max = 1 << 20;
    });
    let names = names(40);
    for (number, name) in names.iter().enumerate() {
        set(&flash, name, &vec![7; if number % 2 == 0 { 700_000 } else { 10 }], 0).expect("a set");
    }
    wait(flash.sync()).expect("a sync");
    let walk = Steps::default().finish(&flash);
    assert_eq!((walk.missing(&names), walk.lines), (0, names.len()));
}

#[test]
fn a_damaged_record_hides_what_shares_its_block_and_no_more() {
    let media = MemoryMedia::new(device_bytes(16));
    let flash = open(Arc::clone(&media) as _, &config(), &Arc::new(Clock::manual(START)));
    let names = names(1000);
    store(&flash, &names, 1000);
    wait(flash.sync()).expect("a sync");
    // The length of the value, in the header of a record in the first region.
    let at = media.image().windows(7).position(|bytes| bytes == b"key 100").expect("it is on the device");
    media.tamper(|image| image[at - 12..at - 8].copy_from_slice(&u32::MAX.to_le_bytes()));
    let walk = Steps::default().finish(&flash);
    let missing = walk.missing(&names);
    assert!((1..=8).contains(&missing), "{missing} of {} keys are missing", names.len());
}
