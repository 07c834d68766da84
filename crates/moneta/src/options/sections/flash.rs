//! The options of the SSD tier as what its engine is told, checked against each other and against the rest.

use std::path::Path;

use moneta_flash::{DeviceConfig, Durability, FlashConfig, ITEMS_PER_REGION, Io};

use crate::options::machine;
use crate::options::report::Refusal;
use crate::options::resolve::{Entry, Resolved};
use crate::options::settings::{duration, narrow, number, switch, word};
use crate::options::table::Id;
use crate::options::value::{KIB, Kind, MIB, Value};

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
    pub fn new(resolved: &Resolved) -> Self {
        let devices = devices(resolved);
        let engine = FlashConfig {
            devices,
            region_bytes: narrow(resolved, Id::FlashRegionSize),
            region_bytes_kept: !resolved.is_set(Id::FlashRegionSize),
            start_empty: switch(resolved, Id::FlashStartEmpty),
            item_max: narrow(resolved, Id::MaxItemSize),
            flush_interval: duration(resolved, Id::FlashFlushInterval),
            durability: match word(resolved, Id::FlashDurability) {
                "every-write" => Durability::EveryWrite,
                _ => Durability::Interval,
            },
            wait_limit: duration(resolved, Id::FlashTimeout),
            stop_limit: duration(resolved, Id::FlashStopTimeout),
            io: match word(resolved, Id::FlashIo) {
                "uring" => Io::Uring,
                "threads" => Io::Threads,
                _ => Io::Auto,
            },
            direct: switch(resolved, Id::FlashDirect),
            io_threads: narrow(resolved, Id::FlashIoThreads),
            carry_percent: percent(resolved, Id::FlashCarry),
            index_bytes: index_bytes(resolved),
            threads: narrow(resolved, Id::Threads),
            progress: Default::default(),
        };
        Self { engine }
    }
}

/// What the index may take: what was said, or half of what the RAM tier leaves, so that buffers and connections have the
/// other half.
fn index_bytes(resolved: &Resolved) -> u64 {
    match number(resolved, Id::FlashIndexMemory) {
        0 => (machine::memory().saturating_sub(number(resolved, Id::Memory)) / 2).max(INDEX_LEAST),
        bytes => bytes,
    }
}

/// Lets the default size of regions follow the largest item. One that was chosen stays.
pub fn fit_regions(resolved: &mut Resolved) {
    let Kind::Size { max, .. } = Id::FlashRegionSize.spec().kind else { unreachable!("it is a size") };
    let least = (ITEMS_PER_REGION * number(resolved, Id::MaxItemSize)).next_power_of_two().min(max);
    let is_default = !devices(resolved).is_empty() && !resolved.is_set(Id::FlashRegionSize);
    if is_default && number(resolved, Id::FlashRegionSize) < least {
        let entry = resolved.entry(Id::FlashRegionSize).clone();
        resolved.replace(Entry { value: Value::Size(least), ..entry });
    }
}

/// What cannot be had together, as far as the options alone tell; what lies on the devices is the engine's to judge.
pub fn contradictions(resolved: &Resolved) -> Vec<Refusal> {
    let devices = devices(resolved);
    let mut refusals = Vec::new();
    for (position, device) in devices.iter().enumerate() {
        if devices[..position].iter().any(|other| other.path == device.path) {
            refusals.push(Refusal::entry(resolved.entry(Id::Flash), &twice(&device.path)));
        }
    }
    let region = number(resolved, Id::FlashRegionSize);
    let item = resolved.entry(Id::MaxItemSize);
    let least = ITEMS_PER_REGION * number(resolved, Id::MaxItemSize);
    let Kind::Size { max, .. } = Id::FlashRegionSize.spec().kind else { unreachable!("it is a size") };
    if least > max {
        let range = format!("at most {} where items are kept on SSD", Value::Size(max / ITEMS_PER_REGION));
        refusals.push(Refusal::entry(item, &range));
    } else if !region.is_multiple_of(BLOCK) {
        refusals.push(Refusal::entry(resolved.entry(Id::FlashRegionSize), "a multiple of 4KiB"));
    } else if region < least {
        let range = format!(
            "at least {}, four times the largest value, which is {} ({})",
            Value::Size(least.next_multiple_of(BLOCK)),
            item.value,
            item.origin
        );
        refusals.push(Refusal::entry(resolved.entry(Id::FlashRegionSize), &range));
    }
    refusals
}

fn twice(path: &Path) -> String {
    format!("different devices, and {} stands there twice", path.display())
}

fn devices(resolved: &Resolved) -> Vec<DeviceConfig> {
    match resolved.value(Id::Flash) {
        Value::Devices(devices) => devices.clone(),
        other => unreachable!("the table makes these devices, not {other:?}"),
    }
}

fn percent(resolved: &Resolved, id: Id) -> u8 {
    match resolved.value(id) {
        Value::Percent(share) => *share,
        other => unreachable!("the table makes {id:?} a share, not {other:?}"),
    }
}
