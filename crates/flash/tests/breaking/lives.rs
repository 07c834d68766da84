//! Records that reached a device without their region's header, and what becomes of them when a later life of the node fills
//! that region.
//!
//! Guards against a region number that is given out twice. Checksums of records are salted with the number: what a lost use
//! of a region left behind would pass for records of the next use that has the number, and for newer ones.

use std::sync::Arc;
use std::time::Duration;

use moneta_flash::testing::{Event, VolatileMedia};
use moneta_flash::{Flash, FlashConfig};
use moneta_store::request::Exptime;
use moneta_store::{Calls, Clock};

use super::drive::{HEAD, REGION, START, config, device_bytes, finish, get, numbers, open, set, wait};

const BLOCK: u64 = 4096;
const SECTOR: usize = 512;
const REGIONS: u64 = 20;

/// The value of the key that is looked at, in a life.
fn value(life: u8) -> Vec<u8> {
    vec![life; 1000]
}

/// The life whose value the key has.
fn shown(flash: &Flash) -> Option<u8> {
    get(flash, b"key").expect("a get").map(|found| found[0])
}

/// One life on a device that begins with `image`: what was on the device for good when `work` began, and what was written
/// from then on.
fn live(image: Vec<u8>, clock: &Arc<Clock>, work: impl FnOnce(&Flash)) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
    let media = VolatileMedia::of(image, 1);
    let flash = open(Arc::clone(&media) as _, &config(), clock);
    let begun = media.events();
    work(&flash);
    wait(flash.sync()).expect("a sync");
    flash.crash();
    let (mut replay, log) = (media.replay(), media.log());
    log[..begun].iter().for_each(|event| replay.apply(event));
    assert_eq!(replay.cached(), 0, "a start ends with a sync");
    let writes = log[begun..].iter().filter_map(|event| match event {
        Event::Write(offset, bytes) => Some((*offset, bytes.clone())),
        _ => None,
    });
    (replay.image(&mut fastrand::Rng::with_seed(1)), writes.collect())
}

/// Writes those sectors of some writes that `stays` says.
fn survive(image: &mut [u8], writes: &[(u64, Vec<u8>)], stays: impl Fn(u64) -> bool) {
    for (offset, bytes) in writes {
        for (number, sector) in bytes.chunks(SECTOR).enumerate() {
            let at = offset + (number * SECTOR) as u64;
            if stays(at) {
                image[at as usize..at as usize + sector.len()].copy_from_slice(sector);
            }
        }
    }
}

/// Whether a sector is the first or in the last block of a region: where its header and the copy of that are.
fn is_end(at: u64) -> bool {
    let within = (at - HEAD) % REGION;
    at >= HEAD && (within < SECTOR as u64 || within >= REGION - BLOCK)
}

/// A device on which a key's value was written and never synced: it lost the header of the region and its copy, and has all
/// the rest. So to a restart the region is free, and the key holds nothing.
fn headless(clock: &Arc<Clock>) -> Vec<u8> {
    let (mut image, writes) = live(vec![0; device_bytes(REGIONS) as usize], clock, |flash| {
        // In blocks that the next use does not come to, and at the start of one.
        set(flash, b"before", &[b'b'; 5000], 0).expect("a set");
        set(flash, b"key", &value(1), 0).expect("a set");
    });
    survive(&mut image, &writes, |at| !is_end(at));
    assert!(image.windows(1000).any(|window| window == value(1)), "the record is there");
    let flash = open(VolatileMedia::of(image.clone(), 1), &config(), clock);
    assert_eq!(shown(&flash), None);
    assert_eq!(numbers(&flash).regions_free, REGIONS);
    flash.crash();
    image
}

#[test]
fn what_a_lost_use_of_a_region_left_behind_is_not_newer_than_what_the_next_use_has_and_synced() {
    let clock = Arc::new(Clock::manual(START));
    let (mut image, writes) = live(headless(&clock), &clock, |flash| {
        set(flash, b"key", &value(2), 0).expect("a set");
    });
    survive(&mut image, &writes, |_| true);
    let flash = open(VolatileMedia::of(image, 1), &config(), &clock);
    assert_eq!(shown(&flash), Some(2), "synced, and nothing happened since");
    flash.crash();
}

#[test]
fn what_a_lost_use_of_a_region_left_behind_does_not_show_when_the_next_use_is_lost_too() {
    let clock = Arc::new(Clock::manual(START));
    let (mut image, writes) = live(headless(&clock), &clock, |flash| {
        set(flash, b"other", &[b'o'; 3000], 0).expect("a set");
    });
    // This time the header is there, and hardly a record.
    survive(&mut image, &writes, |at| at < HEAD || is_end(at));
    let flash = open(VolatileMedia::of(image, 1), &config(), &clock);
    assert_eq!(get(&flash, b"other").expect("a get"), None);
    assert_eq!(shown(&flash), None, "it held nothing when this life began");
    flash.crash();
}

#[test]
fn no_number_of_a_region_is_given_out_again_however_many_lives_are_cut_short() {
    let clock = Arc::new(Clock::manual(START));
    let mut image = vec![0; device_bytes(REGIONS) as usize];
    for life in 1..6 {
        let writes;
        (image, writes) = live(image, &clock, |flash| {
            set(flash, b"before", &vec![b'b'; 5000 * usize::from(life)], 0).expect("a set");
            set(flash, b"key", &value(life), 0).expect("a set");
        });
        survive(&mut image, &writes, |at| !is_end(at));
    }
    let (mut image, writes) = live(image, &clock, |flash| {
        set(flash, b"other", b"o", 0).expect("a set");
    });
    survive(&mut image, &writes, is_end);
    let flash = open(VolatileMedia::of(image, 1), &config(), &clock);
    assert_eq!(shown(&flash), None);
    flash.crash();
}

/// The sequence number in each header of a region among the bytes of a write.
fn headers(bytes: &[u8]) -> Vec<u64> {
    let found = bytes.chunks(64).filter(|chunk| chunk.starts_with(b"MONETARG"));
    found.map(|header| u64::from_le_bytes(header[24..32].try_into().expect("eight bytes"))).collect()
}

#[test]
fn superblocks_have_a_number_before_a_region_has_it_however_many_there_are() {
    let clock = Arc::new(Clock::manual(START));
    let media = VolatileMedia::of(vec![0; device_bytes(REGIONS) as usize], 1);
    let config = FlashConfig { wait_limit: Duration::from_secs(20), ..config() };
    let flash = open(Arc::clone(&media) as _, &config, &clock);
    for number in 0..3000 {
        set(&flash, b"key", &value(1), 0).unwrap_or_else(|error| panic!("set {number}: {error:?}"));
        finish(flash.flush(Exptime(0))).expect("a flush");
        if number % 7 == 0 {
            set(&flash, b"key", &value(2), 0).expect("a set");
            wait(flash.sync()).expect("a sync");
        }
    }
    flash.crash();
    let (mut written, mut synced, mut highest, mut raised) = (0, 0, 0, 0);
    for event in media.log() {
        match event {
            Event::Write(offset, bytes) if offset < HEAD => {
                written = u64::from_le_bytes(bytes[136..144].try_into().expect("eight bytes"));
            }
            Event::Write(_, bytes) => {
                highest = headers(&bytes).into_iter().fold(highest, u64::max);
                assert!(highest <= synced, "a region has the number {highest}, and superblocks {synced}");
            }
            Event::Sync => {
                raised += u32::from(written != synced);
                synced = written;
            }
            Event::Lost(_) => panic!("no sync fails"),
        }
    }
    assert!(highest > 2500 && raised > 3, "{highest}, {raised}");
}
