//! The log's heads: the regions that are open, one for each group of lifetimes, and appending to them.
//!
//! Records that die at about the same time share regions, so that such a region can go when all of it is dead. Two rules
//! keep restarts honest, where only regions' sequence numbers and records' places say what is newer:
//!
//! - a newer version of a key is appended to a region whose sequence number is not below that of the older one's region;
//! - a region notes how far back ([`Summary::behind`]) older versions lie that may outlive its own records, and does not go
//!   before them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::Expiry;
use parking_lot::Mutex;

use crate::buffer::{Buffer, BufferPool};
use crate::counters::Counters;
use crate::flusher::FlushQueue;
use crate::forgotten::Forgotten;
use crate::format::footer::{self, ENTRY_BYTES_MAX, Entry, Span, Summary, milliseconds};
use crate::format::hash::hash;
use crate::format::record::{Draft, SEQUENCE_SPAN, Salt, mark, salt_of};
use crate::format::region::{HEADER_BYTES, RegionHeader, TRAILER_BYTES, Trailer};
use crate::format::{BLOCK, VERSION};
use crate::location::Location;
use crate::reclaim::Reclaim;
use crate::regions::{Region, Regions, State};
use crate::sequence::Sequence;

/// Groups of lifetimes: records that live up to so many seconds from when they are written; the last takes the rest.
const LIFETIMES: [u32; 4] = [600, 2 * 3600, 24 * 3600, u32::MAX];
/// The group of records carried forward.
pub(crate) const CARRIED: usize = LIFETIMES.len();
/// All groups.
pub(crate) const GROUPS: usize = LIFETIMES.len() + 1;
/// Free regions that only records carried forward may take, so that emptying regions never waits for free ones.
pub(crate) const RESERVE: usize = 2;

/// Regions without which a tier cannot go on: all groups filling one, as many full ones as may wait, and the reserve.
pub(crate) const REGIONS_LEAST: usize = GROUPS + SEALED_MAX + RESERVE;

/// Full regions that may wait to be written before writers have to wait for the device.
const SEALED_MAX: usize = 3;

/// No region is free, or no buffer, or a flush is under way: the write has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full;

/// What an append takes the place of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Over {
    /// The block in which the key's last record begins.
    pub(crate) block: Option<usize>,
    /// The floor from before that record was looked for: a flush since may have taken it.
    pub(crate) floor: u64,
}

/// A record that was appended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Appended {
    pub(crate) location: Location,
    /// Sequence number of the record, its CAS value unless it was given one.
    pub(crate) sequence: u64,
    /// Its number among all appends: it is on the device when [`FlushQueue::durable`] has come so far.
    pub(crate) number: u64,
}

/// A region being filled.
pub(crate) struct Open {
    pub(crate) region: usize,
    pub(crate) sequence: u64,
    base: u64,
    salt: u64,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) end: usize,
    records: u32,
    footer: Vec<u8>,
    summary: Summary,
}

/// A full region on its way to the device.
pub(crate) struct Sealed {
    pub(crate) region: usize,
    pub(crate) sequence: u64,
    pub(crate) buffer: Arc<Buffer>,
    pub(crate) end: usize,
    /// Footer and trailer: the last bytes of the region.
    pub(crate) tail: Vec<u8>,
}

#[derive(Default)]
struct Group {
    // Held for an append: the copy of a record, and now and then the beginning of a region.
    open: Mutex<Option<Open>>,
    /// Sequence number of the open region; 0 without one.
    sequence: AtomicU64,
}

/// The heads of the log.
pub(crate) struct Log {
    pub(crate) regions: Arc<Regions>,
    pub(crate) sequence: Sequence,
    pub(crate) queue: Arc<FlushQueue>,
    pub(crate) buffers: Arc<BufferPool>,
    /// What keys must be remembered by that the index does not know.
    pub(crate) forgotten: Forgotten,
    groups: [Group; GROUPS],
    counters: Arc<Counters>,
    reclaim: Arc<Reclaim>,
    tier: u64,
    seed: u64,
    region_bytes: usize,
    appended: AtomicU64,
    /// Records in regions below are flushed. Changed with all groups locked.
    flushed_below: AtomicU64,
}

