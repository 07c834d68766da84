//! Configuration of the engine.

use std::sync::Arc;
use std::time::Duration;

use moneta_device::{DeviceConfig, Io, TierConfig};
use moneta_store::Progress;
use moneta_store::versions::Versioning;

/// A region holds at least this many of the largest items; with less, one large item could leave most of a region empty.
pub const ITEMS_PER_REGION: u64 = 4;

/// Configuration of the flash engine.
#[derive(Clone, Debug)]
pub struct FlashConfig {
    /// Where regions lie, at least one.
    pub devices: Vec<DeviceConfig>,
    /// Bytes of a region: a multiple of 4 KiB, at least 256 KiB and four times the largest item. A tier keeps the size it was
    /// created with.
    pub region_bytes: usize,
    /// Whether an existing tier may keep regions of another size, as long as they hold four of the largest items.
    pub region_bytes_kept: bool,
    /// Whether to start empty if the tier on the devices cannot be kept: one of its devices is missing, or smaller than before.
    /// Otherwise opening fails. A tier that can be kept is kept in either case.
    pub start_empty: bool,
    /// Largest value, in bytes.
    pub item_max: usize,
    /// How long a write may wait in RAM before the flusher writes it.
    pub flush_interval: Duration,
    /// When a write is acknowledged.
    pub durability: Durability,
    /// How long a write may wait for room or durability, and a read for its device, before the request fails.
    pub wait_limit: Duration,
    /// How long a stop may take to write what is in RAM, and the snapshot.
    pub stop_limit: Duration,
    /// How requests read devices.
    pub io: Io,
    /// Whether to bypass the page cache (`O_DIRECT`) where the file system supports that.
    pub direct: bool,
    /// Threads that read for requests when `io` is [`Io::Threads`] or a thread has no ring.
    pub io_threads: usize,
    /// Share of the written bytes, in percent, that may be records carried forward from emptied regions.
    pub carry_percent: u8,
    /// Bytes of memory that the index may take; at least a page of 64 KiB for each of its shards (16 to 4096, by the size of the
    /// tier). An item takes about 9.2 bytes. At the limit, new items push others out of the index.
    pub index_bytes: u64,
    /// Threads that will use the engine; recovery uses as many.
    pub threads: usize,
    /// How versions are made, and which deletes are remembered.
    pub versioning: Versioning,
    /// Whether the log is kept as a feed: this is one of several copies, and every change of it comes here.
    pub feed: bool,
    /// Counts the regions that recovery has read.
    pub progress: Arc<Progress>,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// When the write is in RAM; it reaches the device within the flush interval.
    Interval,
    /// When the write is on the device. Writes of all connections share syncs (group commit).
    EveryWrite,
}

impl FlashConfig {
    /// Defaults for the devices given.
    pub fn new(devices: Vec<DeviceConfig>) -> Self {
        Self {
            devices,
            region_bytes: 8 << 20,
            region_bytes_kept: false,
            start_empty: false,
            item_max: 1 << 20,
            flush_interval: Duration::from_secs(1),
            durability: Durability::Interval,
            wait_limit: Duration::from_secs(5),
            stop_limit: Duration::from_secs(60),
            io: Io::Auto,
            direct: true,
            io_threads: 8,
            carry_percent: 5,
            index_bytes: u64::MAX,
            threads: 4,
            versioning: Versioning::default(),
            feed: false,
            progress: Arc::default(),
        }
    }

    /// What of it the devices are opened by.
    pub(crate) fn tier(&self) -> TierConfig {
        let least = ITEMS_PER_REGION * self.item_max as u64;
        TierConfig {
            devices: self.devices.clone(),
            region_bytes: self.region_bytes,
            region_bytes_kept: self.region_bytes_kept.then_some(least),
            start_empty: self.start_empty,
            direct: self.direct,
        }
    }
}
