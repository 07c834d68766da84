//! Blocks that a device loses: zeros or rubbish where records were, then opened again and read.
//!
//! Guards against a lost block that undoes deletes and overwrites which lie elsewhere, and against one that is not noticed.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use fastrand::Rng;
use moneta_device::inspect::inspect;
use moneta_flash::testing::MemoryMedia;
use moneta_store::Clock;

use super::drive::{HEAD, REGION, START, config, delete, device_bytes, get, numbers, open, set, wait};

const BLOCK: usize = 4096;
const REGIONS: u64 = 20;
/// Keys that are overwritten, and as many that are deleted.
const KEYS: usize = 100;

fn value(name: &str, version: &str) -> Vec<u8> {
    [name, " ", version, "."].concat().repeat(6).into_bytes()
}

/// Old versions in a full region, then a region that is being filled when the node is killed: a block of other things first,
/// then overwrites and deletes of all that is old.
fn image() -> (Vec<u8>, Arc<Clock>) {
    let media = MemoryMedia::new(device_bytes(REGIONS));
    let clock = Arc::new(Clock::manual(START));
    let flash = open(Arc::clone(&media) as _, &config(), &clock);
    let store = |name: String, version: &str| {
        set(&flash, name.as_bytes(), &value(&name, version), 0).expect("a set");
    };
    for number in 0..KEYS {
        store(format!("overwritten {number:03}"), "old");
        store(format!("deleted {number:03}"), "old");
    }
    let filled = || numbers(&flash).regions_sealed + numbers(&flash).regions_closed;
    for number in 0.. {
        if filled() > 0 {
            break;
        }
        set(&flash, format!("filler {number}").as_bytes(), &[b'f'; 9000], 0).expect("a set");
    }
    set(&flash, b"first of its region", &[b'x'; 6000], 0).expect("a set");
    for number in 0..KEYS {
        store(format!("overwritten {number:03}"), "new");
        assert!(delete(&flash, format!("deleted {number:03}").as_bytes()).is_ok());
    }
    set(&flash, b"last of its region", b"x", 0).expect("a set");
    wait(flash.sync()).expect("a sync");
    flash.crash();
    (media.image(), clock)
}

/// Where a key's newest record is: the place of its value, or of its tombstone's key.
fn place(image: &[u8], needle: &[u8]) -> usize {
    let found = image.windows(needle.len()).rposition(|window| window == needle);
    found.expect("it was written")
}

/// Keys that show what they showed before their last change, and those that show nothing and should not.
struct Shown {
    old: Vec<String>,
    missed: Vec<String>,
    damage: u64,
}

fn shown(image: Vec<u8>, clock: &Arc<Clock>) -> Shown {
    let flash = open(MemoryMedia::of(image), &config(), clock);
    let mut shown = Shown { old: Vec::new(), missed: Vec::new(), damage: 0 };
    for number in 0..KEYS {
        let name = format!("overwritten {number:03}");
        match get(&flash, name.as_bytes()).expect("a get") {
            None => shown.missed.push(name),
            Some(found) if found == value(&name, "old") => shown.old.push(name),
            Some(found) => assert_eq!(found, value(&name, "new")),
        }
        let name = format!("deleted {number:03}");
        if get(&flash, name.as_bytes()).expect("a get").is_some() {
            shown.old.push(name);
        }
    }
    shown.damage = numbers(&flash).checksum_failures;
    flash.crash();
    shown
}

/// What `moneta flash inspect --verify` counts as damaged.
fn inspected(image: &[u8]) -> u64 {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("device");
    let file = std::fs::File::create(&path).expect("a file");
    file.write_all_at(image, 0).expect("the image is written");
    let found = inspect(&[path], true, |_, _| {}).expect("it can be looked at");
    found.regions.iter().map(|region| region.damaged).sum()
}

/// The region that the key is in, from its start.
fn region_of(at: usize) -> usize {
    HEAD as usize + (at - HEAD as usize) / REGION as usize * REGION as usize
}

#[test]
fn the_first_block_of_a_region_that_was_being_filled_is_lost_and_what_follows_counts() {
    let (mut image, clock) = image();
    let sound = shown(image.clone(), &clock);
    assert_eq!((sound.old.len(), sound.missed.len(), sound.damage, inspected(&image)), (0, 0, 0, 0));
    let start = region_of(place(&image, b"last of its region"));
    image[start..start + BLOCK].fill(0);
    let damaged = shown(image.clone(), &clock);
    assert!(
        damaged.old.is_empty(),
        "{} keys show what was overwritten or deleted: {:?}",
        damaged.old.len(),
        damaged.old
    );
    assert_eq!(damaged.missed, Vec::<String>::new());
    assert!(damaged.damage > 0, "nothing was counted");
    assert!(inspected(&image) > 0, "nothing is damaged, says the inspection");
}

#[test]
fn any_block_of_a_region_that_was_being_filled_is_lost_and_costs_what_was_in_it() {
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let (image, clock) = image();
    let last = place(&image, b"last of its region");
    let start = region_of(last);
    // The block in which the log ends is not among them: what is lost there was never written, as far as can be told.
    for block in start / BLOCK..last / BLOCK {
        let lost = block * BLOCK..(block + 1) * BLOCK;
        let mut damaged = image.clone();
        if rng.bool() {
            damaged[lost.clone()].fill(0);
        } else {
            rng.fill(&mut damaged[lost.clone()]);
        }
        let what = format!("block {} of the region", block - start / BLOCK);
        let shown = shown(damaged.clone(), &clock);
        for name in &shown.old {
            let needle = if name.starts_with("deleted") { name.clone().into_bytes() } else { value(name, "new") };
            let at = place(&image, &needle);
            let record = at.saturating_sub(64)..at + needle.len();
            assert!(
                record.start < lost.end && lost.start < record.end,
                "{what}: {name} is as it was, and lies elsewhere"
            );
        }
        for name in &shown.missed {
            let at = place(&image, &value(name, "new"));
            // A record is a miss if one after it in its block may be newer.
            assert!(at + BLOCK > lost.start && at < lost.end, "{what}: {name} is a miss, and lies elsewhere");
        }
        assert!(shown.damage > 0, "{what}: nothing was counted");
        assert!(inspected(&damaged) > 0, "{what}: nothing is damaged, says the inspection");
    }
}
