//! Empties regions: the oldest, or one whose records have all expired. Of records that were read, those worth most are carried
//! forward ([`crate::reclaim::candidates`]).
//!
//! The oldest region can be emptied because nothing older is left. A region whose records have all expired can be emptied early,
//! unless older versions of its keys lie in regions that still exist ([`Summary::behind`]), or an older region has bad blocks, of
//! which a restart may not find all records. Carried records are on the devices
//! before their region is wiped, and the region is wiped at both ends, and the wipe synced, before it is used again: after a
//! crash at any moment, a restart finds the newest version of each key or none. Records that are not carried leave the index
//! only after the wipe: a delete before that still writes a tombstone.
//!
//! [`Summary::behind`]: moneta_device::format::footer::Summary

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use moneta_store::component::{RemovalCause, Removed};
use moneta_store::{ItemMeta, Key};
use pollster::block_on;
use rustix::io::Errno;
use rustix::process::{getpriority_process, setpriority_process};

use crate::counters::count;
use crate::flusher::waiting::Goal;
use crate::index::location::Location;
use crate::inner::Inner;
use crate::log::regions::RegionStage;
use crate::log::writer::{CARRIED, GROUPS, Over, REGIONS_LEAST, RESERVE};
use crate::reclaim::candidates::{Candidate, rank};
use crate::reclaim::sweep::{Swept, sweep};
use moneta_device::format::BLOCK;
use moneta_device::format::record::{Draft, Salt, View, mark};
use moneta_device::format::region::{HEADER_BYTES, TRAILER_BYTES};
use moneta_device::format::stamp::second_before;
use moneta_device::io::{Aligned, in_doubt};
use moneta_device::regions::list::list;
use moneta_device::regions::listing::{Listed, Listing};
use moneta_device::regions::salvage;
use moneta_device::regions::survey::{Survey, Use, survey};

/// Bytes of a region that are read at once for one record. Reads of requests queue behind this read.
const WINDOW: usize = 64 << 10;
/// The same when all records are needed.
const WINDOW_OBSERVED: usize = 1 << 20;

/// Niceness of the reclaimer's thread: it gets about a tenth of a worker's CPU share when both compete.
const NICE: i32 = 10;

/// The thread that empties regions.
pub(crate) struct Reclaimer {
    inner: Arc<Inner>,
    /// Bytes that may be carried forward.
    credit: usize,
}

/// A region being emptied.
struct Victim {
    region: usize,
    base: u64,
    salt: u64,
    /// The region's bytes, as far as windows of it have been read.
    bytes: Option<Aligned>,
    /// Which windows have been read.
    is_read: Vec<bool>,
    /// An observer has to be told about evicted items.
    observed: bool,
    /// The error of a block that cannot be read or written.
    bad: Option<io::Error>,
}

/// The result of emptying a region.
enum Emptied {
    Free,
    Retired,
}

impl Reclaimer {
    pub(crate) fn new(inner: Arc<Inner>) -> Self {
        Self { inner, credit: 0 }
    }

    pub(crate) fn run(mut self) {
        give_way();
        let reclaim = Arc::clone(&self.inner.reclaim);
        while reclaim.wait() {
            self.inner.sweep_flushed(|| !reclaim.is_stopping());
            self.inner.presence.look(&self.inner.devices);
            while !reclaim.is_stopping() && !self.inner.log.queue.is_off() && self.is_wanted() {
                match self.choose() {
                    Some(region) => {
                        if let Err(error) = self.empty(region) {
                            tracing::warn!(region, %error, "a region cannot be emptied now");
                            break;
                        }
                    }
                    None => break,
                }
            }
        }
    }

    fn is_wanted(&self) -> bool {
        self.inner.regions.free() < self.inner.free_wanted()
    }