impl Log {
    /// Heads of a tier without open regions, of that identity and that seed; sequence numbers begin above `floor`.
    pub(crate) fn new(
        regions: Arc<Regions>,
        counters: Arc<Counters>,
        reclaim: Arc<Reclaim>,
        (tier, seed): (u64, u64),
        region_bytes: usize,
        floor: u64,
        queue: Arc<FlushQueue>,
    ) -> Self {
        Self {
            regions,
            sequence: Sequence::above(floor),
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

    /// The floor of the last flush: what lies in regions with a lower sequence number is gone. Stays the same while a group is
    /// locked.
    #[inline]
    pub(crate) fn floor(&self) -> u64 {
        self.flushed_below.load(Ordering::Acquire)
    }

    /// Whether a flush has taken what a region holds.
    #[inline]
    pub(crate) fn is_flushed(&self, region: &Region) -> bool {
        region.sequence() < self.floor()
    }

    /// Sequence number of the newest region that may have a live record of a key which the index had no room for; 0 if none
    /// has.
    #[inline]
    pub(crate) fn evicted(&self, hash: u64) -> u64 {
        let sequence = self.forgotten.evicted(hash);
        let is_there = sequence >= self.regions.oldest().max(self.floor());
        if is_there { sequence } else { 0 }
    }

    /// Counts a record that is to be appended later. It is not durable before it is.
    pub(crate) fn count_append(&self) {
        self.appended.fetch_add(1, Ordering::AcqRel);
    }

    /// How many records have been appended, with those that are owed.
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
        now: u32,
    ) -> Result<Appended, Full> {
        let floor = over.floor;
        let last = over.block;
        let over = last.map(|block| self.regions.get(self.regions.region_of(block)));
        let forgotten = self.forgotten.least(hash);
        let least = over.map_or(0, |region| region.sequence()).max(forgotten);
        let evicted = self.evicted(hash);
        loop {
            let number = self.group_not_below(group, least);
            let group = &self.groups[number];
            let mut head = group.open.lock();
            if self.floor() != floor {
                // What was found may have been flushed since. Nothing may be made of it: again by what is there now.
                return Err(Full);
            }
            let mut open = match head.take() {
                Some(open) if open.sequence < least => {
                    *head = Some(open);
                    continue;
                }
                Some(open) => open,
                None => {
                    let open = self.begin(number, now)?;
                    group.sequence.store(open.sequence, Ordering::Release);
                    open
                }
            };
            let sequence = self.sequence.next(now);
            if !self.has_room(&open, draft.len()) || sequence - open.base >= SEQUENCE_SPAN {
                group.sequence.store(0, Ordering::Release);
                self.seal(open, now);
                continue;
            }
            if let Some(over) = over
                && over.sequence() != open.sequence
                && over.summary().expiry_max > Summary::moment(draft.expiry)
            {
                open.summary.behind = open.summary.behind.max(over.sequence());
            }
            if evicted != 0 && evicted != open.sequence && draft.expiry != Expiry::NEVER {
                // How long what was evicted lives is not known.
                open.summary.behind = open.summary.behind.max(evicted);
            }
            // A record before the key's last lies in the region of that, or in an older one.
            let block = self.regions.block_at(open.region, open.end);
            let repeats = last == Some(block) || forgotten == open.sequence;
            let location = self.put(&mut open, draft, hash, content_hash, sequence, repeats);
            let eager = open.end - open.buffer.written() >= FlushQueue::EAGER_BYTES;
            *head = Some(open);
            let number = self.appended.fetch_add(1, Ordering::AcqRel) + 1;
            drop(head);
            if eager {
                self.queue.nudge();
            }
            return Ok(Appended { location, sequence, number });
        }
    }

    /// `group`, or if its open region is too old another whose is not, or that has none.
    fn group_not_below(&self, group: usize, least: u64) -> usize {
        let fits = |group: &Group| {
            let sequence = group.sequence.load(Ordering::Acquire);
            sequence == 0 || sequence >= least
        };
        if fits(&self.groups[group]) {
            return group;
        }
        // The region that is not below `least` was a group's head once: that group has a newer one now, or none.
        self.groups.iter().position(fits).unwrap_or(group)
    }

    /// A region was written to its end: the reclaimer may have waited for it to be one that can go.
    pub(crate) fn note_closed(&self) {
        self.reclaim.need();
    }

    fn begin(&self, group: usize, now: u32) -> Result<Open, Full> {
        let buffer = self.buffers.take().ok_or(Full)?;
        let reserve = if group == CARRIED { 0 } else { RESERVE };
        let region = self.regions.take_free(reserve);
        self.reclaim.need();
        let region = region.ok_or(Full)?;
        let sequence = self.regions.next_sequence();
        let base = self.sequence.next(now);
        self.regions.forget_records(region);
        let begun = milliseconds(now);
        let (version, group) = (VERSION, group as u8);
        let salt = salt_of(version, sequence, self.seed);
        let header = RegionHeader { version, tier: self.tier, sequence, base, group, begun };
        // SAFETY: the buffer is new, and this thread alone has it.
        unsafe { buffer.write(0, &header.encode()) };
        buffer.publish(HEADER_BYTES);
        *self.regions.get(region).resident.write() = Some(Arc::clone(&buffer));
        self.regions.get(region).begin(sequence, base, salt, State::Open);
        self.regions.get(region).set_span(Span { begun, ..Span::default() });
        let mut footer = Vec::with_capacity(self.region_bytes / 64);
        footer.resize(footer::SUMMARY_BYTES, 0);
        let summary = Summary::EMPTY;
        Ok(Open { region, sequence, base, salt, buffer, end: HEADER_BYTES, records: 0, footer, summary })
    }

    fn has_room(&self, open: &Open, length: usize) -> bool {
        open.end + length + open.footer.len() + ENTRY_BYTES_MAX + TRAILER_BYTES <= self.region_bytes
    }

    /// Writes a record at the end of an open region; `repeats` as in [`Regions::note_record`].
    fn put(
        &self,
        open: &mut Open,
        draft: &Draft<'_>,
        hash: u64,
        content_hash: u64,
        sequence: u64,
        repeats: bool,
    ) -> Location {
        let (start, length) = (open.end, draft.len());
        let salt = Salt { key: open.salt, offset: start as u32 };
        draft.write(salt, sequence - open.base, content_hash, |offset, run| {
            // SAFETY: the group's lock makes this thread the only one to append, and `start` is where its region ends.
            unsafe { open.buffer.write(start + offset, run) };
        });
        open.end = start + length;
        open.records += 1;
        open.summary.add(Summary::moment(draft.expiry), sequence);
        let is_tombstone = draft.marks & mark::TOMBSTONE != 0;
        footer::push(&mut open.footer, &Entry { hash, length: length as u32, is_tombstone });
        let region = self.regions.get(open.region);
        region.set_summary(open.summary);
        region.set_extent(open.end as u32, open.records);
        self.regions.note_record(open.region, start, repeats);
        open.buffer.publish(open.end);
        let blocks = (start % BLOCK + length).div_ceil(BLOCK);
        Location::new(self.regions.block_at(open.region, start), blocks)
    }

    /// Hands a full region to the flusher.
    fn seal(&self, open: Open, now: u32) {
        let Open { region, sequence, base, buffer, end, records, mut footer, summary, .. } = open;
        let span = Span { ended: milliseconds(now), ..self.regions.get(region).span() };
        self.regions.get(region).set_span(span);
        footer[..footer::SUMMARY_BYTES].copy_from_slice(&footer::encode_head(&summary, &span));
        let trailer = Trailer {
            version: VERSION,
            tier: self.tier,
            sequence,
            base,
            records,
            records_end: end as u32,
            footer_bytes: footer.len() as u32,
            footer_hash: hash(&footer),
        };
        footer.extend_from_slice(&trailer.encode());
        self.regions.get(region).set_state(State::Sealed);
        self.queue.push(Sealed { region, sequence, buffer, end, tail: footer });
        self.counters.regions_filled.fetch_add(1, Ordering::Relaxed);
    }

    /// Seals the open region of a group, if it has one with records.
    pub(crate) fn rotate(&self, group: usize, now: u32) {
        let mut head = self.groups[group].open.lock();
        if head.as_ref().is_some_and(|open| open.records > 0)
            && let Some(open) = head.take()
        {
            self.groups[group].sequence.store(0, Ordering::Release);
            self.seal(open, now);
        }
    }

    /// Throws away the open regions; what is appended from now on lies in regions not below the number returned.
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

    /// The sequence number that the next region will have. All regions with lower ones are in the table of regions.
    pub(crate) fn end(&self) -> u64 {
        // A region's number is taken, and written into the table, under its group's lock.
        let _heads = self.groups.each_ref().map(|group| group.open.lock());
        self.regions.upcoming_sequence()
    }

    /// Looks at the open region of a group under its lock.
    pub(crate) fn with_open<T>(&self, group: usize, look: impl FnOnce(Option<&mut Open>) -> T) -> T {
        look(self.groups[group].open.lock().as_mut())
    }
}
