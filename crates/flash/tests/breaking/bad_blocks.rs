//! Blocks that a device cannot read any more: while regions are emptied, and at a start.
//!
//! Guards against a bad block that stops the tier, that poisons what is newer and what older, or that brings something back.

#![allow(clippy::single_range_in_vec_init, reason = "lists of ranges, some of one")]

use std::io;
use std::ops::Range;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{Flash, FlashConfig, Media};
use moneta_store::{Calls, Clock};
use parking_lot::Mutex;

use super::drive::{HEAD, REGION, START, config, delete, device_bytes, get, numbers, open, set, wait};

const BLOCK: u64 = 4096;
const REGIONS: u64 = 20;
/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);

/// A device of which some bytes cannot be read, and some not be written.
pub struct Bad {
    pub memory: Arc<MemoryMedia>,
    pub unreadable: Mutex<Vec<Range<u64>>>,
    pub unwritable: Mutex<Vec<Range<u64>>>,
}

impl Bad {
    pub fn of(image: Vec<u8>) -> Arc<Self> {
        let memory = MemoryMedia::of(image);
        Arc::new(Self { memory, unreadable: Mutex::default(), unwritable: Mutex::default() })
    }

    fn check(bad: &Mutex<Vec<Range<u64>>>, offset: u64, bytes: usize) -> io::Result<()> {
        let hit = bad.lock().iter().any(|bad| bad.start < offset + bytes as u64 && offset < bad.end);
        if hit { Err(rustix::io::Errno::IO.into()) } else { Ok(()) }
    }
}

impl Media for Bad {
    fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        Self::check(&self.unreadable, offset, buffer.len())?;
        self.memory.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        Self::check(&self.unwritable, offset, bytes.len())?;
        self.memory.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

fn flushing() -> FlashConfig {
    FlashConfig { flush_interval: Duration::from_millis(20), ..config() }
}

fn region_at(region: u64) -> u64 {
    HEAD + region * REGION
}

/// Writes more than the tier holds, from `first` on. False if that does not end.
fn write_over(flash: &Flash, first: u32) -> bool {
    let (done, is_done) = channel();
    let writer = flash.clone();
    // Not joined: without the mend it waits for ever.
    std::thread::spawn(move || {
        for number in first..first + 300 {
            let name = format!("filler {number}");
            if set(&writer, name.as_bytes(), &[number as u8; 30_000], 0).is_err() {
                return;
            }
        }
        let _ = done.send(());
    });
    is_done.recv_timeout(PATIENCE).is_ok()
}

#[test]
fn a_region_with_a_bad_block_is_retired_when_it_is_emptied_and_the_tier_goes_on() {
    // Its first block, one of its records, its footer and trailer; both ends; all of it.
    let places = [vec![0..BLOCK], vec![9 * BLOCK..10 * BLOCK], vec![REGION - BLOCK..REGION]];
    let ends = vec![0..BLOCK, REGION - BLOCK..REGION];
    for bad in places.into_iter().chain([ends, vec![0..REGION]]) {
        let what = format!("{bad:?}");
        let media = Bad::of(vec![0; device_bytes(REGIONS) as usize]);
        let clock = Arc::new(Clock::manual(START));
        let flash = open(Arc::clone(&media) as _, &flushing(), &clock);
        set(&flash, b"deleted", b"old", 0).unwrap();
        assert!(write_over(&flash, 0), "{what}: nothing is bad yet");
        wait(flash.sync()).unwrap();
        delete(&flash, b"deleted").unwrap();
        let victim = region_of(&media, b"filler 200");
        // Some are read, so that they are worth carrying, and the region is read to carry them.
        for number in 190..210 {
            let name = format!("filler {number}");
            if region_of(&media, name.as_bytes()) == victim {
                assert!(get(&flash, name.as_bytes()).unwrap().is_some());
            }
        }
        *media.unreadable.lock() = bad.into_iter().map(|part| victim + part.start..victim + part.end).collect();
        assert!(write_over(&flash, 300), "{what}: writes wait for room that does not come");
        wait(flash.sync()).unwrap();
        let found = numbers(&flash);
        assert_eq!(found.regions_retired, 1, "{what}");
        assert!(found.io_errors > 0 && !found.off, "{what}: {found:?}");
        assert_eq!(get(&flash, b"filler 599").unwrap().unwrap(), [(599 % 256) as u8; 30_000], "{what}");
        flash.crash();

        let flash = open(Arc::clone(&media) as _, &flushing(), &clock);
        assert_eq!(numbers(&flash).regions_retired, 1, "{what}: it is remembered");
        assert_eq!(get(&flash, b"deleted").unwrap(), None, "{what}");
        assert!(get(&flash, b"filler 599").unwrap().is_some(), "{what}");
        assert!(write_over(&flash, 600), "{what}: after the restart");
        flash.crash();
        // When the block can be read again, nothing of what was in it comes back.
        media.unreadable.lock().clear();
        let flash = open(Arc::clone(&media) as _, &flushing(), &clock);
        assert_eq!(numbers(&flash).regions_retired, 1);
        assert!((0..600).all(|number| get(&flash, format!("filler {number}").as_bytes()).unwrap().is_none()), "{what}");
        flash.crash();
    }
}

/// Where the region begins on the device that a key's record is in.
fn region_of(media: &Bad, name: &[u8]) -> u64 {
    let image = media.memory.image();
    let at = image.windows(name.len()).position(|window| window == name).expect("it was written") as u64;
    HEAD + (at - HEAD) / REGION * REGION
}

#[test]
fn a_region_whose_ends_cannot_be_written_is_retired() {
    let media = Bad::of(vec![0; device_bytes(REGIONS) as usize]);
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &flushing(), &clock);
    assert!(write_over(&flash, 0));
    wait(flash.sync()).unwrap();
    let full = region_of(&media, b"filler 250");
    media.unwritable.lock().push(full..full + BLOCK);
    assert!(write_over(&flash, 300), "writes wait for room that does not come");
    wait(flash.sync()).unwrap();
    assert_eq!(numbers(&flash).regions_retired, 1);
    flash.crash();
    let flash = open(Arc::clone(&media) as _, &flushing(), &clock);
    assert!(get(&flash, b"filler 250").unwrap().is_none());
    assert!(get(&flash, b"filler 599").unwrap().is_some());
}