    /// The region to empty: one whose records have all expired, if it may be emptied early, else the oldest.
    fn choose(&self) -> Option<usize> {
        let inner = &self.inner;
        let now = inner.settle();
        let in_use = || inner.regions.iter().filter(|(_, region)| region.sequence() != 0);
        let (oldest, region) = in_use().min_by_key(|(_, region)| region.sequence())?;
        inner.regions.note_oldest(region.sequence());
        // A restart may miss records of a region with bad blocks, also such that hide older ones. What is newer does that then.
        let bad = in_use().filter(|(_, region)| region.is_bad()).map(|(_, region)| region.sequence()).min();
        let dead = in_use().find(|(_, other)| {
            let summary = other.summary();
            let may_go = summary.behind < region.sequence() && bad.is_none_or(|bad| other.sequence() <= bad);
            other.state() == RegionStage::Closed && summary.expiry_max <= now && may_go
        });
        let chosen = match (dead, region.state()) {
            (Some((dead, _)), _) => dead,
            (None, RegionStage::Closed) => oldest,
            (None, RegionStage::Written) => {
                // Its trailer is waiting for a sync.
                inner.log.queue.ask_sync();
                return None;
            }
            (None, RegionStage::Open) => {
                // A slowly filling region has become the oldest. It has to be written before it can be emptied.
                (0..GROUPS).filter(|group| self.is_open(*group, oldest)).for_each(|group| inner.log.rotate(group));
                return None;
            }
            (None, _) => return None,
        };
        inner.regions.get(chosen).change_state(RegionStage::Closed, RegionStage::Reclaiming).then_some(chosen)
    }

    fn is_open(&self, group: usize, region: usize) -> bool {
        self.inner.log.with_open(group, |open| open.is_some_and(|open| open.region == region))
    }

    fn empty(&mut self, region: usize) -> io::Result<()> {
        match self.try_empty(region) {
            Ok(Emptied::Free) => {
                count(&self.inner.counters.regions_emptied, 1);
                self.inner.regions.give_back(region);
                self.inner.log.queue.note_room();
                Ok(())
            }
            Ok(Emptied::Retired) => {
                if self.inner.regions.usable() < REGIONS_LEAST {
                    self.inner.log.queue.wear_out();
                }
                Ok(())
            }
            Err(error) => {
                count(&self.inner.counters.io_errors, 1);
                self.inner.regions.get(region).set_state(RegionStage::Closed);
                if self.inner.regions.free() <= RESERVE {
                    // Otherwise writers would wait for room that never comes.
                    self.inner.log.queue.turn_off(&error);
                }
                self.inner.reclaim.pause();
                Err(error)
            }
        }
    }

    fn try_empty(&mut self, region: usize) -> io::Result<Emptied> {
        let inner = Arc::clone(&self.inner);
        inner.tell_emptying(region)?;
        let entry = inner.regions.get(region);
        let mut victim = Victim {
            region,
            base: entry.base(),
            salt: entry.salt(),
            bytes: None,
            is_read: Vec::new(),
            observed: inner.observer.read().is_some(),
            bad: None,
        };
        let share = usize::from(inner.config.carry_percent);
        let region_bytes = inner.devices.region_bytes();
        self.credit = (self.credit + region_bytes * share / 100).min(region_bytes);
        let listing = victim.list(&inner);
        let records = listing.iter().flat_map(|listing| listing.records.iter().rev());
        let (left, last_carried) = self.carry_wanted(&mut victim, records);
        if let Some(number) = last_carried {
            block_on(inner.log.queue.wait(Goal::Durable(number))).map_err(io::Error::other)?;
        }
        let ended = match victim.bad.take() {
            // The region is marked as retired, but writing the superblocks failed: some of them may already say so.
            error if inner.devices.is_retired(region) => {
                retire(&inner, region, error.unwrap_or_else(|| Errno::IO.into()))?
            }
            Some(error) if victim.is_bad(&inner) => retire(&inner, region, error)?,
            // The region can be read again, so it will be emptied later.
            Some(error) => return Err(error),
            None if entry.is_bad() => retire(&inner, region, io::Error::other("a write of it failed"))?,
            None => {
                let failed_syncs = inner.devices.failed_syncs();
                match wipe(&inner, region).or_else(|_| wipe(&inner, region)) {
                    Ok(()) => {
                        let (device, _) = inner.devices.place(region);
                        inner.devices.media(device).sync()?;
                        if inner.devices.failed_syncs() != failed_syncs {
                            return Err(in_doubt());
                        }
                        Emptied::Free
                    }
                    Err(error) => retire(&inner, region, error)?,
                }
            }
        };
        // Only now, when no restart can find these records any more. A delete before this point writes a tombstone.
        for record in left {
            self.let_go(&mut victim, record);
        }
        if listing.is_none_or(|listing| listing.damaged > 0) {
            self.sweep(region);
        }
        match ended {
            Emptied::Free => inner.regions.end_emptied(region),
            Emptied::Retired => inner.regions.end_retired(region),
        }
        Ok(ended)
    }

