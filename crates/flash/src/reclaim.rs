//! Emptying regions: the oldest goes, or one in which all is dead; what was read lately is carried forward.
//!
//! The oldest region may go because everything that is older than its records is gone already. A region whose records have
//! all expired may go early, unless older versions of its keys lie in regions that are still there ([`Summary::behind`]).
//! Records carried forward are on the devices before their region is wiped, and a region is wiped at both ends, and the
//! wipe synced, before it is used again: whenever the node dies, a restart finds of every key its newest version or none.
//! What is not carried leaves the index only after the wipe: until then whoever deletes it leaves a tombstone.
//!
//! [`Summary::behind`]: crate::format::footer::Summary

use std::collections::HashSet;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use moneta_store::Key;
use moneta_store::component::{RemovalCause, Removed};
use parking_lot::{Condvar, Mutex};
use pollster::block_on;
use rustix::io::Errno;
use rustix::process::{getpriority_process, setpriority_process};

use crate::counters::count;
use crate::engine::Inner;
use crate::flusher::Goal;
use crate::format::BLOCK;
use crate::format::record::{Draft, Salt, View, mark};
use crate::format::region::{HEADER_BYTES, TRAILER_BYTES};
use crate::io::Aligned;
use crate::listing::{Listed, Listing, list};
use crate::location::Location;
use crate::log::{CARRIED, GROUPS, Over, REGIONS_LEAST, RESERVE};
use crate::regions::State;
use crate::salvage;
use crate::survey::{Survey, Use, survey};
use crate::sweep::{Swept, sweep};

/// How often regions are looked for that have expired, and how long a device that failed is left alone.
const PAUSE: Duration = Duration::from_millis(500);

/// Bytes of a region that are read at once for the sake of a record in them. What requests read waits behind it.
const WINDOW: usize = 64 << 10;
/// The same when all records are wanted.
const WINDOW_OBSERVED: usize = 1 << 20;

/// By how much the reclaimer is nicer than the threads that answer requests: a tenth of their share when they want it all.
const NICE: i32 = 10;

/// How the reclaimer is told that there is work.
#[derive(Debug, Default)]
pub(crate) struct Reclaim {
    state: Mutex<ReclaimState>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct ReclaimState {
    needed: bool,
    stop: bool,
    /// Regions that a flush has taken, as the superblocks say. They are free when the index means nothing in them.
    flushed: Vec<usize>,
}

impl Reclaim {
    /// A free region was taken, or could not be.
    pub(crate) fn need(&self) {
        let mut state = self.state.lock();
        if !state.needed {
            state.needed = true;
            self.work.notify_one();
        }
    }

    /// A flush has taken regions, and the superblocks say so.
    pub(crate) fn leave_flushed(&self, regions: Vec<usize>) {
        let mut state = self.state.lock();
        state.flushed.extend(regions);
        state.needed = true;
        self.work.notify_one();
    }

    /// Takes over the regions that flushes have taken.
    pub(crate) fn take_flushed(&self) -> Vec<usize> {
        std::mem::take(&mut self.state.lock().flushed)
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.work.notify_one();
    }

    fn is_stopping(&self) -> bool {
        self.state.lock().stop
    }

    /// Leaves a device that failed alone for a while, unless it is the end.
    fn pause(&self) {
        let mut state = self.state.lock();
        self.work.wait_while_for(&mut state, |state| !state.stop, PAUSE);
    }

    /// Sleeps until there may be work; false at the end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        if !state.needed && !state.stop {
            self.work.wait_for(&mut state, PAUSE);
        }
        state.needed = false;
        !state.stop
    }
}

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
    /// What was read of it, by windows.
    bytes: Option<Aligned>,
    /// Which windows were.
    is_read: Vec<bool>,
    /// Somebody is to be told of what goes.
    observed: bool,
    /// Why a block of it cannot be read or written, if so.
    bad: Option<io::Error>,
}

