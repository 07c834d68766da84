//! Recovery of the index: from the snapshot of a clean stop, else from the footers of all regions.
//!
//! Regions are taken newest first, and the records of each last first, so the first record met of an identity is its newest and
//! later ones are skipped. During recovery tombstones have entries too, which keep older records out. When the index may not
//! grow any more, all remaining records are older than those it has, and are left out. All threads read devices in parallel;
//! then each enters the records of the shards assigned to it, so that no thread waits for a lock.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::io::Errno;

use crate::config::Durability;
use crate::counters::count;
use crate::index::location::Location;
use crate::inner::Inner;
use crate::log::regions::{RegionStage, SEQUENCES_AHEAD};
use crate::log::sequence::floor_above_lost;
use crate::reclaim::sweep::sweep;
use crate::start::batches::batches;
use crate::start::buried;
use crate::start::enter::enter;
use crate::start::parallel::{in_parallel, threads};
use crate::start::snapshot;
use crate::start::unreadable::{self, Unreadable};
use moneta_device::TierError;
use moneta_device::devices::TierState;
use moneta_device::format::BLOCK;
use moneta_device::regions::list::list;
use moneta_device::regions::listing::{Listed, Listing};
use moneta_device::regions::survey::{Survey, Use, survey};
use moneta_store::{Origin, Version};

/// How often progress is logged.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// Fills the index, the table of regions and the list of free ones.
///
/// # Errors
/// If the superblocks cannot be written.
pub(crate) fn recover(inner: &Inner, fresh: bool) -> Result<(), TierError> {
    inner.devices.retired().into_iter().for_each(|region| inner.regions.retire(region));
    inner.devices.bad().into_iter().for_each(|region| inner.regions.get(region).set_bad(true));
    let before = inner.devices.state();
    if fresh {
        (0..inner.regions.len()).for_each(|region| inner.regions.give_back(region));
    } else {
        bring_back(inner)?;
    }
    // What is stored from now on is newer than every flush, and than what readers of the feed were told.
    let floors = inner.floors.known();
    let told = Version::new(before.feed_from.max(before.lost), Origin::default());
    inner.log.sequence.raise(floors.newest.max(floors.bound).max(told).0);
    // Written before anything else, for the next start: no snapshot is valid, and CAS values and the sequence numbers of regions
    // begin above these floors.
    let is_whole = |counter: &AtomicU64| counter.load(Ordering::Relaxed) == 0;
    let counters = &inner.counters;
    let whole = !fresh && is_whole(&counters.checksum_failures) && is_whole(&counters.io_errors);
    let killed = !fresh && before.clean_stop == 0;
    if inner.config.versioning.cluster && !fresh {
        let is_durable = !killed || inner.config.durability == Durability::EveryWrite;
        buried::read_back(inner, &before, whole && is_durable);
    }
    let (feed_from, lost) = inner.begin_telling(&before, whole, killed);
    inner.devices.set_feed(feed_from, lost);
    let sequence_floor = inner.log.sequence.next_floor();
    let region_floor = inner.regions.upcoming_sequence() + SEQUENCES_AHEAD;
    let state = TierState { clean_stop: 0, sequence_floor, region_floor, ..inner.devices.state() };
    let saved = inner.devices.save_twice(&state);
    saved.map_err(|source| TierError::Start { what: "with the superblocks", source })?;
    inner.regions.allow_sequences(region_floor);
    inner.log.sequence.allow(sequence_floor);
    snapshot::remove(inner);
    Ok(())
}

fn bring_back(inner: &Inner) -> Result<(), TierError> {
    if snapshot::load(inner) {
        inner.from_snapshot.store(true, Ordering::Relaxed);
    } else {
        from_footers(inner)?;
    }
    let newest = inner.regions.iter().map(|(_, region)| region.sequence()).max().unwrap_or(0);
    let state = inner.devices.state();
    // A region whose header was lost has a number too, and what is left of its records must pass for nothing in a later use.
    let floor = if state.region_floor == 0 { newest + SEQUENCES_AHEAD } else { state.region_floor };
    inner.regions.raise_sequence(newest.max(state.flushed_below).max(floor));
    let oldest = inner.regions.iter().map(|(_, region)| region.sequence()).filter(|sequence| *sequence != 0).min();
    inner.regions.note_oldest(oldest.unwrap_or(0));
    let last = inner.regions.iter().map(|(_, region)| region.summary().last.max(region.base())).max();
    let last = last.unwrap_or(0);
    inner.log.sequence.raise(last);
    if state.clean_stop == 0 {
        let (interval, ahead) = (inner.config.flush_interval, inner.config.versioning.skew_max);
        inner.log.sequence.raise(floor_above_lost(last, interval, inner.clock.millis(), ahead));
    }
    count(&inner.counters.recovered_items, inner.items());
    Ok(())
}

fn from_footers(inner: &Inner) -> Result<(), TierError> {
    let started = Instant::now();
    let (mut used, unreadable) = survey_all(inner);
    unreadable::settle(inner, &mut used, unreadable)?;
    used.sort_unstable_by_key(|(_, used)| std::cmp::Reverse(used.sequence));
    let entering = Entering::new(inner.shard_count());
    let mut told = Instant::now();
    inner.config.progress.begin(used.len() as u64);
    let mut done = 0;
    for batch in batches(&used, inner.devices.region_bytes()) {
        let listings = list_all(inner, batch);
        enter_all(inner, &listings, &entering);
        if listings.len() < batch.len() {
            let (unread, older) = used[done + listings.len()..].split_first().expect("one is missing");
            unreadable::distrust(inner, unread.0, unread.1.sequence, older);
            break;
        }
        done += batch.len();
        count(&inner.counters.recovered_regions, batch.len() as u64);
        inner.config.progress.advance(batch.len() as u64);
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            tracing::info!(done, all = used.len(), seconds = started.elapsed().as_secs(), "reading footers of regions");
        }
    }
    entering.end(inner);
    Ok(())
}