    /// Carries forward the records of a region that are worth it; `records` come last first. Returns the other
    /// records that index entries still point to, and the number of the last append.
    fn carry_wanted<'l>(
        &mut self,
        victim: &mut Victim,
        records: impl Iterator<Item = &'l Listed>,
    ) -> (Vec<&'l Listed>, Option<u64>) {
        let (mut candidates, mut left) = self.pointed_to(victim, records);
        rank(&mut candidates);
        let mut last_carried = None;
        for Candidate { record, .. } in candidates {
            let carried = if self.credit >= record.length as usize { self.try_carry(victim, record) } else { None };
            match carried {
                Some((number, bytes)) => {
                    self.credit -= bytes.min(self.credit);
                    last_carried = Some(number);
                }
                None => left.push(record),
            }
        }
        (left, last_carried)
    }

    /// The records that index entries still point to: those that were read, and the others.
    fn pointed_to<'l>(
        &self,
        victim: &Victim,
        records: impl Iterator<Item = &'l Listed>,
    ) -> (Vec<Candidate<'l>>, Vec<&'l Listed>) {
        let inner = &self.inner;
        let (mut read, mut unread) = (Vec::new(), Vec::new());
        // Of several versions of an identity the index entry points only to the last, whether or not that is carried.
        let mut met = HashSet::new();
        for record in records.filter(|record| !record.is_tombstone) {
            let block = victim.block(inner, record);
            let found = inner.shard(record.hash).lock().find(record.hash);
            let Some((_, location)) = found.filter(|(_, found)| found.block() == block) else { continue };
            if !met.insert(inner.identities.identity(record.hash)) {
                continue;
            }
            match location.hits() {
                0 => unread.push(record),
                hits => read.push(Candidate { record, hits }),
            }
        }
        (read, unread)
    }

    fn try_carry(&self, victim: &mut Victim, record: &Listed) -> Option<(u64, usize)> {
        let (base, block) = (victim.base, victim.block(&self.inner, record));
        victim.view(&self.inner, record).and_then(|view| self.carry(base, block, view))
    }

    /// Removes a record's index entry if it still points to the record.
    fn let_go(&self, victim: &mut Victim, record: &Listed) {
        let inner = &self.inner;
        let (base, block) = (victim.base, victim.block(inner, record));
        if victim.observed
            && let Some(view) = victim.view(inner, record)
        {
            return self.evict(base, block, view);
        }
        let mut shard = inner.shard(record.hash).lock();
        if let Some((position, location)) = shard.find(record.hash).filter(|(_, found)| found.block() == block) {
            shard.index.remove(position);
            count(&inner.counters.evictions, 1);
            count(&inner.counters.evicted_unfetched, u64::from(location.hits() == 0));
        }
    }

    /// Carries a record forward if it is live and its index entry still points to it. Returns the append's number and bytes.
    fn carry(&self, base: u64, block: usize, view: View<'_>) -> Option<(u64, usize)> {
        let inner = &self.inner;
        let now = inner.clock.now();
        let key = Key::new(view.key(), inner.devices.key_hash());
        let meta = view.meta(base, true);
        if meta.expiry.is_dead(now) || inner.is_below_floor(meta.version()) {
            return None;
        }
        let draft = Draft {
            key: key.bytes,
            value: [view.value(), &[]],
            marks: view.header.marks & (mark::STALE | mark::TOKEN) | mark::FETCHED,
            expiry: meta.expiry,
            flags: meta.flags,
            cas: Some(meta.cas),
            unversioned: meta.unversioned,
        };
        let hash = draft.content_hash();
        let over = Over { block: Some(block), floor: inner.log.floor() };
        let mut shard = inner.shard(key.hash).lock();
        inner.find(&shard, key.hash).filter(|(_, found)| found.block() == block)?;
        let appended = inner.log.append(&draft, key.hash, hash, CARRIED, over).ok()?;
        inner.enter(&mut shard, key.hash, appended.location);
        count(&inner.counters.carried_items, 1);
        count(&inner.counters.carried_bytes, (key.bytes.len() + view.value().len()) as u64);
        Some((appended.number, draft.len()))
    }

    /// Removes a record's index entry if it still points to the record, and tells the observer.
    fn evict(&self, base: u64, block: usize, view: View<'_>) {
        let inner = &self.inner;
        let now = inner.clock.now();
        let key = Key::new(view.key(), inner.devices.key_hash());
        let mut shard = inner.shard(key.hash).lock();
        let Some((position, location)) = shard.find(key.hash).filter(|(_, found)| found.block() == block) else {
            return;
        };
        shard.index.remove(position);
        let meta = view.meta(base, location.hits() > 0);
        let meta = ItemMeta { last_access: second_before(now, meta.last_access), ..meta };
        let unfetched = u64::from(!meta.fetched);
        let cause = if meta.expiry.is_dead(now) {
            count(&inner.counters.expired, 1);
            count(&inner.counters.expired_unfetched, unfetched);
            RemovalCause::Expired
        } else {
            count(&inner.counters.evictions, 1);
            count(&inner.counters.evicted_unfetched, unfetched);
            RemovalCause::Evicted
        };
        if let Some(observer) = inner.observer.read().as_ref() {
            observer.removed(&Removed { key: key.bytes, meta, value_bytes: view.value().len(), cause });
        }
    }

    /// Removes every index entry that still points into the region: those of records that a damaged region does not list.
    fn sweep(&self, region: usize) {
        let inner = &self.inner;
        for shard in inner.shards() {
            let points_here = |location: Location| inner.regions.region_of(location.block()) == region;
            if let Swept::All(gone) = sweep(shard, points_here, |_, _| (), |lost| inner.note_lost(lost), || true) {
                count(&inner.counters.evictions, gone);
            }
        }
    }
}

