//! Deletes read back from the log at a start, so that nothing older comes back after a restart either.
//!
//! Footers say where tombstones are, so only what lies around them is read. Regions are taken newest first, until those that are
//! left are older than tombstones live, or enough was read. If every delete is in the log, the *horizon* is as far back as was
//! read.

use std::io;

use moneta_store::{Key, Version};
use parking_lot::Mutex;

use crate::inner::Inner;
use crate::start::parallel::in_parallel;
use moneta_device::devices::TierState;
use moneta_device::format::BLOCK;
use moneta_device::format::record::{Salt, View};
use moneta_device::format::stamp::millis_of;
use moneta_device::io::Aligned;
use moneta_device::regions::list::list;
use moneta_device::regions::listing::Listed;
use moneta_device::regions::survey::{Survey, Use, survey};

/// Bytes read for one tombstone, and for those that follow it.
const WINDOW: usize = 64 << 10;
/// Bytes read in all, about: a start must not take long.
const READ_MAX: u64 = 2 << 30;
/// Bytes of memory of a remembered delete.
const DELETE_BYTES: u64 = 16;

/// A delete in the log.
struct Found {
    hash: u64,
    version: Version,
    /// When it was appended.
    stamp: u64,
}

/// The deletes in a region, and how many bytes were read for them.
type Deletes = (Vec<Found>, u64);

/// Remembers the deletes that the log has. `before`: what the superblocks said before this start; `whole`: nothing was damaged,
/// and nothing that was acknowledged is lost.
pub(crate) fn read_back(inner: &Inner, before: &TierState, whole: bool) {
    let versioning = &inner.config.versioning;
    let now = inner.clock.millis();
    let ttl = u64::from(versioning.tombstone_ttl) * 1000;
    let mut from = now.saturating_sub(ttl).max(millis_of(before.feed_from) + 1);
    let last = |region: usize| Version(inner.regions.get(region).summary().last).local();
    let mut regions: Vec<usize> =
        inner.regions.iter().filter(|(_, region)| region.sequence() != 0).map(|(number, _)| number).collect();
    regions.sort_unstable_by_key(|region| std::cmp::Reverse(last(*region)));
    let (mut found, mut read) = (Vec::new(), 0);
    for batch in regions.chunks(inner.config.threads.clamp(1, 64)) {
        let newest = millis_of(last(batch[0]));
        if newest < now.saturating_sub(ttl) {
            break;
        }
        if read > READ_MAX || found.len() as u64 * DELETE_BYTES > versioning.tombstone_bytes {
            from = from.max(newest + 1);
            break;
        }
        let results: Vec<Mutex<Option<io::Result<Deletes>>>> = batch.iter().map(|_| Mutex::default()).collect();
        in_parallel(inner, batch.len(), |number| *results[number].lock() = Some(of_region(inner, batch[number])));
        for (region, result) in batch.iter().zip(results) {
            match result.into_inner() {
                Some(Ok((deletes, bytes))) => {
                    found.extend(deletes);
                    read += bytes;
                }
                Some(Err(error)) => {
                    tracing::warn!(region, %error, "deletes of a region cannot be read back");
                    from = from.max(millis_of(last(*region)) + 1);
                }
                None => unreachable!("all were read"),
            }
        }
    }
    if whole && before.feed_from != 0 && from < now {
        inner.deletes.begin(versioning, from);
    }
    found.sort_unstable_by_key(|delete| delete.stamp);
    for Found { hash, version, stamp } in &found {
        inner.deletes.insert(inner.identities.number(*hash), *hash, *version, millis_of(*stamp).min(now));
    }
    tracing::info!(deletes = found.len(), mib = read >> 20, "deletes were read back from the SSD tier");
}

/// Reads a region's deletes.
fn of_region(inner: &Inner, region: usize) -> io::Result<Deletes> {
    let Survey::InUse(used) = survey(&inner.devices, region)? else {
        return Err(io::Error::other("it has lost its header"));
    };
    let listing = list(&inner.devices, region, &used, inner.devices.key_hash())?;
    let (mut found, mut read) = (Vec::new(), listing.bytes);
    let mut window: Option<(usize, Aligned)> = None;
    for record in listing.records.iter().filter(|record| record.is_tombstone) {
        let (start, end) = (record.offset as usize, (record.offset + record.length) as usize);
        let is_there = window.as_ref().is_some_and(|(from, bytes)| *from <= start && end <= from + bytes.len());
        if !is_there {
            let from = start / BLOCK * BLOCK;
            let most = inner.devices.region_bytes() - from;
            let mut bytes = Aligned::zeroed((end - from).next_multiple_of(BLOCK).max(WINDOW).min(most));
            let (device, region_start) = inner.devices.place(region);
            inner.devices.media(device).read_at(&mut bytes, region_start + from as u64)?;
            read += bytes.len() as u64;
            window = Some((from, bytes));
        }
        let (from, bytes) = window.as_ref().expect("it was read");
        found.extend(delete_at(inner, &used, record, &bytes[start - from..end - from]));
    }
    Ok((found, read))
}

/// The delete that a tombstone is, if it is sound and not one that hides a record here alone.
fn delete_at(inner: &Inner, used: &Use, record: &Listed, bytes: &[u8]) -> Option<Found> {
    let view = View::read(bytes)?;
    let is_sound = view.is_whole() && view.is_sound(Salt { key: used.salt, offset: record.offset });
    let version = view.version(used.base);
    let hash = Key::new(view.key(), inner.devices.key_hash()).hash;
    let stamp = Version(view.header.stamp(used.base)).local();
    (is_sound && version > Version::ZERO).then_some(Found { hash, version, stamp })
}
