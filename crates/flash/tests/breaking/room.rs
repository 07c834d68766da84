//! An index that may not grow: what leaves it is still on the device, where the index knows nothing of it.
//!
//! Guards against two silent failures: a restart that brings back what was deleted or overwritten after it had left the
//! index, and a recovery that takes more memory than it may, or takes an old version for the newest because there was no
//! room for the newer one.

use std::collections::HashMap;
use std::sync::Arc;

use moneta_flash::testing::MemoryMedia;
use moneta_flash::{DeviceConfig, Flash, FlashConfig};
use moneta_store::Clock;

use crate::drive::{START, config, delete, device_bytes, get, numbers, open, set, wait};

/// The least memory of an index: a page for each of 16 shards.
const LEAST: u64 = 16 * (64 << 10);
/// Entries that such an index has room for: 1024 buckets a shard, of 8 slots each, of which one more than 7 in 8 are taken.
const ENTRIES: u64 = 16 * (7168 + 1);

fn bounded() -> FlashConfig {
    FlashConfig { index_bytes: LEAST, threads: 2, ..config() }
}

fn name(number: u32) -> Vec<u8> {
    format!("{number}").into_bytes()
}

fn value(number: u32, version: u32) -> Vec<u8> {
    format!("{number}:{version}").into_bytes()
}

/// Fills an index to its limit and beyond: of `keys` from 1,000,000 on.
fn fill(flash: &Flash, keys: u32) {
    for number in 1_000_000..1_000_000 + keys {
        set(flash, &name(number), b"filler", 0).unwrap();
    }
}

/// Kills the node when all is on the device.
fn kill(flash: Flash) {
    wait(flash.sync()).unwrap();
    flash.crash();
}

#[test]
fn an_index_at_its_limit_takes_no_more_memory_and_keeps_what_is_read_and_what_is_new() {
    let clock = Arc::new(Clock::manual(START));
    let flash = open(MemoryMedia::new(device_bytes(160)), &bounded(), &clock);
    for hot in 0..100 {
        set(&flash, &name(hot), &value(hot, 0), 0).unwrap();
        get(&flash, &name(hot)).unwrap();
    }
    fill(&flash, 300_000);
    let stats = numbers(&flash);
    assert_eq!((stats.index_bytes, stats.index_limit_bytes), (LEAST, LEAST));
    assert_eq!(stats.items + stats.index_evictions, 300_100, "each item is in the index, or was evicted from it");
    assert!((ENTRIES * 99 / 100..=ENTRIES).contains(&stats.items), "{} items", stats.items);
    assert_eq!(stats.evictions, stats.index_evictions, "the devices have room for all");
    let hot = (0..100).filter(|hot| get(&flash, &name(*hot)).unwrap() == Some(value(*hot, 0))).count();
    assert_eq!(hot, 100, "what was read goes last");
    let new = (1_290_000..1_300_000).filter(|number| get(&flash, &name(*number)).unwrap().is_some()).count();
    assert_eq!(new, 10_000, "what is new goes after what is old");
}

/// Evicts a key of each kind, does something to it, kills the node, and starts it with room for all.
#[test]
fn what_is_done_to_an_evicted_key_is_not_undone_by_a_restart() {
    let (media, clock) = (MemoryMedia::new(device_bytes(160)), Arc::new(Clock::manual(START)));
    let flash = open(media.clone(), &bounded(), &clock);
    // A region for what lives shortly, older than those of what is to be evicted.
    set(&flash, b"short", b"lived", 60).unwrap();
    for number in 0..1000 {
        set(&flash, &name(number), &value(number, 0), 0).unwrap();
    }
    fill(&flash, 200_000);
    let evicted: Vec<u32> = (0..1000).filter(|number| get(&flash, &name(*number)).unwrap().is_none()).collect();
    assert!(evicted.len() > 900, "only {} of a thousand left the index", evicted.len());
    for (place, number) in evicted.iter().enumerate() {
        match place % 2 {
            0 => drop(delete(&flash, &name(*number)).unwrap()),
            _ => drop(set(&flash, &name(*number), &value(*number, 1), 60).unwrap()),
        }
    }
    kill(flash);
    let flash = open(media, &config(), &clock);
    for (place, number) in evicted.iter().enumerate() {
        let expected = (place % 2 == 1).then(|| value(*number, 1));
        assert_eq!(get(&flash, &name(*number)).unwrap(), expected, "key {number}");
    }
}

