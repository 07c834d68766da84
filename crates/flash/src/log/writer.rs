//! The log's heads: the open regions, one for each group of lifetimes, and appending to them.
//!
//! Records that expire at about the same time share regions, so that a region can be freed when all its records have expired.
//! A restart orders versions only by regions' sequence numbers and records' positions, so two rules hold:
//!
//! - a newer version of a key is appended to a region whose sequence number is not below that of the older version's region;
//! - a region records how far back ([`Summary::behind`]) older versions lie that may outlive its own records, and is not freed
//!   before them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::{Expiry, Version};
use parking_lot::Mutex;

use crate::counters::FlashCounters;
use crate::flusher::queue::FlushQueue;
use crate::index::location::Location;
use crate::log::buffer::{Buffer, BufferPool};
use crate::log::forgotten::Forgotten;
use crate::log::regions::{Region, RegionStage, Regions};
use crate::log::sealed::Sealed;
use crate::log::sequence::Sequence;
use crate::reclaim::work::Reclaim;
use moneta_device::format::footer::{self, ENTRY_BYTES_MAX, Entry, Span, Summary};
use moneta_device::format::hash::hash;
use moneta_device::format::record::{Draft, Salt, mark, salt_of};
use moneta_device::format::region::{HEADER_BYTES, RegionHeader, TRAILER_BYTES, Trailer};
use moneta_device::format::{BLOCK, VERSION};

/// Groups of lifetimes: the longest lifetime of a group's records, in seconds from the write; the last group takes the rest.
const LIFETIMES: [u32; 4] = [600, 2 * 3600, 24 * 3600, u32::MAX];
/// The group of carried-forward records.
pub(crate) const CARRIED: usize = LIFETIMES.len();
/// All groups.
pub(crate) const GROUPS: usize = LIFETIMES.len() + 1;
/// Free regions reserved for carried-forward records, so that emptying regions never waits for a free one.
pub(crate) const RESERVE: usize = 2;

/// Buffers reserved for the same: writers that wait for the device would take each one that is given back, and what was to be
/// carried would be lost for want of one.
const BUFFERS_RESERVED: usize = 1;

/// Fewest regions with which a tier can work: an open one for each group, the full ones that may wait, and the reserve.
pub(crate) const REGIONS_LEAST: usize = GROUPS + SEALED_MAX + RESERVE;

/// Full regions that may wait to be written. With more, writers wait for the device.
const SEALED_MAX: usize = 3;

/// No region or buffer is free, or a flush is in progress: the write has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What an append replaces.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    /// The block in which the key's last record begins.
    pub(crate) block: Option<usize>,
    /// The flush floor read before the lookup of that record: a later flush may have removed it.
    pub(crate) floor: u64,
}

/// A record that was appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) location: Location,
    /// What the record is stamped with: its CAS value, unless the caller chose one.
    pub(crate) version: Version,
    /// Its number among all appends: the record is on the device when [`FlushQueue::durable`] has reached it.
    pub(crate) number: u64,
}

/// A region being filled.
pub(crate) struct Open {
    pub(crate) region: usize,
    pub(crate) sequence: u64,
    base: Version,
    salt: u64,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) end: usize,
    records: u32,
    /// Not all of its records were carried forward.
    has_changes: bool,
    footer: Vec<u8>,
    summary: Summary,
}

#[derive(Default)]
struct Group {
    // Held for an append: the copy of a record, and sometimes the start of a region.
    open: Mutex<Option<Open>>,
    /// Sequence number of the open region; 0 without one.
    sequence: AtomicU64,
}

/// The heads of the log.
pub(crate) struct Log {
    pub(crate) regions: Arc<Regions>,
    /// Makes the versions of what is appended.
    pub(crate) sequence: Sequence,
    pub(crate) queue: Arc<FlushQueue>,
    pub(crate) buffers: Arc<BufferPool>,
    /// Keys without an index entry that still have records on devices.
    pub(crate) forgotten: Forgotten,
    groups: [Group; GROUPS],
    counters: Arc<FlashCounters>,
    reclaim: Arc<Reclaim>,
    tier: u64,
    seed: u64,
    region_bytes: usize,
    appended: AtomicU64,
    /// The greatest stamp of all regions that are not open.
    newest_sealed: AtomicU64,
    /// The flush floor: records in regions with lower sequence numbers are flushed. Changed with all groups locked.
    flushed_below: AtomicU64,
}

