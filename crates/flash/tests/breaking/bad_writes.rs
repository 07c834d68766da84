//! Blocks that a device does not write any more, while the tier fills regions.
//!
//! Guards against a bad block that turns the tier off, that costs items which are still in RAM, and against an answer that
//! promises what only the bad block was to have.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{Durability, Flash, FlashConfig};
use moneta_store::request::Exptime;
use moneta_store::{Calls, Clock};

use super::bad_blocks::Bad;
use super::drive::{HEAD, REGION, START, config, delete, device_bytes, finish, get, numbers, open, set, wait};

const BLOCK: u64 = 4096;
const REGIONS: u64 = 20;
/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);

fn every_write() -> FlashConfig {
    FlashConfig { durability: Durability::EveryWrite, flush_interval: Duration::from_millis(20), ..config() }
}

/// A device of which these parts of the first region that is filled cannot be written.
fn device(bad: &[Range<u64>]) -> Arc<Bad> {
    let media = Bad::of(vec![0; device_bytes(REGIONS) as usize]);
    *media.unwritable.lock() = bad.iter().map(|part| HEAD + part.start..HEAD + part.end).collect();
    media
}

/// A block at each place of a region, and some at once: the header, records, the last records or the footer, the header's copy
/// or the trailer; both ends; more blocks than are told apart; all of it.
fn places() -> Vec<Vec<Range<u64>>> {
    let block = |number: u64| number * BLOCK..(number + 1) * BLOCK;
    let last = REGION / BLOCK - 1;
    let single = [0, 1, 9, 30, last - 2, last - 1, last].map(|number| vec![block(number)]);
    let several =
        [vec![block(0), block(last)], vec![block(3), block(40)], vec![block(8).start..block(30).end], vec![0..REGION]];
    single.into_iter().chain(several).collect()
}

/// What the tier was told: keys and their values, or nothing for deleted ones.
type Told = HashMap<String, Option<Vec<u8>>>;

/// Changes that fill about one region and a half.
const CHANGES: u32 = 120;

/// Stores, overwrites and deletes.
fn work(flash: &Flash, changes: u32, what: &str) -> Told {
    let mut told = Told::new();
    for number in 0..changes {
        let name = format!("key {}", number % 70);
        if number % 9 == 4 {
            delete(flash, name.as_bytes()).unwrap_or_else(|error| panic!("{what}: delete {number}: {error:?}"));
            told.insert(name, None);
        } else {
            let value = vec![number as u8; 500 + (number as usize * 997) % 6000];
            set(flash, name.as_bytes(), &value, 0).unwrap_or_else(|error| panic!("{what}: set {number}: {error:?}"));
            told.insert(name, Some(value));
        }
    }
    told
}

fn check(flash: &Flash, told: &Told, what: &str) {
    for (name, value) in told {
        let found = get(flash, name.as_bytes()).unwrap_or_else(|error| panic!("{what}: get {name}: {error:?}"));
        assert!(found == *value, "{what}: {name} shows {:?}", found.map(|found| (found.len(), found[0])));
    }
}

/// Writes more than the tier holds.
fn write_over(flash: &Flash) {
    for number in 0..300 {
        set(flash, format!("filler {number}").as_bytes(), &[number as u8; 30_000], 0).expect("a set");
    }
}

#[test]
fn a_block_that_cannot_be_written_costs_nothing_and_its_region_is_retired_when_it_is_emptied() {
    for bad in places() {
        let (what, media, clock) = (format!("{bad:?}"), device(&bad), Arc::new(Clock::manual(START)));
        let flash = open(Arc::clone(&media) as _, &every_write(), &clock);
        let mut told = work(&flash, CHANGES, &what);
        check(&flash, &told, &what);
        let found = numbers(&flash);
        assert!(!found.off && found.io_errors > 0, "{what}: {found:?}");
        // All of it was answered, so it is there after a kill, whatever the bad block shows.
        let mut image = media.memory.image();
        for part in media.unwritable.lock().iter() {
            image[part.start as usize..part.end as usize].fill(0xAA);
        }
        let killed = open(MemoryMedia::of(image), &every_write(), &clock);
        check(&killed, &told, &what);
        killed.crash();

        told.extend(work(&flash, CHANGES, &what));
        check(&flash, &told, &what);
        write_over(&flash);
        assert_eq!(numbers(&flash).regions_retired, 1, "{what}");
        flash.crash();
        let flash = open(Arc::clone(&media) as _, &every_write(), &clock);
        assert_eq!(numbers(&flash).regions_retired, 1, "{what}: it is remembered");
        assert_eq!(get(&flash, b"filler 299").unwrap().map(|value| value.len()), Some(30_000), "{what}");
        flash.crash();
    }
}

