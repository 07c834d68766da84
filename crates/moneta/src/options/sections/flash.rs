//! The SSD tier.

use std::path::Path;
use std::time::Duration;

use moneta_flash::{Durability, FlashConfig, ITEMS_PER_REGION, Io};
use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::{Milliseconds, Number, Share, Size, Switch};
use moneta_options::kinds::units::{Bytes, KIB, MIB, TIB};
use moneta_options::kinds::words::Choice;
use moneta_options::report::Refusal;
use moneta_options::section;
use moneta_options::values::Values;

use crate::options::kinds::device::Devices;
use crate::options::machine;
use crate::options::sections::memory::{MAX_ITEM_SIZE, MEMORY};
use crate::options::sections::workers::THREADS;

section! {
    "SSD tier";

    /// Keep all items on SSD as well: a directory, file or block device, and how much of it to use; may be repeated.
    FLASH: Devices = Opt::new("flash", Devices, Vec::new).example("[\"/var/lib/moneta:10g\"]")
        .when("When the data is larger than RAM or must survive a restart (ssd-tier.md).");

    /// Bytes of a region, which is written and given up as a whole: a multiple of 4 KiB, and at least four times --max-item-size.
    /// Not set, it is larger where that is over 2 MiB; a tier that is there keeps its size, if that is enough.
    FLASH_REGION_SIZE: Size<usize> = Opt::new("flash_region_size", Size::in_bytes(256 * KIB, REGION_MAX), || 8 << 20)
        .adjusted(|options, default| if options.get(&FLASH).is_empty() { default } else { default.max(fitting_region(options)) })
        .when("Larger for larger values, with empty devices.");

    /// Start with an empty SSD tier where a device is missing or smaller; else such a start is refused.
    FLASH_START_EMPTY: Switch = Opt::new("flash_start_empty", Switch, || false)
        .when("For one start, after a device was lost for good.");

    /// How long a write may wait in RAM before it is on its way to the device: what a crash may cost.
    FLASH_FLUSH_INTERVAL: Milliseconds =
        Opt::new("flash_flush_interval", Milliseconds { min: 10, max: 60_000 }, || Duration::from_secs(1))
            .when("Shorter to lose less, by more and smaller writes.");

    /// When a write is acknowledged: once it is in RAM (interval), or once the device has it (every-write).
    FLASH_DURABILITY: Choice<Durability> = Opt::new(
        "flash_durability",
        Choice(&[("interval", Durability::Interval), ("every-write", Durability::EveryWrite)]),
        || Durability::Interval,
    )
    .when("every-write where not even the last interval may be lost.");

    /// How long a write may wait for the devices, and a read for its device, before it fails; a tier that takes no write for as
    /// long is off until it does.
    FLASH_TIMEOUT: Milliseconds =
        Opt::new("flash_timeout", Milliseconds { min: 10, max: 3_600_000 }, || Duration::from_secs(5))
            .when("Shorter where clients give up sooner; longer where bulk loads should wait.");

    /// How long a stop may take to write what is in RAM alone and a snapshot of the index.
    FLASH_STOP_TIMEOUT: Milliseconds =
        Opt::new("flash_stop_timeout", Milliseconds { min: 10, max: 3_600_000 }, || Duration::from_secs(60))
            .when("Longer for billions of items on a slow device.");

    /// Go round the kernel's page cache, where the file system lets it.
    FLASH_DIRECT: Switch = Opt::new("flash_direct", Switch, || true)
        .when("Off where the page cache should have RAM that --memory does not use.");

    /// How requests read the devices; auto: io_uring where the kernel allows it.
    FLASH_IO: Choice<Io> = Opt::new(
        "flash_io",
        Choice(&[("auto", Io::Auto), ("uring", Io::Uring), ("threads", Io::Threads)]),
        || Io::Auto,
    )
    .when("uring to refuse to start without it.");

    /// Threads that read the devices where io_uring is not used.
    FLASH_IO_THREADS: Number<usize> = Opt::new("flash_io_threads", Number { min: 1, max: 1_024 }, || 8)
        .when("Higher on devices that want many reads at once.");

    /// Share of the bytes written that may be lately read items carried forward out of the oldest region.
    FLASH_CARRY: Share = Opt::new("flash_carry", Share { max: 90 }, || 5)
        .when("Higher to keep longer what is read, for that much more written.");

    /// Memory for the index of the SSD tier: about 9.2 bytes an item. At the limit, new items push others out. 0 takes half of
    /// what --memory leaves of the machine's memory, or of its control group's.
    FLASH_INDEX_MEMORY: Size<u64> = Opt::new("flash_index_memory", Size::in_bytes(0, 64 * TIB), || 0)
        .when("Where moneta_flash_index_evictions_total grows.");

    /// Bytes a day that may be written to SSD; 0 sets no limit. What is over it stays in RAM alone.
    FLASH_WRITE_BUDGET: Size<u64> = Opt::new("flash_write_budget", Size::in_bytes(0, 1_024 * TIB), || 0)
        .when("When the load would wear the device out.");
}