impl Log {
    /// Heads without open regions, for a tier with this identity and seed; sequence numbers begin above `floor`.
    pub(crate) fn new(
        regions: Arc<Regions>,
        counters: Arc<FlashCounters>,
        reclaim: Arc<Reclaim>,
        (tier, seed): (u64, u64),
        region_bytes: usize,
        sequence: Sequence,
        queue: Arc<FlushQueue>,
    ) -> Self {
        Self {
            regions,
            sequence,
            queue,
            buffers: BufferPool::new(region_bytes, GROUPS + SEALED_MAX),
            forgotten: Forgotten::new(),
            groups: Default::default(),
            counters,
            reclaim,
            tier,
            seed,
            region_bytes,
            appended: AtomicU64::new(0),
            newest_sealed: AtomicU64::new(0),
            flushed_below: AtomicU64::new(0),
        }
    }

    /// Bytes of the largest record that fits into a region.
    pub(crate) fn record_max(&self) -> usize {
        self.region_bytes - HEADER_BYTES - TRAILER_BYTES - footer::SUMMARY_BYTES - ENTRY_BYTES_MAX
    }

    /// The group for what dies at `expiry`.
    pub(crate) fn group_of(expiry: Expiry, now: u32) -> usize {
        let lifetime = expiry.remaining(now).unwrap_or(u32::MAX);
        LIFETIMES.iter().position(|most| lifetime <= *most).unwrap_or(CARRIED - 1)
    }

    /// The floor of the last flush: records in regions with lower sequence numbers are flushed. Does not change while a group is
    /// locked.
    #[inline]
    pub(crate) fn floor(&self) -> u64 {
        self.flushed_below.load(Ordering::Acquire)
    }

    /// Whether the contents of a region are flushed.
    #[inline]
    pub(crate) fn is_flushed(&self, region: &Region) -> bool {
        region.sequence() < self.floor()
    }

    /// Sequence number of the newest region that may hold a live record of a key evicted from the index; 0 if none does.
    #[inline]
    pub(crate) fn evicted(&self, hash: u64) -> u64 {
        let sequence = self.forgotten.evicted(hash);
        let is_there = sequence >= self.regions.oldest().max(self.floor());
        if is_there { sequence } else { 0 }
    }

    /// Counts a record that will be appended later, so that a wait for everything appended so far includes it.
    pub(crate) fn count_append(&self) {
        self.appended.fetch_add(1, Ordering::AcqRel);
    }

    /// How many records have been appended, owed ones included.
    pub(crate) fn appended(&self) -> u64 {
        self.appended.load(Ordering::Acquire)
    }

    /// Appends a record to the open region of `group`. The caller holds the lock of the key's shard.
    pub(crate) fn append(
        &self,
        draft: &Draft<'_>,
        hash: u64,
        content_hash: u64,
        group: usize,
        over: Over,
    ) -> Result<Appended, Full> {
        let floor = over.floor;
        let last = over.block;
        let over = last.map(|block| self.regions.get(self.regions.region_of(block)));
        let forgotten = self.forgotten.least(hash);
        let least = over.map_or(0, |region| region.sequence()).max(forgotten);
        let evicted = self.evicted(hash);
        loop {
            let is_carried = group == CARRIED;
            let number = self.group_not_below(group, least);
            let group = &self.groups[number];
            let mut head = group.open.lock();
            if self.floor() != floor {
                // The record found may have been flushed since, so the result may not depend on it: try again.
                return Err(Full);
            }
            let open = match &mut *head {
                Some(open) if open.sequence < least => continue,
                Some(open) => open,
                None => {
                    let open = self.begin(number)?;
                    group.sequence.store(open.sequence, Ordering::Release);
                    head.insert(open)
                }
            };
            let version = self.sequence.next();
            if self.sequence.is_low(version) {
                self.queue.nudge();
                // Of what is carried the CAS value is an old one.
                if !is_carried && self.sequence.is_spent(version) {
                    return Err(Full);
                }
            }
            let place = self.sequence.place(open.base, version).filter(|_| self.has_room(open, draft.len()));
            let Some(place) = place else {
                group.sequence.store(0, Ordering::Release);
                head.take().into_iter().for_each(|open| self.seal(open));
                continue;
            };
            if let Some(over) = over
                && over.sequence() != open.sequence
                && over.summary().expiry_max > Summary::moment(draft.expiry)
            {
                open.summary.behind = open.summary.behind.max(over.sequence());
            }
            if evicted != 0 && evicted != open.sequence && draft.expiry != Expiry::NEVER {
                // The expiry of the evicted record is unknown.
                open.summary.behind = open.summary.behind.max(evicted);
            }
            if number == CARRIED && !is_carried && !open.has_changes {
                open.has_changes = true;
                self.regions.get(open.region).set_carried(false);
            }
            // Earlier records of the key lie in the region of its last record or in older ones.
            let block = self.regions.block_at(open.region, open.end);
            let repeats = last == Some(block) || forgotten == open.sequence;
            let location = self.put(open, draft, hash, content_hash, (version, place), repeats);
            let eager = open.end - open.buffer.written() >= FlushQueue::EAGER_BYTES;
            let number = self.appended.fetch_add(1, Ordering::AcqRel) + 1;
            drop(head);
            if eager {
                self.queue.nudge();
            }
            return Ok(Appended { location, version, number });
        }
    }