/// What became of a region.
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

    /// The region to empty: one in which everything is dead if it may go, else the oldest.
    fn choose(&self) -> Option<usize> {
        let inner = &self.inner;
        let now = inner.settle();
        let in_use = || inner.regions.iter().filter(|(_, region)| region.sequence() != 0);
        let (oldest, region) = in_use().min_by_key(|(_, region)| region.sequence())?;
        inner.regions.note_oldest(region.sequence());
        let dead = in_use().find(|(_, other)| {
            let summary = other.summary();
            other.state() == State::Closed && summary.expiry_max <= now && summary.behind < region.sequence()
        });
        let chosen = match (dead, region.state()) {
            (Some((dead, _)), _) => dead,
            (None, State::Closed) => oldest,
            (None, State::Written) => {
                // Its trailer waits for a sync.
                inner.log.queue.ask_sync();
                return None;
            }
            (None, State::Open) => {
                // A region that fills slowly is the oldest by now. It has to be written before it can go.
                (0..GROUPS).filter(|group| self.is_open(*group, oldest)).for_each(|group| inner.log.rotate(group, now));
                return None;
            }
            (None, _) => return None,
        };
        inner.regions.get(chosen).change_state(State::Closed, State::Reclaiming).then_some(chosen)
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
                self.inner.regions.get(region).set_state(State::Closed);
                if self.inner.regions.free() <= RESERVE {
                    // Writers would wait for room that does not come.
                    self.inner.log.queue.turn_off(&error);
                }
                self.inner.reclaim.pause();
                Err(error)
            }
        }
    }

    fn try_empty(&mut self, region: usize) -> io::Result<Emptied> {
        let inner = Arc::clone(&self.inner);
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
            // A write of the superblocks failed after it was noted in them: some of them may say so already.
            error if inner.devices.is_retired(region) => {
                retire(&inner, region, error.unwrap_or_else(|| Errno::IO.into()))?
            }
            Some(error) if victim.is_bad(&inner) => retire(&inner, region, error)?,
            // It can be read again: so it is emptied later.
            Some(error) => return Err(error),
            None => match wipe(&inner, region).or_else(|_| wipe(&inner, region)) {
                Ok(()) => {
                    let (device, _) = inner.devices.place(region);
                    inner.devices.media(device).sync()?;
                    Emptied::Free
                }
                Err(error) => retire(&inner, region, error)?,
            },
        };
        // Only now, when no restart can find these records any more: until then whoever deletes one leaves a tombstone.
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

    /// Carries forward what is wanted of a region's records, which come last first. Tells the records that the index still
    /// means, and the number of the last append.
    fn carry_wanted<'l>(
        &mut self,
        victim: &mut Victim,
        records: impl Iterator<Item = &'l Listed>,
    ) -> (Vec<&'l Listed>, Option<u64>) {
        let inner = Arc::clone(&self.inner);
        let (mut left, mut last_carried) = (Vec::new(), None);
        // Of several versions only the last is meant, whatever becomes of it: of a key, or of keys that share an entry.
        let mut met = HashSet::new();
        for record in records.filter(|record| !record.is_tombstone) {
            let block = victim.block(&inner, record);
            let found = inner.shard(record.hash).lock().find(record.hash);
            let Some((_, location)) = found.filter(|(_, found)| found.block() == block) else { continue };
            if !met.insert(inner.identities.identity(record.hash)) {
                continue;
            }
            let wanted = location.hits() > 0 && self.credit >= record.length as usize;
            let carried = if wanted { self.try_carry(victim, record, block) } else { None };
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

    fn try_carry(&self, victim: &mut Victim, record: &Listed, block: usize) -> Option<(u64, usize)> {
        let base = victim.base;
        victim.view(&self.inner, record).and_then(|view| self.carry(base, block, view))
    }

    /// Takes a record out of the index if it is still what the index means.
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

    /// Carries a record forward if it is alive and still what the index means. Tells the number of the append and its bytes.
    fn carry(&self, base: u64, block: usize, view: View<'_>) -> Option<(u64, usize)> {
        let inner = &self.inner;
        let now = inner.clock.now();
        let key = Key::new(view.key(), inner.devices.key_hash());
        let meta = view.meta(base, true);
        if meta.expiry.is_dead(now) {
            return None;
        }
        let draft = Draft {
            key: key.bytes,
            value: [view.value(), &[]],
            marks: view.header.marks & (mark::STALE | mark::TOKEN) | mark::FETCHED,
            expiry: meta.expiry,
            flags: meta.flags,
            cas: Some(meta.cas),
        };
        let hash = draft.content_hash();
        let over = Over { block: Some(block), floor: inner.log.floor() };
        let mut shard = inner.shard(key.hash).lock();
        inner.find(&shard, key.hash).filter(|(_, found)| found.block() == block)?;
        let appended = inner.log.append(&draft, key.hash, hash, CARRIED, over, now).ok()?;
        inner.enter(&mut shard, key.hash, appended.location);
        count(&inner.counters.carried_items, 1);
        count(&inner.counters.carried_bytes, (key.bytes.len() + view.value().len()) as u64);
        Some((appended.number, draft.len()))
    }

    /// Takes a record out of the index if it is still what the index means, and tells who observes.
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

    /// Takes every entry out of the index that still points into the region: those of records that a damaged region does
    /// not list.
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

    /// Its records, as far as they can be made out.
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

    /// A record, if it is sound and can be read.
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

    /// Reads that part of the region, as far as it can be read.
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

    /// Whether blocks of it still cannot be read.
    fn is_bad(&self, inner: &Inner) -> bool {
        let found = salvage::read(&inner.devices, self.region, 0..inner.devices.region_bytes());
        found.map_or(true, |found| found.lost > 0)
    }
}

/// Has this thread stand back behind those that answer requests: a region's records keep it busy for a millisecond. Writes
/// that wait for room leave it the processor.
fn give_way() {
    let thread = rustix::thread::gettid();
    let lowered = getpriority_process(Some(thread)).and_then(|nice| setpriority_process(Some(thread), nice + NICE));
    if let Err(error) = lowered {
        tracing::debug!(%error, "the reclaimer keeps its priority");
    }
}

/// Zeroes header and trailer of a region, so that nothing takes it for one in use. Its records can be read until it is used
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

/// Takes a region with a bad block out of use: the superblocks say so from now on. Its ends are zeroed too, as far as that can
/// be done.
///
/// # Errors
/// If it is the device that fails, not a block of it: then the region stays what it is.
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
