//! The table of regions: the state of each, and where in its blocks records begin.
//!
//! ```text
//!            begin        seal          records written         trailer written
//!   free ────────▶ open ───────▶ sealed ───────────────▶ written ──────────────▶ closed
//!    ▲               │              │                       │     a sync before     │ chosen
//!    │     wiped     │ flush_all    │ flush_all             │ flush_all             ▼
//!    └───────────────┴──────────────┴───────────────────────┴────────────────── reclaiming ──▶ retired
//!                                                                                 block bad
//!
//! If the sync after its trailer fails, a region goes back from closed to written.
//! ```
//!
//! A region's sequence number is set before anything of its new use is visible, and is 0 while it is free; a reader compares
//! it after reading from a device.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use moneta_store::Version;
use parking_lot::{Mutex, RwLock};

use crate::log::buffer::Buffer;
use moneta_device::format::BLOCK;
use moneta_device::format::footer::{Span, Summary};

/// The state of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum RegionStage {
    Free,
    Open,
    Sealed,
    /// Its records are written; footer and trailer wait for a sync to follow them.
    Written,
    Closed,
    Reclaiming,
    /// A device cannot read or write it: out of use for good.
    Retired,
}

impl RegionStage {
    const ALL: [Self; 7] =
        [Self::Free, Self::Open, Self::Sealed, Self::Written, Self::Closed, Self::Reclaiming, Self::Retired];
}

/// One region.
#[derive(Default)]
pub(crate) struct Region {
    state: AtomicU8,
    sequence: AtomicU64,
    base: AtomicU64,
    salt: AtomicU64,
    expiry_min: AtomicU32,
    expiry_max: AtomicU32,
    behind: AtomicU64,
    last: AtomicU64,
    begun: AtomicU64,
    ended: AtomicU64,
    version: AtomicU64,
    records_end: AtomicU32,
    records: AtomicU32,
    /// The device does not take all of its blocks: it is retired when it is emptied.
    bad: AtomicBool,
    /// All of its records were carried forward. False if that is not known.
    carried: AtomicBool,
    /// The region in RAM, while it is being filled or written. Read-locked for a lookup, write-locked to set it.
    pub(crate) resident: RwLock<Option<Arc<Buffer>>>,
}

impl std::fmt::Debug for Region {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Region").field("state", &self.state()).field("sequence", &self.sequence()).finish()
    }
}

impl Region {
    pub(crate) fn state(&self) -> RegionStage {
        RegionStage::ALL[usize::from(self.state.load(Ordering::Acquire))]
    }

    pub(crate) fn set_state(&self, state: RegionStage) {
        self.state.store(state as u8, Ordering::Release);
    }