    /// The stamp of an item that is kept elsewhere.
    pub(crate) fn next_stamp(&self) -> Version {
        let stamp = self.sequence.next();
        if self.sequence.is_low(stamp) {
            self.queue.nudge();
        }
        stamp
    }

    /// `group`, or if its open region is too old, another group whose open region is not, or that has none.
    fn group_not_below(&self, group: usize, least: u64) -> usize {
        let fits = |group: &Group| {
            let sequence = group.sequence.load(Ordering::Acquire);
            sequence == 0 || sequence >= least
        };
        if fits(&self.groups[group]) {
            return group;
        }
        // The region numbered `least` was once a group's head: that group now has a newer one, or none.
        self.groups.iter().position(fits).unwrap_or(group)
    }

    /// A region was written to its end: wakes the reclaimer, which may be waiting to empty it.
    pub(crate) fn note_closed(&self) {
        self.reclaim.need();
    }

    fn begin(&self, group: usize) -> Result<Open, Full> {
        let (reserve, buffers_reserved) = if group == CARRIED { (0, 0) } else { (RESERVE, BUFFERS_RESERVED) };
        let buffer = self.buffers.take(buffers_reserved).ok_or(Full)?;
        let region = self.regions.take_free(reserve);
        self.reclaim.need();
        let region = region.ok_or(Full)?;
        let Some(sequence) = self.regions.next_sequence() else {
            self.regions.give_back(region);
            self.queue.nudge();
            return Err(Full);
        };
        let base = self.sequence.base();
        self.regions.forget_records(region);
        let begun = self.sequence.millis();
        let (version, group) = (VERSION, group as u8);
        let salt = salt_of(version, sequence, self.seed);
        let header = RegionHeader { version, tier: self.tier, sequence, base: base.0, group, begun };
        // SAFETY: the buffer is new, and no other thread has it.
        unsafe { buffer.write(0, &header.encode()) };
        buffer.publish(HEADER_BYTES);
        *self.regions.get(region).resident.write() = Some(Arc::clone(&buffer));
        self.regions.get(region).begin(sequence, base.0, salt, RegionStage::Open);
        self.regions.get(region).set_span(Span { begun, ..Span::default() });
        self.regions.get(region).set_carried(usize::from(group) == CARRIED);
        let mut footer = Vec::with_capacity(self.region_bytes / 64);
        footer.resize(footer::SUMMARY_BYTES, 0);
        let summary = Summary::EMPTY;
        let (end, records, has_changes) = (HEADER_BYTES, 0, false);
        Ok(Open { region, sequence, base, salt, buffer, end, records, has_changes, footer, summary })
    }

    fn has_room(&self, open: &Open, length: usize) -> bool {
        open.end + length + open.footer.len() + ENTRY_BYTES_MAX + TRAILER_BYTES <= self.region_bytes
    }

