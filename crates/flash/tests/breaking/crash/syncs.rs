//! A sync that fails once, and what is promised by the next one that succeeds.
//!
//! Guards against a retry that has nothing to write any more, succeeds, and declares what the failed sync lost to be on the
//! device.

use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use moneta_flash::testing::{Odds, VolatileMedia};
use moneta_flash::{Flash, FlashConfig};
use moneta_store::Clock;

use super::super::drive::{START, config, device_bytes, get, numbers, open, set, wait};

/// How long anything is waited for that must come.
const PATIENCE: Duration = Duration::from_secs(60);
const KEYS: usize = 40;
/// Seven values fill a region.
const VALUE: usize = 36_000;

fn name(key: usize) -> Vec<u8> {
    format!("key {key}").into_bytes()
}

fn value(key: usize, version: u8) -> Vec<u8> {
    let mut value = vec![version; VALUE];
    value[0] = key as u8;
    value
}

fn until(what: &str, mut reached: impl FnMut() -> bool) {
    let started = Instant::now();
    while !reached() {
        assert!(started.elapsed() < PATIENCE, "waited for nothing: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn sets(flash: &Flash, keys: std::ops::Range<usize>, version: u8) {
    keys.for_each(|key| {
        set(flash, &name(key), &value(key, version), 0).expect("a set");
    });
}

/// Writes two versions of some keys; the sync of the second fails, the one after it succeeds. What a crash then leaves.
fn after_a_failed_sync(seed: u64, forgets: bool) -> Vec<Option<u8>> {
    let media = VolatileMedia::of(vec![0; device_bytes(32) as usize], seed);
    let clock = Arc::new(Clock::manual(START));
    let config = FlashConfig { flush_interval: Duration::from_secs(3), ..config() };
    let flash = open(Arc::clone(&media) as _, &config, &clock);
    sets(&flash, 0..KEYS, 1);
    wait(flash.sync()).expect("a sync");
    // Full regions are written without a sync, and their buffers let go.
    sets(&flash, 0..KEYS, 2);
    until("full regions are written", || numbers(&flash).regions_sealed == 0);
    media.set(Odds { syncs: 1, forgets, ..Odds::default() });
    wait(flash.sync()).expect_err("the sync fails");
    assert!(numbers(&flash).off);
    media.set(Odds::default());
    until("the tier is back", || !numbers(&flash).off);
    wait(flash.sync()).expect("a sync");
    let mut replay = media.replay();
    media.log().iter().for_each(|event| replay.apply(event));
    flash.crash();
    let image = replay.image(&mut Rng::with_seed(seed));
    let flash = open(VolatileMedia::of(image, 0), &config, &clock);
    let shown = |key| {
        let shown = get(&flash, &name(key)).expect("a get")?;
        assert_eq!(shown, value(key, shown[1]), "key {key}");
        Some(shown[1])
    };
    (0..KEYS).map(shown).collect()
}

#[test]
fn what_a_failed_sync_lost_is_written_again() {
    for seed in 0..6 {
        let shown = after_a_failed_sync(seed, false);
        assert_eq!(shown, vec![Some(2); KEYS], "seed {seed}");
    }
}

#[test]
fn what_a_failed_sync_lost_for_good_leaves_nothing_older() {
    let mut lost = 0;
    for seed in 0..6 {
        let shown = after_a_failed_sync(seed, true);
        let old: Vec<_> = shown.iter().enumerate().filter(|(_, shown)| **shown == Some(1)).collect();
        assert!(old.is_empty(), "seed {seed}: old versions of {old:?}");
        lost += shown.iter().filter(|shown| shown.is_none()).count();
    }
    assert!(lost > 0, "no sync that failed lost anything");
}