    /// Changes the state from `from` to `to`; false if it was another.
    pub(crate) fn change_state(&self, from: RegionStage, to: RegionStage) -> bool {
        self.state.compare_exchange(from as u8, to as u8, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Its sequence number; 0 if it is free.
    pub(crate) fn sequence(&self) -> u64 {
        self.sequence.load(Ordering::Acquire)
    }

    /// Base of its records' sequence numbers.
    pub(crate) fn base(&self) -> u64 {
        self.base.load(Ordering::Relaxed)
    }

    /// The salt of its records' checksums. It belongs to the sequence number read before, if the number is the same afterwards.
    pub(crate) fn salt(&self) -> u64 {
        self.salt.load(Ordering::Acquire)
    }

    pub(crate) fn summary(&self) -> Summary {
        Summary {
            expiry_min: self.expiry_min.load(Ordering::Relaxed),
            expiry_max: self.expiry_max.load(Ordering::Relaxed),
            behind: self.behind.load(Ordering::Relaxed),
            last: self.last.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_summary(&self, summary: Summary) {
        self.expiry_min.store(summary.expiry_min, Ordering::Relaxed);
        self.expiry_max.store(summary.expiry_max, Ordering::Relaxed);
        self.behind.store(summary.behind, Ordering::Relaxed);
        self.last.store(summary.last, Ordering::Relaxed);
    }

    /// When it was filled.
    pub(crate) fn span(&self) -> Span {
        Span {
            begun: self.begun.load(Ordering::Relaxed),
            ended: self.ended.load(Ordering::Relaxed),
            version: self.version.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn set_span(&self, span: Span) {
        self.begun.store(span.begun, Ordering::Relaxed);
        self.ended.store(span.ended, Ordering::Relaxed);
        self.version.store(span.version, Ordering::Relaxed);
    }

    /// The greatest version of its records; 0 if they have none.
    pub(crate) fn greatest_version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }

    /// Notes the version of one more record, before it can be found.
    pub(crate) fn note_version(&self, version: Version) {
        self.version.fetch_max(version.0, Ordering::Release);
    }

    /// Where its records end.
    pub(crate) fn records_end(&self) -> u32 {
        self.records_end.load(Ordering::Relaxed)
    }

    /// How many records it has.
    pub(crate) fn records(&self) -> u32 {
        self.records.load(Ordering::Relaxed)
    }

    pub(crate) fn set_extent(&self, records_end: u32, records: u32) {
        self.records_end.store(records_end, Ordering::Relaxed);
        self.records.store(records, Ordering::Relaxed);
    }

    /// Whether it is retired when it is emptied, instead of being used again.
    pub(crate) fn is_bad(&self) -> bool {
        self.bad.load(Ordering::Acquire)
    }

    pub(crate) fn set_bad(&self, bad: bool) {
        self.bad.store(bad, Ordering::Release);
    }

    /// Whether all of its records are known to be carried-forward ones. Final when it is not open any more.
    pub(crate) fn is_carried(&self) -> bool {
        self.carried.load(Ordering::Acquire)
    }

    pub(crate) fn set_carried(&self, carried: bool) {
        self.carried.store(carried, Ordering::Release);
    }

    /// Begins a new use.
    pub(crate) fn begin(&self, sequence: u64, base: u64, salt: u64, state: RegionStage) {
        self.base.store(base, Ordering::Relaxed);
        self.salt.store(salt, Ordering::Relaxed);
        self.set_carried(false);
        self.set_summary(Summary::EMPTY);
        self.set_span(Span::default());
        self.set_extent(0, 0);
        self.sequence.store(sequence, Ordering::Release);
        self.set_state(state);
    }

    /// Ends its use.
    pub(crate) fn end(&self) {
        self.leave(RegionStage::Free);
    }

    fn leave(&self, state: RegionStage) {
        self.sequence.store(0, Ordering::Release);
        *self.resident.write() = None;
        self.set_state(state);
    }
}

/// No record begins in the block.
const NONE: u16 = u16::MAX;
/// Bits of the offset of a block's first record.
const OFFSET: u16 = BLOCK as u16 - 1;
/// All records that begin in the block have different identities. Snapshots of builds without this mark have 0 here.
const DISTINCT: u16 = 1 << 15;

const _: () = assert!(OFFSET | DISTINCT != NONE);

/// The records that begin in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Begins {
    /// Offset of the first one in the region.
    pub(crate) first: usize,
    /// All of them have different identities: a key's record found here is its newest in the block.
    pub(crate) distinct: bool,
}

/// Sequence numbers that superblocks allow ahead of those that are given out. They are written once for half as many regions.
pub(crate) const SEQUENCES_AHEAD: u64 = 1024;

/// All regions of a tier.
#[derive(Debug)]
pub(crate) struct Regions {
    regions: Box<[Region]>,
    blocks_per_region: usize,
    /// For each block, the offset of the first record that begins in it, and [`DISTINCT`].
    firsts: Box<[AtomicU16]>,
    /// Free regions; taken from the front. Held for a push or a pop.
    free: Mutex<VecDeque<u32>>,
    /// The sequence number of the next region to be begun.
    next_sequence: AtomicU64,
    /// The greatest sequence number that superblocks allow.
    sequence_limit: AtomicU64,
    /// Number of retired regions.
    retired: AtomicUsize,
    /// Regions emptied to make room.
    emptied: AtomicU64,
    /// A lower bound of the sequence numbers of regions in use. May lag behind.
    oldest: AtomicU64,
}

impl Regions {
    /// A table of `count` unused regions, none of them on the free list yet.
    pub(crate) fn new(count: usize, region_bytes: usize) -> Self {
        let blocks_per_region = region_bytes / BLOCK;
        Self {
            regions: (0..count).map(|_| Region::default()).collect(),
            blocks_per_region,
            firsts: (0..count * blocks_per_region).map(|_| AtomicU16::new(NONE)).collect(),
            free: Mutex::default(),
            next_sequence: AtomicU64::new(1),
            sequence_limit: AtomicU64::new(0),
            retired: AtomicUsize::new(0),
            emptied: AtomicU64::new(0),
            oldest: AtomicU64::new(1),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.regions.len()
    }

    #[inline]
    pub(crate) fn get(&self, region: usize) -> &Region {
        &self.regions[region]
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &Region)> {
        self.regions.iter().enumerate()
    }

    /// The region a block is in.
    #[inline]
    pub(crate) fn region_of(&self, block: usize) -> usize {
        block / self.blocks_per_region
    }

    /// Where a block begins in its region.
    #[inline]
    pub(crate) fn offset_of(&self, block: usize) -> usize {
        block % self.blocks_per_region * BLOCK
    }

    /// The block in which an offset of a region lies.
    #[inline]
    pub(crate) fn block_at(&self, region: usize, offset: usize) -> usize {
        region * self.blocks_per_region + offset / BLOCK
    }

    /// Offset in the region of the first record that begins in `block`.
    #[inline]
    pub(crate) fn first_record(&self, block: usize) -> Option<usize> {
        self.begins(block).map(|begins| begins.first)
    }

    /// The records that begin in `block`, if any do.
    #[inline]
    pub(crate) fn begins(&self, block: usize) -> Option<Begins> {
        match self.firsts[block].load(Ordering::Acquire) {
            NONE => None,
            known => Some(Begins {
                first: self.offset_of(block) + usize::from(known & OFFSET),
                distinct: known & DISTINCT != 0,
            }),
        }
    }

    /// Notes that a record begins at an offset of a region. `repeats`: an earlier record of the same identity may begin in the
    /// same block.
    pub(crate) fn note_record(&self, region: usize, offset: usize, repeats: bool) {
        let known = &self.firsts[self.block_at(region, offset)];
        let distinct = if repeats { 0 } else { DISTINCT };
        let within = (offset % BLOCK) as u16;
        let before = known.load(Ordering::Relaxed);
        let now = match before {
            NONE => within | distinct,
            _ => within.min(before & OFFSET) | before & distinct,
        };
        if now != before {
            known.store(now, Ordering::Release);
        }
    }

    /// Forgets where a region's records begin.
    pub(crate) fn forget_records(&self, region: usize) {
        let start = region * self.blocks_per_region;
        self.firsts[start..start + self.blocks_per_region]
            .iter()
            .for_each(|first| first.store(NONE, Ordering::Relaxed));
    }

    /// The raw table of where records begin, for a snapshot.
    pub(crate) fn firsts(&self) -> &[AtomicU16] {
        &self.firsts
    }

    /// A free region to fill, if more than `reserve` are free.
    pub(crate) fn take_free(&self, reserve: usize) -> Option<usize> {
        let mut free = self.free.lock();
        if free.len() <= reserve {
            return None;
        }
        free.pop_front().map(|region| region as usize)
    }

    /// Puts a region on the free list, unless it is retired.
    pub(crate) fn give_back(&self, region: usize) {
        if self.get(region).state() != RegionStage::Retired {
            self.free.lock().push_back(region as u32);
        }
    }

    /// Takes a region out of use for good.
    pub(crate) fn retire(&self, region: usize) {
        if self.get(region).state() != RegionStage::Retired {
            self.get(region).leave(RegionStage::Retired);
            self.retired.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Regions that are not retired.
    pub(crate) fn usable(&self) -> usize {
        self.len() - self.retired.load(Ordering::Relaxed)
    }

    pub(crate) fn free(&self) -> usize {
        self.free.lock().len()
    }

    /// Ends the use of a region that was emptied to make room.
    pub(crate) fn end_emptied(&self, region: usize) {
        // Counted first, so that a walk that finds the region gone also sees the higher count.
        self.emptied.fetch_add(1, Ordering::Release);
        self.get(region).end();
    }

    /// Ends the use of a region that is retired.
    pub(crate) fn end_retired(&self, region: usize) {
        self.emptied.fetch_add(1, Ordering::Release);
        self.retire(region);
    }

    /// How many regions were emptied to make room.
    pub(crate) fn emptied(&self) -> u64 {
        self.emptied.load(Ordering::Acquire)
    }

    /// A sequence number for a region to be begun; `None` until superblocks allow more of them.
    pub(crate) fn next_sequence(&self) -> Option<u64> {
        let limit = self.sequence_limit.load(Ordering::Acquire);
        let next = |next: u64| (next <= limit).then_some(next + 1);
        self.next_sequence.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).ok()
    }

    /// A limit of sequence numbers to write to superblocks, if few are left below the last one.
    pub(crate) fn wanted_limit(&self) -> Option<u64> {
        let limit = self.upcoming_sequence() + SEQUENCES_AHEAD;
        (limit - self.sequence_limit.load(Ordering::Relaxed) > SEQUENCES_AHEAD / 2).then_some(limit)
    }

    /// Superblocks have that limit.
    pub(crate) fn allow_sequences(&self, limit: u64) {
        self.sequence_limit.fetch_max(limit, Ordering::Release);
    }

    /// The sequence number that the next region will have.
    pub(crate) fn upcoming_sequence(&self) -> u64 {
        self.next_sequence.load(Ordering::Relaxed)
    }

    /// A lower bound of the sequence numbers of regions in use.
    #[inline]
    pub(crate) fn oldest(&self) -> u64 {
        self.oldest.load(Ordering::Relaxed)
    }

    /// Notes that no region in use has a sequence number below `sequence`.
    pub(crate) fn note_oldest(&self, sequence: u64) {
        self.oldest.fetch_max(sequence, Ordering::Relaxed);
    }

    /// Makes all further regions' sequence numbers greater than `floor`.
    pub(crate) fn raise_sequence(&self, floor: u64) {
        self.next_sequence.fetch_max(floor + 1, Ordering::Relaxed);
    }

    /// Bytes of memory the table takes.
    pub(crate) fn memory(&self) -> usize {
        self.firsts.len() * size_of::<AtomicU16>() + self.regions.len() * size_of::<Region>()
    }
}
