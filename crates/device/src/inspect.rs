//! Inspection of a tier that no node has open: what `moneta flash inspect` shows.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;

use crate::devices::Devices;
use crate::error::TierError;
use crate::format::record::{Salt, View};
use crate::format::stamp::second_of;
use crate::regions::identity::{Identity, Shards};
use crate::regions::list::list;
use crate::regions::listing::Listing;
use crate::regions::salvage;
use crate::regions::survey::{Survey, Use, survey};

/// What is on the devices of a tier.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Identity of the tier.
    pub tier: u64,
    /// Devices it has, by its superblocks.
    pub tier_devices: u32,
    /// Devices that were inspected. With fewer than all, live and dead records cannot be told apart for certain.
    pub devices: usize,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// Regions with a lower sequence number are flushed.
    pub flushed_below: u64,
    /// Second at which a delayed flush takes effect; 0: none.
    pub flush_at: u32,
    /// Whether it was stopped cleanly and has a snapshot of its index.
    pub clean_stop: bool,
    /// Its regions, in their order on the devices.
    pub regions: Vec<RegionReport>,
}

/// What is in a region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionReport {
    /// Its number.
    pub region: usize,
    /// The device it is on, from 0.
    pub device: usize,
    /// Where on the device, in bytes.
    pub offset: u64,
    /// What it is doing.
    pub state: RegionState,
    /// Sequence number; 0 if it is free.
    pub sequence: u64,
    /// Unix second in which it was begun.
    pub begun: u32,
    /// Unix second in which it was full; 0 if it is not, or of format version 1, which does not tell.
    pub ended: u32,
    /// Bytes of its records.
    pub record_bytes: u64,
    /// Records, tombstones included.
    pub records: u64,
    /// Of these, tombstones.
    pub tombstones: u64,
    /// Records that are the newest of their keys; expired ones are among them.
    pub live: u64,
    /// Bytes of these.
    pub live_bytes: u64,
    /// The second in which the last of its records dies; `None` if one never does.
    pub dies_at: Option<u32>,
    /// How many parts are damaged: header, footer, records, and gaps in which no record can be recognised. All records are checked
    /// only with `verify`.
    pub damaged: u64,
}

/// What a region is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionState {
    /// It holds nothing.
    Free,
    /// It was flushed, with everything older, and waits to be used again.
    Flushed,
    /// It is full, with a footer.
    Full,
    /// It was being filled when the node ended.
    Open,
    /// The device cannot read it.
    Unreadable,
    /// It is in use, but for a block that the device did not write. It is retired when it is emptied.
    Bad,
    /// The device failed to read or write it, and it is out of use for good.
    Retired,
}

impl RegionState {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Flushed => "flushed",
            Self::Full => "full",
            Self::Open => "open",
            Self::Unreadable => "unreadable",
            Self::Bad => "bad",
            Self::Retired => "retired",
        }
    }
}

/// Inspects the devices of a tier; with `verify`, checks every record's checksum. `progress` is called with the number of
/// regions done and the total.
///
/// # Errors
/// If a path is not a Moneta device, or a node has it open. The devices are not changed.
pub fn inspect(
    paths: &[PathBuf],
    verify: bool,
    mut progress: impl FnMut(usize, usize),
) -> Result<Inspection, TierError> {
    let devices = Devices::inspect(paths)?;
    let state = devices.state();
    let mut regions: Vec<RegionReport> = (0..devices.regions()).map(|region| report(&devices, region)).collect();
    let mut used = Vec::new();
    let (retired, bad) = (devices.retired(), devices.bad());
    for (region, report) in regions.iter_mut().enumerate() {
        if retired.contains(&region) {
            report.state = RegionState::Retired;
            continue;
        }
        match survey(&devices, region) {
            Ok(Survey::Free) => {}
            Ok(Survey::InUse(found)) => {
                report.sequence = found.sequence;
                report.begun = if found.begun == 0 { second_of(found.base) } else { second_in(found.begun) };
                report.damaged += u64::from(found.damaged);
                report.state = match found.trailer {
                    _ if found.sequence < state.flushed_below => RegionState::Flushed,
                    Some(_) => RegionState::Full,
                    None => RegionState::Open,
                };
                if report.state != RegionState::Flushed {
                    used.push((region, found));
                }
                if bad.contains(&region) {
                    report.state = RegionState::Bad;
                }
            }
            Err(_) => report.state = RegionState::Unreadable,
        }
    }
    // Newest first, as recovery does: the first record of a key is its live one.
    used.sort_unstable_by_key(|(_, used)| std::cmp::Reverse(used.sequence));
    let mut seen = HashSet::new();
    let count = used.len();
    for (done, (region, used)) in used.into_iter().enumerate() {
        if fill(&devices, &mut regions[region], &used, &mut seen, verify).is_err() {
            regions[region].state = RegionState::Unreadable;
        }
        progress(done + 1, count);
    }
    Ok(Inspection {
        tier: devices.tier(),
        tier_devices: devices.tier_devices(),
        devices: devices.all().len(),
        region_bytes: devices.region_bytes() as u64,
        flushed_below: state.flushed_below,
        flush_at: state.flush_at,
        clean_stop: state.clean_stop != 0,
        regions,
    })
}

fn report(devices: &Devices, region: usize) -> RegionReport {
    let (device, offset) = devices.place(region);
    RegionReport {
        region,
        device,
        offset,
        state: RegionState::Free,
        sequence: 0,
        begun: 0,
        ended: 0,
        record_bytes: 0,
        records: 0,
        tombstones: 0,
        live: 0,
        live_bytes: 0,
        dies_at: None,
        damaged: 0,
    }
}

fn fill(
    devices: &Devices,
    report: &mut RegionReport,
    used: &Use,
    seen: &mut HashSet<Identity>,
    verify: bool,
) -> io::Result<()> {
    let identities = Shards::new(devices.shard_bits());
    let listing = list(devices, report.region, used, devices.key_hash())?;
    report.records = listing.records.len() as u64;
    report.ended = second_in(listing.span.ended);
    report.record_bytes = listing.records.iter().map(|record| u64::from(record.length)).sum();
    report.dies_at = (listing.summary.expiry_max != u32::MAX).then_some(listing.summary.expiry_max);
    for record in listing.records.iter().rev() {
        let newest = seen.insert(identities.identity(record.hash));
        if record.is_tombstone {
            report.tombstones += 1;
        } else if newest {
            report.live += 1;
            report.live_bytes += u64::from(record.length);
        }
    }
    report.damaged += if verify {
        listing.gaps.len() as u64 + damaged(devices, report.region, used, &listing)?
    } else {
        listing.damaged
    };
    Ok(())
}

fn second_in(milliseconds: u64) -> u32 {
    u32::try_from(milliseconds / 1000).unwrap_or(u32::MAX)
}

/// How many records of a region have checksums that do not fit.
fn damaged(devices: &Devices, region: usize, used: &Use, listing: &Listing) -> io::Result<u64> {
    let bytes = salvage::read(devices, region, 0..devices.region_bytes())?.bytes;
    let is_damaged = |record: &&crate::regions::listing::Listed| {
        let salt = Salt { key: used.salt, offset: record.offset };
        let view = bytes.get(record.offset as usize..).and_then(View::read).filter(View::is_whole);
        !view.is_some_and(|view| view.header.len() == record.length as usize && view.is_sound(salt))
    };
    Ok(listing.records.iter().filter(is_damaged).count() as u64)
}