#[test]
fn a_tier_of_which_too_few_regions_are_left_is_off_and_says_so() {
    let media = Bad::of(vec![0; device_bytes(REGIONS) as usize]);
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &flushing(), &clock);
    assert!(write_over(&flash, 0));
    wait(flash.sync()).unwrap();
    // A block of each region.
    *media.unreadable.lock() = (0..REGIONS).map(|region| region_at(region)..region_at(region) + BLOCK).collect();
    assert!(!write_over_until_refused(&flash), "the tier goes on without regions");
    let notes = flash.health().notes;
    assert!(notes.iter().any(|note| note.contains("bad blocks")), "{notes:?}");
    assert!(numbers(&flash).off);
    flash.crash();
    let refused = Flash::open_on(vec![media as _], &flushing(), clock).expect_err("it is refused").to_string();
    assert!(refused.contains("have bad blocks") && refused.contains("replace the device"), "{refused}");
}

/// Writes until a write is refused; true if none is.
fn write_over_until_refused(flash: &Flash) -> bool {
    let (done, is_done) = channel();
    let writer = flash.clone();
    std::thread::spawn(move || {
        let is_taken = |number: u32| set(&writer, format!("later {number}").as_bytes(), &[1; 30_000], 0).is_ok();
        let _ = done.send((0..3000).all(is_taken));
    });
    is_done.recv_timeout(PATIENCE).expect("no write waits for ever")
}

/// A tier with old versions in a full region, and overwrites and deletes of all of them in one that was being filled when the
/// node was killed; after the latter a region that never was in use.
fn killed() -> (Vec<u8>, Arc<Clock>) {
    let media = MemoryMedia::new(device_bytes(REGIONS));
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    let names = || (0..50).map(|number| (format!("overwritten {number:02}"), format!("deleted {number:02}")));
    for (overwritten, deleted) in names() {
        set(&flash, overwritten.as_bytes(), b"old value", 0).unwrap();
        set(&flash, deleted.as_bytes(), b"old value", 0).unwrap();
    }
    for number in 0..12 {
        set(&flash, format!("filler {number}").as_bytes(), &[3; 30_000], 0).unwrap();
    }
    for (overwritten, deleted) in names() {
        set(&flash, overwritten.as_bytes(), b"new value", 0).unwrap();
        delete(&flash, deleted.as_bytes()).unwrap();
    }
    set(&flash, b"last", b"of its region", 0).unwrap();
    // In a region of another lifetime, which is the newest.
    set(&flash, b"newest", b"of all", 300).unwrap();
    wait(flash.sync()).unwrap();
    flash.crash();
    (media.image(), clock)
}

