//! Requests as plain calls: what has to wait is waited for on the calling thread.

use std::sync::Arc;
use std::time::Duration;

use moneta_flash::{DeviceConfig, Flash, FlashConfig, FlashStats, Io, Media};
use moneta_store::request::{Delete, Exptime, Retrieve, Write};
use moneta_store::{Calls, Clock, Deleted, ItemRef, Key, Lookup, Pending, Step, Store, StoreError, Written};

/// Bytes of a region: the least there are, so that many fit into a small image.
pub const REGION: u64 = 256 << 10;
/// Bytes before the first region.
pub const HEAD: u64 = 1 << 20;
/// The second at which tests begin.
pub const START: u32 = 1_700_000_000;

/// Bytes of a device with so many regions.
pub fn device_bytes(regions: u64) -> u64 {
    HEAD + regions * REGION
}

/// A configuration for a device that a test made. Nothing is flushed but when it must be.
pub fn config() -> FlashConfig {
    let devices = vec![DeviceConfig { path: "unused".into(), bytes: 0 }];
    FlashConfig {
        region_bytes: REGION as usize,
        item_max: 48 << 10,
        io: Io::Threads,
        io_threads: 1,
        threads: 1,
        carry_percent: 30,
        wait_limit: Duration::from_secs(120),
        flush_interval: Duration::from_secs(3600),
        ..FlashConfig::new(devices)
    }
}

/// Opens a tier on one device.
pub fn open(media: Arc<dyn Media>, config: &FlashConfig, clock: &Arc<Clock>) -> Flash {
    Flash::open_on(vec![media], config, Arc::clone(clock)).expect("the tier opens")
}

/// Waits for what is pending.
pub fn wait<T>(pending: Pending<T>) -> Result<T, StoreError> {
    pollster::block_on(pending)
}

/// Waits for a step's end.
pub fn finish<T>(step: Step<T>) -> Result<T, StoreError> {
    match step {
        Step::Done(ended) => ended,
        Step::Wait(pending) => wait(pending),
    }
}

/// A key as a store takes it.
pub fn key<'a>(store: &impl Store, name: &'a [u8]) -> Key<'a> {
    Key::new(name, store.seed())
}

/// Reads with the options of `request`.
pub fn get_with(store: &impl Store, name: &[u8], request: &Retrieve) -> Result<Option<Vec<u8>>, StoreError> {
    let mut seen = None;
    let mut visitor = |item: &ItemRef<'_>| seen = Some(item.value.to_vec());
    Ok(match finish(store.get(&key(store, name), request, &mut visitor))? {
        Lookup::Visited => seen,
        Lookup::Found(item) => Some(item.value.into_vec()),
        Lookup::Miss { .. } => None,
    })
}

/// Reads.
pub fn get(store: &impl Store, name: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
    get_with(store, name, &Retrieve::default())
}

/// Stores, and tells the CAS value.
pub fn set(store: &impl Store, name: &[u8], value: &[u8], exptime: i64) -> Result<u64, StoreError> {
    let request = Write { exptime: Exptime(exptime), ..Write::default() };
    match finish(store.set(&key(store, name), value, &request))? {
        Written::Stored { cas } => Ok(cas),
        other => panic!("a plain set ended in {other:?}"),
    }
}

/// Deletes.
pub fn delete(store: &impl Store, name: &[u8]) -> Result<Deleted, StoreError> {
    finish(store.delete(&key(store, name), &Delete::default()))
}

/// What the engine says of itself.
pub fn numbers(flash: &Flash) -> FlashStats {
    flash.numbers()
}