#[test]
fn an_evicted_key_that_is_deleted_after_a_clean_stop_stays_deleted() {
    let (folder, clock) = (tempfile::tempdir().unwrap(), Arc::new(Clock::manual(START)));
    let devices = vec![DeviceConfig { path: folder.path().into(), bytes: device_bytes(160) }];
    let start = |index_bytes| {
        let config = FlashConfig { devices: devices.clone(), index_bytes, ..config() };
        Flash::open(&config, Arc::clone(&clock)).unwrap()
    };
    let flash = start(LEAST);
    for number in 0..1000 {
        set(&flash, &name(number), &value(number, 0), 0).unwrap();
    }
    fill(&flash, 200_000);
    let evicted: Vec<u32> = (0..1000).filter(|number| get(&flash, &name(*number)).unwrap().is_none()).collect();
    assert!(evicted.len() > 900, "only {} of a thousand left the index", evicted.len());
    drop(flash);
    let flash = start(LEAST);
    assert!(numbers(&flash).from_snapshot);
    for number in &evicted {
        delete(&flash, &name(*number)).unwrap();
    }
    kill(flash);
    let flash = start(u64::MAX);
    let back = evicted.iter().filter(|number| get(&flash, &name(**number)).unwrap().is_some()).count();
    assert_eq!(back, 0, "of {} deleted keys some are back", evicted.len());
}

#[test]
fn an_expired_version_keeps_the_evicted_one_before_it_away() {
    let (media, clock) = (MemoryMedia::new(device_bytes(70)), Arc::new(Clock::manual(START)));
    let flash = open(media.clone(), &bounded(), &clock);
    for number in 0..1000 {
        set(&flash, &name(number), &value(number, 0), 0).unwrap();
    }
    fill(&flash, 200_000);
    let evicted: Vec<u32> = (0..1000).filter(|number| get(&flash, &name(*number)).unwrap().is_none()).collect();
    assert!(evicted.len() > 900, "only {} of a thousand left the index", evicted.len());
    for number in &evicted {
        set(&flash, &name(*number), &value(*number, 1), 60).unwrap();
    }
    for number in 0..40 {
        // Fills the region in which all of that is.
        set(&flash, format!("short {number}").as_bytes(), &[0; 16 << 10], 60).unwrap();
    }
    clock.advance(100);
    let mut number = 0;
    while numbers(&flash).evictions == numbers(&flash).index_evictions {
        set(&flash, format!("long {number}").as_bytes(), &[0; 16 << 10], 0).unwrap();
        number += 1;
        assert!(number < 10_000, "no region is emptied");
    }
    kill(flash);
    let flash = open(media, &config(), &clock);
    let back = evicted.iter().filter(|number| get(&flash, &name(**number)).unwrap().is_some()).count();
    assert_eq!(back, 0, "of {} overwritten keys some are back", evicted.len());
}

/// Sets, overwrites and deletes at the limit, with lifetimes of all kinds; what the node then shows is what was stored last,
/// or nothing, whatever limits it is started with and whatever expires.
#[test]
fn recovery_obeys_the_limit_and_shows_no_old_version() {
    const KEYS: u32 = 200_000;
    let (media, clock) = (MemoryMedia::new(device_bytes(70)), Arc::new(Clock::manual(START)));
    let mut random = fastrand::Rng::with_seed(9);
    let mut newest: HashMap<u32, (u32, u32)> = HashMap::new();
    let mut version = 0;
    for limit in [LEAST, LEAST, u64::MAX] {
        let flash = open(media.clone(), &FlashConfig { index_bytes: limit, ..bounded() }, &clock);
        let stats = numbers(&flash);
        assert!(stats.index_bytes <= limit, "{} bytes of index", stats.index_bytes);
        let mut shown = 0;
        for number in 0..KEYS {
            let found = get(&flash, &name(number)).unwrap();
            shown += u64::from(found.is_some());
            let expected = newest.get(&number).filter(|(_, until)| *until > clock.now());
            let expected = expected.map(|(version, _)| value(number, *version));
            assert!(found.is_none() || found == expected, "key {number} shows {found:?}, not {expected:?}");
        }
        assert!(version == 0 || shown > ENTRIES / 2, "{shown} items are left");
        if limit == u64::MAX {
            break;
        }
        for step in 0..2 * KEYS {
            // What lives shortly expires meanwhile, and its regions may go before those of older versions.
            clock.advance(u32::from(step % 400 == 0));
            let number = random.u32(..KEYS);
            version += 1;
            if random.u8(..5) == 0 {
                delete(&flash, &name(number)).unwrap();
                newest.remove(&number);
            } else {
                let lifetime = [0, 0, 100, 5000, 50_000][random.usize(..5)];
                set(&flash, &name(number), &value(number, version), lifetime.into()).unwrap();
                let until = if lifetime == 0 { u32::MAX } else { clock.now() + lifetime };
                newest.insert(number, (version, until));
            }
        }
        assert!(numbers(&flash).index_evictions > 10_000);
        kill(flash);
    }
}