#[test]
fn a_restart_remembers_a_region_with_a_bad_block_that_is_still_in_use() {
    let (media, clock) = (device(&[9 * BLOCK..10 * BLOCK]), Arc::new(Clock::manual(START)));
    let flash = open(Arc::clone(&media) as _, &every_write(), &clock);
    let told = work(&flash, CHANGES, "before the restart");
    assert_eq!(numbers(&flash).regions_retired, 0);
    flash.crash();
    media.unwritable.lock().clear();
    let flash = open(Arc::clone(&media) as _, &every_write(), &clock);
    check(&flash, &told, "behind the restart");
    write_over(&flash);
    assert_eq!(numbers(&flash).regions_retired, 1);
    flash.crash();
}

#[test]
fn a_tier_that_is_stopped_with_a_bad_block_comes_back_with_everything() {
    // With the bad blocks in a region that is full, and in one that is still open.
    for (changes, bad) in
        [CHANGES, CHANGES / 3].into_iter().flat_map(|changes| places().into_iter().map(move |bad| (changes, bad)))
    {
        let (what, media, clock) = (format!("{changes}, {bad:?}"), device(&bad), Arc::new(Clock::manual(START)));
        let flash = open(Arc::clone(&media) as _, &config(), &clock);
        let told = work(&flash, changes, &what);
        drop(flash);
        let flash = open(Arc::clone(&media) as _, &config(), &clock);
        check(&flash, &told, &what);
        flash.crash();
    }
}

#[test]
fn a_region_with_a_bad_block_that_is_flushed_is_retired_too() {
    let (media, clock) = (device(&[9 * BLOCK..10 * BLOCK]), Arc::new(Clock::manual(START)));
    let flash = open(Arc::clone(&media) as _, &every_write(), &clock);
    work(&flash, CHANGES, "before the flush");
    finish(flash.flush(Exptime(0))).expect("a flush");
    let started = Instant::now();
    while numbers(&flash).regions_retired == 0 {
        assert!(started.elapsed() < PATIENCE, "it is not retired");
        std::thread::sleep(Duration::from_millis(5));
    }
    let told = work(&flash, CHANGES, "behind the flush");
    check(&flash, &told, "behind the flush");
    flash.crash();
}

#[test]
fn a_device_that_takes_no_records_at_all_is_off_and_comes_back_with_everything() {
    let media = device(&[0..REGIONS * REGION]);
    let clock = Arc::new(Clock::manual(START));
    let flash =
        open(Arc::clone(&media) as _, &FlashConfig { durability: Durability::Interval, ..every_write() }, &clock);
    set(&flash, b"key", b"value", 0).expect("a set goes to RAM");
    let started = Instant::now();
    while !numbers(&flash).off {
        assert!(started.elapsed() < PATIENCE, "the tier is on");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(wait(flash.sync()).is_err());
    assert_eq!(get(&flash, b"key").expect("a get").as_deref(), Some(&b"value"[..]));
    media.unwritable.lock().clear();
    while numbers(&flash).off {
        assert!(started.elapsed() < PATIENCE, "the tier is off");
        std::thread::sleep(Duration::from_millis(5));
    }
    wait(flash.sync()).expect("a sync");
    assert_eq!(numbers(&flash).regions_retired, 0);
    flash.crash();
    let flash = open(media as _, &every_write(), &clock);
    assert_eq!(get(&flash, b"key").expect("a get").as_deref(), Some(&b"value"[..]));
    flash.crash();
}