impl Victim {
    fn block(&self, inner: &Inner, record: &Listed) -> usize {
        inner.regions.block_at(self.region, record.offset as usize)
    }

    /// Its records, as far as they can be recognised.
    fn list(&mut self, inner: &Inner) -> Option<Listing> {
        let (hash, entry) = (inner.devices.key_hash(), inner.regions.get(self.region));
        let used = match survey(&inner.devices, self.region) {
            Ok(Survey::InUse(used)) => used,
            Ok(Survey::Free) => return None,
            Err(error) => {
                self.bad = Some(error);
                Use {
                    sequence: entry.sequence(),
                    base: self.base,
                    salt: self.salt,
                    begun: entry.span().begun,
                    trailer: None,
                    damaged: true,
                    unreadable: true,
                    headless: false,
                }
            }
        };
        let listing = list(&inner.devices, self.region, &used, hash);
        if self.bad.is_none() && (used.unreadable || listing.as_ref().is_ok_and(|listing| listing.unreadable)) {
            self.bad = Some(Errno::IO.into());
        }
        listing.map_err(|error| self.bad.get_or_insert(error).kind()).ok()
    }

    /// A record, if it can be read and is sound.
    fn view(&mut self, inner: &Inner, record: &Listed) -> Option<View<'_>> {
        let salt = Salt { key: self.salt, offset: record.offset };
        let start = record.offset as usize;
        self.read(inner, start..start + record.length as usize);
        let bytes = self.bytes.as_deref()?;
        let view = bytes.get(start..).and_then(View::read).filter(View::is_whole);
        let view = view.filter(|view| view.is_sound(salt));
        count(&inner.counters.checksum_failures, u64::from(view.is_none()));
        view
    }

    /// Reads a part of the region, as far as it can be read.
    fn read(&mut self, inner: &Inner, part: Range<usize>) {
        let (device, start) = inner.devices.place(self.region);
        let media = inner.devices.media(device);
        let region_bytes = inner.devices.region_bytes();
        let bytes = self.bytes.get_or_insert_with(|| Aligned::zeroed(region_bytes));
        let window_bytes = if self.observed { WINDOW_OBSERVED } else { WINDOW };
        self.is_read.resize(region_bytes.div_ceil(window_bytes), false);
        for window in part.start / window_bytes..part.end.min(region_bytes).div_ceil(window_bytes) {
            if std::mem::replace(&mut self.is_read[window], true) {
                continue;
            }
            let window = window * window_bytes..region_bytes.min((window + 1) * window_bytes);
            if let Err(error) = media.read_at(&mut bytes[window.clone()], start + window.start as u64) {
                self.bad.get_or_insert(error);
                match salvage::read(&inner.devices, self.region, window.clone()) {
                    Ok(found) => bytes[window].copy_from_slice(&found.bytes),
                    Err(_) => bytes[window].fill(0),
                }
            }
        }
    }

    /// Whether some of its blocks still cannot be read.
    fn is_bad(&self, inner: &Inner) -> bool {
        let found = salvage::read(&inner.devices, self.region, 0..inner.devices.region_bytes());
        found.map_or(true, |found| found.lost > 0)
    }
}

