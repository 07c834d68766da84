//! The options of the SSD tier as what its engine is told, checked against each other and against the rest.

use std::path::Path;

use moneta_flash::{DeviceConfig, Durability, FlashConfig, Io};
use moneta_store::Promotion;

use crate::options::report::Refusal;
use crate::options::resolve::Resolved;
use crate::options::settings::{duration, narrow, number, switch, word};
use crate::options::table::{Group, Id, TABLE};
use crate::options::value::{KIB, Value};

/// What devices are read and written in.
const BLOCK: u64 = 4 * KIB;
/// Largest items that a region has to have room for, at least: else one of them could leave most of a region empty.
const ITEMS_PER_REGION: u64 = 4;

/// What the SSD tier was asked for.
#[derive(Clone, Debug)]
pub struct FlashSettings {
    /// What the engine is told.
    pub engine: FlashConfig,
    /// Bytes a day that may be written; `None`: any.
    pub write_budget: Option<u64>,
    /// Which hits bring their item into RAM.
    pub promotion: Promotion,
}

impl FlashSettings {
    /// The SSD tier that is in force; `None` if no device was named.
    pub fn new(resolved: &Resolved) -> Option<Self> {
        let devices = devices(resolved);
        if devices.is_empty() {
            return None;
        }
        let engine = FlashConfig {
            devices,
            region_bytes: narrow(resolved, Id::FlashRegionSize),
            item_max: narrow(resolved, Id::MaxItemSize),
            flush_interval: duration(resolved, Id::FlashFlushInterval),
            durability: match word(resolved, Id::FlashDurability) {
                "every-write" => Durability::EveryWrite,
                _ => Durability::Interval,
            },
            io: match word(resolved, Id::FlashIo) {
                "uring" => Io::Uring,
                "threads" => Io::Threads,
                _ => Io::Auto,
            },
            direct: switch(resolved, Id::FlashDirect),
            io_threads: narrow(resolved, Id::FlashIoThreads),
            carry_percent: percent(resolved, Id::FlashCarry),
            threads: narrow(resolved, Id::Threads),
        };
        let budget = number(resolved, Id::FlashWriteBudget);
        Some(Self { engine, write_budget: (budget > 0).then_some(budget), promotion: promotion(resolved) })
    }
}

/// What cannot be had together, as far as the options alone tell; what lies on the devices is the engine's to judge.
pub fn contradictions(resolved: &Resolved) -> Vec<Refusal> {
    let devices = devices(resolved);
    if devices.is_empty() {
        return without_devices(resolved);
    }
    let mut refusals = Vec::new();
    for (position, device) in devices.iter().enumerate() {
        if devices[..position].iter().any(|other| other.path == device.path) {
            refusals.push(Refusal::entry(resolved.entry(Id::Flash), &twice(&device.path)));
        }
    }
    let region = number(resolved, Id::FlashRegionSize);
    let item = resolved.entry(Id::MaxItemSize);
    let least = ITEMS_PER_REGION * number(resolved, Id::MaxItemSize);
    if !region.is_multiple_of(BLOCK) {
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

/// An option of a tier that is not there would have no effect. At its default it does no harm: a file may list them all.
fn without_devices(resolved: &Resolved) -> Vec<Refusal> {
    let tier = TABLE.iter().filter(|spec| spec.group == Group::Flash && spec.id != Id::Flash);
    let changed = tier.filter(|spec| spec.kind.read(spec.default).as_ref() != Some(resolved.value(spec.id)));
    changed
        .map(|spec| {
            Refusal::entry(resolved.entry(spec.id), "given together with flash, which says where items are kept")
        })
        .collect()
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

fn promotion(resolved: &Resolved) -> Promotion {
    match resolved.value(Id::Promote) {
        Value::Promotion(promotion) => *promotion,
        other => unreachable!("the table makes this a promotion, not {other:?}"),
    }
}
