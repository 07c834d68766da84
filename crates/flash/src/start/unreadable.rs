//! Regions that a start cannot read, so that their contents, or even their sequence numbers, are unknown.
//!
//! Any key may have been overwritten or deleted in such a region, so everything older is in doubt. If only its ends are
//! unreadable, its records give the sequence number and the keys: only those keys are lost. Otherwise everything in doubt is
//! dropped.

use std::collections::HashSet;
use std::io;

use crate::counters::count;
use crate::inner::Inner;
use moneta_device::TierError;
use moneta_device::devices::TierState;
use moneta_device::regions::salvage;
use moneta_device::regions::scan::identify;
use moneta_device::regions::survey::Use;

/// Most regions that may have been begun after the newest readable one, if superblocks do not limit their numbers.
const NEWER_MAX: u64 = 64;

/// A region with both ends unreadable, or with one unreadable and the other blank or left from a flushed use.
pub(crate) struct Unreadable {
    pub(crate) region: usize,
    pub(crate) error: io::Error,
}

/// Identifies regions with unreadable ends, given the readable ones: adds them to these, or retires them.
///
/// # Errors
/// If a quarter of all regions cannot be read, which is more than some bad blocks. Nothing is changed then.
pub(crate) fn settle(
    inner: &Inner,
    used: &mut Vec<(usize, Use)>,
    unreadable: Vec<Unreadable>,
) -> Result<(), TierError> {
    count(&inner.counters.io_errors, unreadable.len() as u64);
    let is_too_many = unreadable.len() * 4 >= inner.regions.len();
    let mut in_doubt = Vec::new();
    for Unreadable { region, error } in unreadable {
        tracing::error!(region, %error, "neither end of a region can be read");
        if is_too_many {
            return Err(TierError::Start { what: "the SSD tier: most of a device cannot be read", source: error });
        }
        match look_inside(inner, region, used) {
            Inside::Records(found) => used.push((region, found)),
            Inside::Nothing => retire(inner, region),
            Inside::Unknown => in_doubt.push(region),
        }
    }
    let newest = used.iter().map(|(_, used)| used.sequence).max();
    for region in in_doubt {
        distrust(inner, region, newest.unwrap_or(0), used);
        used.clear();
    }
    Ok(())
}

/// The contents of a region with unreadable ends.
enum Inside {
    Records(Use),
    /// Nothing that matters.
    Nothing,
    /// Too little of it can be read to tell.
    Unknown,
}

fn look_inside(inner: &Inner, region: usize, used: &[(usize, Use)]) -> Inside {
    let taken: HashSet<u64> = used.iter().map(|(_, used)| used.sequence).collect();
    let (Some(oldest), Some(newest)) = (taken.iter().min(), taken.iter().max()) else { return Inside::Nothing };
    let floor = inner.devices.state().region_floor;
    let last = if floor == 0 { newest + NEWER_MAX } else { *newest.max(&floor) };
    // A region older than all others hides nothing.
    let sequences: Vec<u64> = (*oldest..=last).filter(|sequence| !taken.contains(sequence)).collect();
    let region_bytes = inner.devices.region_bytes();
    let Ok(found) = salvage::read(&inner.devices, region, 0..region_bytes) else { return Inside::Unknown };
    match identify(&found.bytes, &sequences, inner.devices.seed()) {
        Some((sequence, salt)) => {
            // The CAS values of its records are lost; the base of the region before it is lower than all of them.
            let before = used.iter().filter(|(_, used)| used.sequence < sequence).map(|(_, used)| used.base).max();
            Inside::Records(Use {
                sequence,
                base: before.unwrap_or(0),
                salt,
                begun: 0,
                trailer: None,
                damaged: true,
                unreadable: true,
                headless: true,
            })
        }
        None if found.lost < region_bytes / 2 => Inside::Nothing,
        None => Inside::Unknown,
    }
}

/// Retires an unreadable region, and drops everything not newer than `sequence`, the highest number the region can have.
pub(crate) fn distrust(inner: &Inner, region: usize, sequence: u64, older: &[(usize, Use)]) {
    tracing::error!(
        region,
        regions = older.len(),
        "a region cannot be read: it may have had newer versions of all that is as old as it, which is dropped"
    );
    let below = sequence + 1;
    let state = inner.devices.state();
    let state = TierState { flushed_below: state.flushed_below.max(below), ..state };
    if let Err(error) = inner.devices.save_twice(&state) {
        tracing::error!(%error, "the superblocks cannot be written");
    }
    for (region, _) in older {
        inner.regions.get(*region).end();
        inner.regions.give_back(*region);
    }
    retire(inner, region);
}

fn retire(inner: &Inner, region: usize) {
    inner.regions.retire(region);
    match inner.devices.retire(region) {
        Ok(()) => tracing::error!(region, "a region has bad blocks: it is in use no more"),
        Err(error) => tracing::error!(region, %error, "it cannot be written down that a region is bad"),
    }
}