/// Lowers this thread's priority below that of workers: one region keeps it busy for a millisecond. Writers that wait for
/// room use no CPU, so the reclaimer still gets it then.
fn give_way() {
    let thread = rustix::thread::gettid();
    let lowered = getpriority_process(Some(thread)).and_then(|nice| setpriority_process(Some(thread), nice + NICE));
    if let Err(error) = lowered {
        tracing::debug!(%error, "the reclaimer keeps its priority");
    }
}

/// Zeroes header and trailer of a region, so that a restart takes it for free. Its records can be read until it is used
/// again. Not synced.
fn wipe(inner: &Inner, region: usize) -> io::Result<()> {
    let (device, start) = inner.devices.place(region);
    let media = inner.devices.media(device);
    let mut block = Aligned::zeroed(BLOCK);
    for (offset, part) in [(0, 0..HEADER_BYTES), (inner.devices.region_bytes() - BLOCK, BLOCK - TRAILER_BYTES..BLOCK)] {
        media.read_at(&mut block, start + offset as u64)?;
        block[part].fill(0);
        media.write_at(&block, start + offset as u64)?;
    }
    count(&inner.counters.device_bytes, 2 * BLOCK as u64);
    Ok(())
}

/// Takes a region with a bad block out of use and records that in the superblocks. Also zeroes its ends, as far as they can be
/// written.
///
/// # Errors
/// If the whole device fails, not a block of it: the region then stays in use.
fn retire(inner: &Inner, region: usize, error: io::Error) -> io::Result<Emptied> {
    let (device, start) = inner.devices.place(region);
    if !inner.devices.is_readable(device) {
        return Err(error);
    }
    inner.devices.retire(region)?;
    let block = Aligned::zeroed(BLOCK);
    for offset in [0, inner.devices.region_bytes() - BLOCK] {
        if let Err(error) = inner.devices.media(device).write_at(&block, start + offset as u64) {
            tracing::debug!(region, %error, "an end of a bad region cannot be zeroed");
        }
    }
    count(&inner.counters.io_errors, 1);
    tracing::error!(region, device, %error, "a region has a bad block: it is in use no more, and what was in it is gone");
    Ok(Emptied::Retired)
}
