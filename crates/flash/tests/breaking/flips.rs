//! Flipped bits: anywhere on the device, then opened again and read.
//!
//! Guards against damage that passes for data, and against an old version that shows when the newest one is damaged.

use std::sync::Arc;

use fastrand::Rng;
use moneta_flash::testing::MemoryMedia;
use moneta_store::{Calls, Clock};

use super::drive::{HEAD, REGION, START, config, delete, device_bytes, get, numbers, open, set, wait};
use super::history::{History, name, value};

const REGIONS: u64 = 20;
const KEYS: usize = 300;
/// Bytes of a sector, and of a superblock.
const SUPERBLOCK: usize = 4096;

/// An image with several versions of most keys, some of them next to each other, in full regions and in open ones.
fn image(rng: &mut Rng) -> (Vec<u8>, History, Arc<Clock>) {
    let media = MemoryMedia::new(device_bytes(REGIONS));
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    let mut history = History::new(KEYS);
    for _ in 0..400 {
        let number = rng.usize(0..KEYS);
        for _ in 0..rng.usize(1..4) {
            let version = history.next_version(number);
            let exptime = [0, 0, 300, 7000][rng.usize(0..4)];
            set(&flash, &name(number), &value(number, version), exptime).expect("a set");
            let expiry = if exptime == 0 { u32::MAX } else { START + exptime as u32 };
            history.note(number, Some(version), expiry);
        }
        if rng.u8(0..10) == 0 {
            delete(&flash, &name(number)).expect("a delete");
            history.note(number, None, u32::MAX);
        }
    }
    // The last record of a region that is being filled cannot be told from one that was never wholly written.
    for exptime in [0, 300, 7000, 80_000] {
        set(&flash, format!("last {exptime}").as_bytes(), b"of its region", exptime).expect("a set");
    }
    wait(flash.sync()).expect("a sync");
    assert_eq!(numbers(&flash).evictions, 0, "nothing is gone by itself");
    // In good order: the trailers of full regions are there, too.
    flash.close_all();
    (media.image(), history, clock)
}

/// Reads all keys of an image: each is its newest version or a miss. Tells how many are misses that need not be, and how
/// much damage was counted.
fn read_all(image: Vec<u8>, history: &History, clock: &Arc<Clock>, what: &str) -> (usize, u64) {
    let flash = open(MemoryMedia::of(image), &config(), clock);
    let mut missed = 0;
    for number in history.keys() {
        let shown = get(&flash, &name(number)).expect("a get");
        let newest = history.operations();
        if let Err(wrong) = history.check(number, shown.as_deref(), newest, clock.now(), true) {
            panic!("{what}: {wrong}");
        }
        let exact = history.check(number, shown.as_deref(), newest, clock.now(), false);
        missed += usize::from(exact.is_err());
    }
    let counted = numbers(&flash).checksum_failures;
    flash.crash();
    (missed, counted)
}

fn seeded() -> Rng {
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    Rng::with_seed(seed)
}

#[test]
fn a_bit_flipped_anywhere_is_a_miss_and_counted() {
    let mut rng = seeded();
    let mut lost = 0;
    for _ in 0..3 {
        let (image, history, clock) = image(&mut rng);
        assert_eq!(read_all(image.clone(), &history, &clock, "undamaged"), (0, 0));
        // Where something is: a flip elsewhere shows nothing.
        let used: Vec<usize> = (HEAD as usize..image.len()).filter(|at| image[*at] != 0).collect();
        for _ in 0..150 {
            let at = used[rng.usize(0..used.len())];
            let bit = rng.u8(0..8);
            let mut damaged = image.clone();
            damaged[at] ^= 1 << bit;
            let region = (at - HEAD as usize) / REGION as usize;
            let what = format!("bit {bit} of byte {} of region {region}", (at - HEAD as usize) % REGION as usize);
            let (missed, counted) = read_all(damaged, &history, &clock, &what);
            assert!(missed == 0 || counted > 0, "{what}: {missed} missed, and nothing was counted");
            lost += missed;
        }
    }
    assert!(lost > 0, "no flip hit anything that is read");
}

/// Flips in headers, trailers and footers, of which random ones are few.
#[test]
fn a_bit_flipped_at_either_end_of_a_region_loses_nothing_else() {
    let mut rng = seeded();
    let (image, history, clock) = image(&mut rng);
    for region in 0..REGIONS as usize {
        let start = HEAD as usize + region * REGION as usize;
        let end = start + REGION as usize;
        for range in [start..start + 64, end - 64..end, end - 200..end - 64] {
            for _ in 0..4 {
                let at = rng.usize(range.clone());
                let bit = rng.u8(0..8);
                let mut damaged = image.clone();
                damaged[at] ^= 1 << bit;
                let what = format!("bit {bit} of byte {} of region {region}", at - start);
                let (missed, _) = read_all(damaged, &history, &clock, &what);
                assert_eq!(missed, 0, "{what}: no record was damaged");
            }
        }
    }
}

#[test]
fn damage_to_one_copy_of_the_superblock_is_survived() {
    let mut rng = seeded();
    let (image, history, clock) = image(&mut rng);
    for copy in 0..2 {
        for _ in 0..20 {
            let at = copy * SUPERBLOCK + rng.usize(0..SUPERBLOCK);
            let mut damaged = image.clone();
            damaged[at] ^= 1 << rng.u8(0..8);
            let (missed, _) = read_all(damaged, &history, &clock, &format!("byte {at} of the superblocks"));
            assert_eq!(missed, 0, "byte {at} of the superblocks");
        }
    }
}
