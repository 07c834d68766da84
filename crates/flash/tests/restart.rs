//! What a tier brings back, after a clean stop and after a crash.

use std::sync::Arc;
use std::time::Duration;

use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, ItemRef, Key, Lookup, Pending, Step, Store};
use tempfile::TempDir;

struct Tier {
    folder: TempDir,
    clock: Arc<Clock>,
}

impl Tier {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), clock: Arc::new(Clock::manual(1_700_000_000)) }
    }

    fn open(&self) -> Flash {
        let path = self.folder.path().to_path_buf();
        let mut config = FlashConfig::new(vec![DeviceConfig { path, bytes: 64 << 20 }]);
        config.region_bytes = 512 << 10;
        config.item_max = 64 << 10;
        config.io = Io::Threads;
        config.flush_interval = Duration::from_millis(10);
        Flash::open(&config, Arc::clone(&self.clock)).unwrap()
    }
}

fn wait<T>(pending: Pending<T>) -> T {
    pollster::block_on(pending).unwrap()
}

fn finish<T>(step: Step<T>) -> T {
    match step {
        Step::Done(ended) => ended.unwrap(),
        Step::Wait(pending) => wait(pending),
    }
}

fn key(flash: &Flash, number: u32) -> (Vec<u8>, u64) {
    let bytes = format!("key {number}").into_bytes();
    let hash = Key::new(&bytes, flash.seed()).hash;
    (bytes, hash)
}

fn set(flash: &Flash, number: u32, value: &[u8]) {
    let (bytes, hash) = key(flash, number);
    finish(flash.set(&Key { bytes: &bytes, hash }, value, &Write::default()));
}

fn get(flash: &Flash, number: u32) -> Option<Vec<u8>> {
    let (bytes, hash) = key(flash, number);
    let mut seen = None;
    let mut visitor = |item: &ItemRef<'_>| seen = Some(item.value.to_vec());
    match finish(flash.get(&Key { bytes: &bytes, hash }, &Retrieve::default(), &mut visitor)) {
        Lookup::Visited => seen,
        Lookup::Found(item) => Some(item.value.into_vec()),
        Lookup::Miss { .. } => None,
    }
}

fn delete(flash: &Flash, number: u32) {
    let (bytes, hash) = key(flash, number);
    finish(flash.delete(&Key { bytes: &bytes, hash }, &Delete::default()));
}

fn value(number: u32, version: u32) -> Vec<u8> {
    format!("{number}:{version};").repeat(1 + number as usize % 300).into_bytes()
}

/// Writes, overwrites and deletes; tells which version each key has then.
fn fill(flash: &Flash) -> impl Fn(u32) -> Option<u32> + use<> {
    for version in 0..3 {
        for number in 0..5000 {
            if version == 0 || number % (version + 1) == 0 {
                set(flash, number, &value(number, version));
            }
        }
    }
    for number in (0..5000).step_by(7) {
        delete(flash, number);
    }
    |number| match number {
        n if n % 7 == 0 => None,
        n if n % 3 == 0 => Some(2),
        n if n % 2 == 0 => Some(1),
        _ => Some(0),
    }
}

fn check(flash: &Flash, version: impl Fn(u32) -> Option<u32>) {
    for number in 0..5000 {
        assert_eq!(get(flash, number), version(number).map(|version| value(number, version)), "key {number}");
    }
}

#[test]
fn a_clean_stop_leaves_everything_and_a_snapshot() {
    let tier = Tier::new();
    let flash = tier.open();
    let version = fill(&flash);
    check(&flash, &version);
    drop(flash);
    let flash = tier.open();
    assert!(flash.numbers().from_snapshot);
    check(&flash, &version);
    // It has not been stopped since: this must not be taken for the snapshot of now.
    delete(&flash, 1);
    wait(flash.sync());
    flash.crash();
    let flash = tier.open();
    assert!(!flash.numbers().from_snapshot);
    check(&flash, |number| if number == 1 { None } else { version(number) });
}

#[test]
fn a_crash_loses_nothing_that_was_synced() {
    let tier = Tier::new();
    let flash = tier.open();
    let version = fill(&flash);
    wait(flash.sync());
    flash.crash();
    let flash = tier.open();
    check(&flash, &version);
}

#[test]
fn what_is_flushed_stays_flushed() {
    let tier = Tier::new();
    let flash = tier.open();
    let _ = fill(&flash);
    finish(flash.flush(Exptime(0)));
    set(&flash, 4, b"new");
    wait(flash.sync());
    flash.crash();
    let flash = tier.open();
    assert_eq!(get(&flash, 4).as_deref(), Some(&b"new"[..]));
    assert!((0..5000).filter(|number| *number != 4).all(|number| get(&flash, number).is_none()));
    assert_eq!(flash.stats().items, 1);
}

#[test]
fn a_flush_that_waits_comes_after_a_restart() {
    let tier = Tier::new();
    let flash = tier.open();
    set(&flash, 1, b"old");
    finish(flash.flush(Exptime(60)));
    wait(flash.sync());
    flash.crash();
    let flash = tier.open();
    assert_eq!(get(&flash, 1).as_deref(), Some(&b"old"[..]));
    tier.clock.advance(60);
    assert_eq!(get(&flash, 1), None);
}