/// The largest region, bytes.
const REGION_MAX: u64 = 256 * MIB;

/// What devices are read and written in.
const BLOCK: u64 = 4 * KIB;

/// What the index may take at least unless it is told otherwise, however much of the machine's memory the RAM tier is given.
const INDEX_LEAST: u64 = 64 * MIB;

/// What the SSD tier was asked for.
#[derive(Clone, Debug)]
pub struct FlashSettings {
    /// What the engine is told.
    pub engine: FlashConfig,
}

impl FlashSettings {
    /// The SSD tier in force.
    pub fn new(options: &Values) -> Self {
        let engine = FlashConfig {
            devices: options.get(&FLASH),
            region_bytes: options.get(&FLASH_REGION_SIZE),
            region_bytes_kept: !options.is_set(&FLASH_REGION_SIZE),
            start_empty: options.get(&FLASH_START_EMPTY),
            item_max: options.get(&MAX_ITEM_SIZE),
            flush_interval: options.get(&FLASH_FLUSH_INTERVAL),
            durability: options.get(&FLASH_DURABILITY),
            wait_limit: options.get(&FLASH_TIMEOUT),
            stop_limit: options.get(&FLASH_STOP_TIMEOUT),
            io: options.get(&FLASH_IO),
            direct: options.get(&FLASH_DIRECT),
            io_threads: options.get(&FLASH_IO_THREADS),
            carry_percent: options.get(&FLASH_CARRY),
            index_bytes: index_bytes(options),
            threads: options.get(&THREADS),
            versioning: Default::default(),
            feed: false,
            progress: Default::default(),
        };
        Self { engine }
    }
}

/// What the index may take: what was said, or half of what the RAM tier leaves, so that buffers and connections have the
/// other half.
fn index_bytes(options: &Values) -> u64 {
    match options.get(&FLASH_INDEX_MEMORY) {
        0 => (machine::memory().saturating_sub(options.get(&MEMORY)) / 2).max(INDEX_LEAST),
        bytes => bytes,
    }
}

/// Bytes that a region needs for the largest item, up to a power of two and to the largest region.
fn fitting_region(options: &Values) -> usize {
    let fitting = region_min(options).next_power_of_two().min(REGION_MAX);
    usize::try_from(fitting).unwrap_or(usize::MAX)
}

/// Bytes that a region must have for the largest item.
fn region_min(options: &Values) -> u64 {
    ITEMS_PER_REGION * options.get(&MAX_ITEM_SIZE) as u64
}

/// What cannot be had together, as far as the options alone tell; what lies on the devices is the engine's to judge.
pub fn contradictions(options: &Values) -> Vec<Refusal> {
    let devices = options.get(&FLASH);
    let mut refusals = Vec::new();
    for (position, device) in devices.iter().enumerate() {
        if devices[..position].iter().any(|other| other.path == device.path) {
            refusals.push(options.refuse(&FLASH, &twice(&device.path)));
        }
    }
    let (region, least) = (options.get(&FLASH_REGION_SIZE) as u64, region_min(options));
    if least > REGION_MAX {
        let range = format!("at most {} where items are kept on SSD", Bytes(REGION_MAX / ITEMS_PER_REGION));
        refusals.push(options.refuse(&MAX_ITEM_SIZE, &range));
    } else if !region.is_multiple_of(BLOCK) {
        refusals.push(options.refuse(&FLASH_REGION_SIZE, "a multiple of 4KiB"));
    } else if region < least {
        let range = format!(
            "at least {}, four times the largest value, which is {} ({})",
            Bytes(least.next_multiple_of(BLOCK)),
            Bytes(options.get(&MAX_ITEM_SIZE) as u64),
            options.origin(&MAX_ITEM_SIZE)
        );
        refusals.push(options.refuse(&FLASH_REGION_SIZE, &range));
    }
    refusals
}

fn twice(path: &Path) -> String {
    format!("different devices, and {} stands there twice", path.display())
}