/// Surveys all regions and puts the free ones on the free list. Returns those in use, and those with both ends unreadable.
fn survey_all(inner: &Inner) -> (Vec<(usize, Use)>, Vec<Unreadable>) {
    let flushed_below = inner.devices.state().flushed_below;
    let surveys: Vec<Mutex<Option<io::Result<Survey>>>> = (0..inner.regions.len()).map(|_| Mutex::default()).collect();
    let look = |region: usize| match inner.regions.get(region).state() {
        RegionStage::Retired => Ok(Survey::Free),
        _ => survey(&inner.devices, region),
    };
    in_parallel(inner, surveys.len(), |region| *surveys[region].lock() = Some(look(region)));
    count(&inner.counters.recovery_bytes, (surveys.len() * 2 * BLOCK) as u64);
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for (region, survey) in surveys.into_iter().map(Mutex::into_inner).enumerate() {
        match survey {
            Some(Ok(Survey::InUse(used))) if used.sequence >= flushed_below => found.push((region, used)),
            // The readable end may be left from an earlier use.
            Some(Ok(Survey::InUse(used))) if used.unreadable => {
                unreadable.push(Unreadable { region, error: Errno::IO.into() });
            }
            Some(Ok(_)) => inner.regions.give_back(region),
            Some(Err(error)) => unreadable.push(Unreadable { region, error }),
            None => unreachable!("all were looked at"),
        }
    }
    let damaged = found.iter().filter(|(_, used)| used.damaged).count();
    count(&inner.counters.checksum_failures, damaged as u64);
    count(&inner.counters.io_errors, found.iter().filter(|(_, used)| used.unreadable).count() as u64);
    (found, unreadable)
}

/// Lists the records of a batch of regions, in the batch's order, up to the first that cannot be read.
fn list_all(inner: &Inner, batch: &[(usize, Use)]) -> Vec<(usize, Listing)> {
    let listings: Vec<Mutex<Option<Listing>>> = batch.iter().map(|_| Mutex::default()).collect();
    in_parallel(inner, batch.len(), |number| {
        let (region, used) = &batch[number];
        match list(&inner.devices, *region, used, inner.devices.key_hash()) {
            Ok(listing) => *listings[number].lock() = Some(listing),
            Err(error) => {
                count(&inner.counters.io_errors, 1);
                tracing::error!(region, %error, "a region cannot be read");
            }
        }
    });
    let readable = listings.into_iter().map_while(Mutex::into_inner);
    let listings: Vec<(usize, Listing)> = batch.iter().map(|(region, _)| *region).zip(readable).collect();
    for ((region, listing), (_, used)) in listings.iter().zip(batch) {
        enter(&inner.regions, inner.identities, *region, used, listing);
        count(&inner.counters.checksum_failures, listing.damaged);
        if listing.unreadable {
            count(&inner.counters.io_errors, 1);
            tracing::error!(region, "blocks of a region cannot be read");
        }
        if !listing.gaps.is_empty() {
            let bytes: u64 = listing.gaps.iter().map(|gap| gap.len() as u64).sum();
            let (gaps, given_up) = (listing.gaps.len(), listing.given_up);
            tracing::error!(region, gaps, bytes, given_up, "records of a region are lost");
        }
        count(&inner.counters.recovery_bytes, listing.bytes);
    }
    listings
}

/// State while records are entered.
struct Entering {
    /// Shards that had no room for a record: no older record may be entered, or it would pass for the newest of its key.
    full: Vec<AtomicBool>,
    /// Records that were left out.
    left_out: AtomicU64,
}

impl Entering {
    fn new(shards: usize) -> Self {
        Self { full: (0..shards).map(|_| AtomicBool::new(false)).collect(), left_out: AtomicU64::new(0) }
    }

    /// All records are entered: removes the tombstones.
    fn end(self, inner: &Inner) {
        let shards: Vec<_> = inner.shards().collect();
        in_parallel(inner, shards.len(), |number| {
            sweep(shards[number], Location::is_tombstone, |_, _| (), |lost| inner.note_lost(lost), || true);
        });
        let records = self.left_out.into_inner();
        if records > 0 {
            tracing::warn!(records, "the index has no room for all items on the SSD: the oldest are left out");
        }
    }
}

/// Enters the records of a batch into the index; each thread handles its own shards.
fn enter_all(inner: &Inner, listings: &[(usize, Listing)], entering: &Entering) {
    let threads = threads(inner).min(inner.shard_count());
    in_parallel(inner, threads, |thread| {
        for (region, listing) in listings {
            for record in listing.records.iter().rev() {
                let number = inner.identities.number(record.hash);
                if number % threads == thread {
                    enter_record(inner, *region, record, &entering.full[number], &entering.left_out);
                }
            }
        }
    });
}

fn enter_record(inner: &Inner, region: usize, record: &Listed, full: &AtomicBool, left_out: &AtomicU64) {
    let mut shard = inner.shard(record.hash).lock();
    if shard.find(record.hash).is_some() {
        return;
    }
    let block = inner.regions.block_at(region, record.offset as usize);
    let place = if record.is_tombstone { Location::tombstone } else { Location::new };
    if !full.load(Ordering::Relaxed) && shard.add(record.hash, place(block, record.blocks())) {
        return;
    }
    full.store(true, Ordering::Relaxed);
    if !record.is_tombstone {
        inner.log.forgotten.note_evicted(record.hash, inner.regions.get(region).sequence());
        count(&inner.counters.index_evictions, 1);
        count(left_out, 1);
    }
}
