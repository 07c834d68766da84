//! A tier looked at from outside says what is on it and changes nothing.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use moneta_device::inspect::{RegionState, inspect};
use moneta_flash::{DeviceConfig, Flash, FlashConfig, Io};
use moneta_store::request::{Delete, Write};
use moneta_store::{Calls, Clock, Key, Step, Store};

/// Waits for a step's end.
fn finish<T>(step: Step<T>) -> T {
    match step {
        Step::Done(ended) => ended.unwrap(),
        Step::Wait(pending) => pollster::block_on(pending).unwrap(),
    }
}

#[test]
fn it_counts_live_and_dead_records_and_finds_damage() {
    let folder = tempfile::tempdir().unwrap();
    let mut config = FlashConfig::new(vec![DeviceConfig { path: folder.path().into(), bytes: 16 << 20 }]);
    config.region_bytes = 256 << 10;
    config.item_max = 32 << 10;
    config.io = Io::Threads;
    let flash = Flash::open(&config, Arc::new(Clock::manual(1_700_000_000))).unwrap();
    let store = |number: u32| {
        let name = format!("key {number}");
        finish(flash.set(&Key::new(name.as_bytes(), flash.seed()), &[7; 1000], &Write::default()));
    };
    (0..1000).for_each(store);
    (0..300).for_each(store);
    for number in 0..100 {
        let name = format!("key {number}");
        finish(flash.delete(&Key::new(name.as_bytes(), flash.seed()), &Delete::default()));
    }
    let paths = [folder.path().to_path_buf()];
    let refused = inspect(&paths, false, |_, _| {}).unwrap_err().to_string();
    assert!(refused.contains("running node"), "{refused}");
    drop(flash);

    let before = std::fs::read(folder.path().join("moneta.flash")).unwrap();
    let found = inspect(&paths, true, |_, _| {}).unwrap();
    let sum = |count: fn(&moneta_device::inspect::RegionReport) -> u64| found.regions.iter().map(count).sum::<u64>();
    assert_eq!(sum(|region| region.records), 1400);
    assert_eq!(sum(|region| region.tombstones), 100);
    assert_eq!(sum(|region| region.live), 900);
    assert_eq!(sum(|region| region.damaged), 0);
    assert!(found.clean_stop);
    assert!(found.regions.iter().any(|region| region.state == RegionState::Full));
    assert_eq!(std::fs::read(folder.path().join("moneta.flash")).unwrap(), before, "looking changed something");

    let full = found.regions.iter().find(|region| region.state == RegionState::Full).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(folder.path().join("moneta.flash")).unwrap();
    file.write_all_at(b"!", full.offset + 5000).unwrap();
    let found = inspect(&paths, true, |_, _| {}).unwrap();
    assert_eq!(found.regions[full.region].damaged, 1);
    assert_eq!(inspect(&paths, false, |_, _| {}).unwrap().regions[full.region].damaged, 0);
}