/// What shows of the keys, given bytes that cannot be read at the start: how many are as they were before their last change,
/// and how many are lost. Opened twice, since the first start may poison the second.
fn started(image: &[u8], clock: &Arc<Clock>, bad: &[Range<u64>]) -> (usize, usize) {
    let media = Bad::of(image.to_vec());
    *media.unreadable.lock() = bad.to_vec();
    let mut shown = None;
    for start in 0..3 {
        let flash = open(Arc::clone(&media) as _, &config(), clock);
        // A bad block may make the read of a key fail.
        let look = |name: String| get(&flash, name.as_bytes()).unwrap_or(None);
        let (mut old, mut lost) = (0, 0);
        for number in 0..50 {
            match look(format!("overwritten {number:02}")) {
                None => lost += 1,
                Some(value) => old += usize::from(value == b"old value"),
            }
            old += usize::from(look(format!("deleted {number:02}")).is_some());
        }
        if !bad.is_empty() && start == 0 {
            assert!(numbers(&flash).io_errors > 0, "nothing was counted");
        }
        assert!(
            *shown.get_or_insert((old, lost)) == (old, lost),
            "start {start}: {old} old, {lost} lost, not {shown:?}"
        );
        let name = format!("stored at start {start}");
        set(&flash, name.as_bytes(), b"x", 0).unwrap();
        wait(flash.sync()).unwrap();
        flash.crash();
        let flash = open(Arc::clone(&media) as _, &config(), clock);
        assert_eq!(get(&flash, name.as_bytes()).unwrap().as_deref(), Some(&b"x"[..]), "what is stored later is kept");
        flash.crash();
    }
    shown.expect("it was opened")
}

#[test]
fn a_block_that_a_start_cannot_read_brings_nothing_back() {
    let (image, clock) = killed();
    assert_eq!(started(&image, &clock, &[]), (0, 0));
    let at = |name: &[u8]| image.windows(name.len()).rposition(|window| window == name).unwrap() as u64;
    let filled = HEAD + (at(b"last") - HEAD) / REGION * REGION;
    let full = HEAD + (at(b"filler 0") - HEAD) / REGION * REGION;
    let last_block = at(b"new value") / BLOCK * BLOCK;
    assert_ne!(filled, full);
    let first_end = |region: u64| region..region + BLOCK;
    let last_end = |region: u64| region + REGION - BLOCK..region + REGION;
    for region in [full, filled] {
        let lost_max = if region == filled { 50 } else { 0 };
        for bad in [vec![first_end(region)], vec![last_end(region)], vec![first_end(region), last_end(region)]] {
            let (old, lost) = started(&image, &clock, &bad);
            assert_eq!(old, 0, "{bad:?}");
            assert!(lost <= lost_max, "{bad:?}: {lost} lost");
        }
        let (old, lost) = started(&image, &clock, &[region..region + REGION]);
        assert!(old == 0 && lost <= 50, "all of region {region}: {old} old, {lost} lost");
    }
    // A crash may have lost the other end already.
    for region in [full, filled] {
        for (lost_end, bad) in [(first_end(region), last_end(region)), (last_end(region), first_end(region))] {
            let mut image = image.clone();
            image[lost_end.start as usize..lost_end.end as usize].fill(0);
            let (old, lost) = started(&image, &clock, std::slice::from_ref(&bad));
            assert!(old == 0 && lost <= 50, "{lost_end:?} lost, {bad:?} bad: {old} old, {lost} lost");
        }
    }
    // A region without anything in it costs nothing.
    let unused = region_at(REGIONS - 1);
    assert_eq!(started(&image, &clock, &[first_end(unused), last_end(unused)]), (0, 0));
    // A block with records costs what is in it: of these an older version may show.
    let (old, lost) = started(&image, &clock, &[last_block..last_block + BLOCK]);
    assert!(old + lost <= 100);
}

#[test]
fn the_first_region_of_a_later_life_is_found_by_its_records_if_neither_end_can_be_read() {
    let clock = Arc::new(Clock::manual(START));
    let media = Bad::of(vec![0; device_bytes(REGIONS) as usize]);
    for value in [&b"old value"[..], b"new value"] {
        let flash = open(Arc::clone(&media) as _, &config(), &clock);
        // The first block has nothing else in it.
        set(&flash, b"first of its region", &[b'x'; 6000], 0).unwrap();
        set(&flash, b"overwritten", value, 0).unwrap();
        wait(flash.sync()).unwrap();
        flash.crash();
    }
    let new = region_of(&media, b"new value");
    assert_ne!(new, region_of(&media, b"old value"));
    *media.unreadable.lock() = vec![new..new + BLOCK, new + REGION - BLOCK..new + REGION];
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    assert_eq!(get(&flash, b"overwritten").unwrap(), None, "neither the new value nor the old one");
    flash.crash();
}

#[test]
fn a_start_that_can_read_next_to_nothing_is_refused_and_changes_nothing() {
    let (image, clock) = killed();
    let media = Bad::of(image.clone());
    media.unreadable.lock().push(HEAD..device_bytes(REGIONS));
    let refused = Flash::open_on(vec![Arc::clone(&media) as _], &config(), Arc::clone(&clock)).err();
    let refused = refused.expect("it is refused").to_string();
    assert!(refused.contains("most of a device cannot be read"), "{refused}");
    media.unreadable.lock().clear();
    assert_eq!(started(&media.memory.image(), &clock, &[]), (0, 0), "when it can be read again all is there");
}