    /// Writes a record at the end of an open region, under a version and that one's place in the region; `repeats` as in
    /// [`Regions::note_record`].
    fn put(
        &self,
        open: &mut Open,
        draft: &Draft<'_>,
        hash: u64,
        content_hash: u64,
        (version, place): (Version, u64),
        repeats: bool,
    ) -> Location {
        let (start, length) = (open.end, draft.len());
        let salt = Salt { key: open.salt, offset: start as u32 };
        draft.write(salt, place, content_hash, |offset, run| {
            // SAFETY: under the group's lock only this thread appends, and the region's published bytes end at `start`.
            unsafe { open.buffer.write(start + offset, run) };
        });
        open.end = start + length;
        open.records += 1;
        open.summary.add(Summary::moment(draft.expiry), version.0);
        let is_tombstone = draft.marks & mark::TOMBSTONE != 0;
        footer::push(&mut open.footer, &Entry { hash, length: length as u32, is_tombstone });
        let region = self.regions.get(open.region);
        region.set_summary(open.summary);
        region.note_version(draft.version().unwrap_or(version));
        region.set_extent(open.end as u32, open.records);
        self.regions.note_record(open.region, start, repeats);
        open.buffer.publish(open.end);
        let blocks = (start % BLOCK + length).div_ceil(BLOCK);
        Location::new(self.regions.block_at(open.region, start), blocks)
    }

    /// Hands a full region to the flusher.
    fn seal(&self, open: Open) {
        let Open { region, sequence, base, buffer, end, records, mut footer, summary, .. } = open;
        let span = Span { ended: self.sequence.millis(), ..self.regions.get(region).span() };
        self.regions.get(region).set_span(span);
        footer[..footer::SUMMARY_BYTES].copy_from_slice(&footer::encode_head(&summary, &span));
        let trailer = Trailer {
            version: VERSION,
            tier: self.tier,
            sequence,
            base: base.0,
            records,
            records_end: end as u32,
            footer_bytes: footer.len() as u32,
            footer_hash: hash(&footer),
        };
        footer.extend_from_slice(&trailer.encode());
        self.note_stamp(summary.last);
        self.regions.get(region).set_state(RegionStage::Sealed);
        self.queue.push(Sealed { region, sequence, buffer, end, tail: footer });
        self.counters.regions_filled.fetch_add(1, Ordering::Relaxed);
    }

    /// Seals the open region of a group, if it has one with records.
    pub(crate) fn rotate(&self, group: usize) {
        let mut head = self.groups[group].open.lock();
        if head.as_ref().is_some_and(|open| open.records > 0)
            && let Some(open) = head.take()
        {
            self.groups[group].sequence.store(0, Ordering::Release);
            self.seal(open);
        }
    }

    /// Discards the open regions; later appends go to regions not below the returned sequence number.
    pub(crate) fn abandon_open(&self) -> (u64, Vec<usize>) {
        let mut heads: Vec<_> = self.groups.iter().map(|group| group.open.lock()).collect();
        let mut abandoned = Vec::new();
        for (head, group) in heads.iter_mut().zip(&self.groups) {
            if let Some(open) = head.take() {
                open.buffer.discard();
                group.sequence.store(0, Ordering::Release);
                abandoned.push(open.region);
            }
        }
        let below = self.regions.upcoming_sequence();
        self.flushed_below.store(below, Ordering::Release);
        (below, abandoned)
    }

    /// The next region's sequence number. All regions with lower numbers are in the table of regions.
    pub(crate) fn end(&self) -> u64 {
        // A region takes its number, and enters it into the table, under its group's lock.
        let _heads = self.groups.each_ref().map(|group| group.open.lock());
        self.regions.upcoming_sequence()
    }

    /// Notes a stamp of a region that is not open.
    pub(crate) fn note_stamp(&self, stamp: u64) {
        self.newest_sealed.fetch_max(stamp, Ordering::AcqRel);
    }

    /// At least the stamp of the last record that was appended.
    pub(crate) fn newest_stamp(&self) -> u64 {
        let stamp_of = |group| self.with_open(group, |open| open.map_or(0, |open| open.summary.last));
        let open = (0..GROUPS).map(stamp_of).max().unwrap_or(0);
        // Afterwards: a region that was sealed meanwhile is counted here.
        open.max(self.newest_sealed.load(Ordering::Acquire))
    }

    /// Calls `look` with the open region of a group, under the group's lock.
    pub(crate) fn with_open<T>(&self, group: usize, look: impl FnOnce(Option<&mut Open>) -> T) -> T {
        look(self.groups[group].open.lock().as_mut())
    }
}
