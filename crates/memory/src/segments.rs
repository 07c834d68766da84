//! The segments of a shard: pages of records, in two queues in order of age.
//!
//! ```text
//!            take a page                    next segment opened
//!   (none) ---------------> open (newest) -----------------------> sealed
//!      ^                                                              |
//!      +--------------------------------------------------------------+
//!         no live record left, and no reader without the lock
//! ```
//!
//! There is no edge from sealed back to open: a sealed segment only loses records.

#[cfg(feature = "testing")]
mod verify;

use std::ops::Range;

use moneta_pages::{PAGE_BYTES, Page};
use moneta_store::Expiry;

use crate::record::{
    CasBase, FRAGMENT_HEADER_BYTES, Fragment, Header, NO_FRAGMENT, UNIT, fragment_header_length, header_length,
    is_fragment, mark,
};

/// Offset of the first record. Not 0, so that no location is 0.
pub(crate) const FIRST: usize = UNIT;
/// Bytes of records a segment takes.
pub(crate) const CAPACITY: usize = PAGE_BYTES - FIRST;
/// Bits of a location that name the unit in the segment.
const UNIT_BITS: u32 = (PAGE_BYTES / UNIT).trailing_zeros();
const NONE: u32 = u32::MAX;
/// The table of segments grows by one in this many entries: doubled, up to half of it would be empty.
const TABLE_GROWTH: usize = 16;
/// Memory that goes with a page outside it, in bytes: its entry in the table, the table's spare room, and a vacant number.
pub(crate) const PAGE_EXTRA_BYTES: usize = 80;

/// Where a record begins: segment and unit in 35 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Location(pub(crate) u64);

impl Location {
    /// Bits a location takes.
    pub(crate) const BITS: u32 = 35;
    /// Segments that locations can name: 128 GiB of them.
    pub(crate) const SEGMENTS_MAX: usize = 1 << (Self::BITS - UNIT_BITS);

    pub(crate) fn new(segment: u32, offset: usize) -> Self {
        debug_assert!(offset.is_multiple_of(UNIT) && offset >= FIRST);
        Self(u64::from(segment) << UNIT_BITS | (offset / UNIT) as u64)
    }

    #[inline]
    pub(crate) fn segment(self) -> u32 {
        (self.0 >> UNIT_BITS) as u32
    }

    #[inline]
    pub(crate) fn offset(self) -> usize {
        (self.0 & ((1 << UNIT_BITS) - 1)) as usize * UNIT
    }
}

/// The two logs of S3-FIFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Log {
    /// Probationary: where new keys go.
    Small = 0,
    /// Where keys go that proved to be wanted.
    Main = 1,
}

/// A page in use.
#[derive(Debug)]
pub(crate) struct Segment {
    page: Page,
    log: Log,
    /// Bytes written, from the start of the page.
    written: u32,
    /// Bytes of live records.
    live: u32,
    /// Readers and writers at work in it without the shard's lock.
    pins: u32,
    /// What CAS distances count from.
    base: CasBase,
    /// Earliest moment at which one of its records may die; 0 if none will.
    soonest: u32,
    /// How far eviction has come in it.
    scanned: u32,
    /// In no log any more: dropped by a flush while pinned.
    is_orphan: bool,
    newer: u32,
    older: u32,
}

#[derive(Debug)]
struct Queue {
    oldest: u32,
    newest: u32,
    segments: usize,
}

/// All segments of a shard.
#[derive(Debug)]
pub(crate) struct Segments {
    table: Vec<Option<Segment>>,
    vacant: Vec<u32>,
    queues: [Queue; 2],
    /// Segments that a flush found pinned.
    orphans: usize,
}

const _: () = assert!(
    size_of::<Option<Segment>>() * (TABLE_GROWTH + 1) / TABLE_GROWTH + 2 * size_of::<u32>() <= PAGE_EXTRA_BYTES
);

impl Queue {
    const EMPTY: Self = Self { oldest: NONE, newest: NONE, segments: 0 };
}

impl Segments {
    pub(crate) fn new() -> Self {
        Self { table: Vec::new(), vacant: Vec::new(), queues: [Queue::EMPTY, Queue::EMPTY], orphans: 0 }
    }

    /// Segments in use.
    pub(crate) fn len(&self) -> usize {
        self.queues[0].segments + self.queues[1].segments + self.orphans
    }

    /// Segments in one log.
    pub(crate) fn len_of(&self, log: Log) -> usize {
        self.queues[log as usize].segments
    }

    /// One past the highest segment number in use.
    pub(crate) fn numbers(&self) -> u32 {
        self.table.len() as u32
    }

    #[inline]
    fn segment(&self, number: u32) -> &Segment {
        self.table[number as usize].as_ref().expect("a location names a segment in use")
    }

    #[inline]
    fn segment_mut(&mut self, number: u32) -> &mut Segment {
        self.table[number as usize].as_mut().expect("a location names a segment in use")
    }

    /// Opens a new segment at the young end of a log and seals the one before.
    pub(crate) fn open(&mut self, log: Log, page: Page, base: CasBase) -> u32 {
        let before = self.queues[log as usize].newest;
        let segment = Segment {
            page,
            log,
            written: FIRST as u32,
            live: 0,
            pins: 0,
            base,
            soonest: 0,
            scanned: FIRST as u32,
            is_orphan: false,
            newer: NONE,
            older: before,
        };
        let number = match self.vacant.pop() {
            Some(number) => {
                self.table[number as usize] = Some(segment);
                number
            }
            None => {
                if self.table.len() == self.table.capacity() {
                    self.table.reserve_exact(self.table.len() / TABLE_GROWTH + 1);
                }
                self.table.push(Some(segment));
                (self.table.len() - 1) as u32
            }
        };
        let queue = &mut self.queues[log as usize];
        queue.newest = number;
        queue.segments += 1;
        if before == NONE {
            queue.oldest = number;
        } else {
            self.segment_mut(before).newer = number;
            self.release_if_empty(before);
        }
        number
    }

    /// Frees a sealed segment without live records and pins.
    fn release_if_empty(&mut self, number: u32) {
        let segment = self.segment(number);
        if segment.live != 0 || segment.pins != 0 || self.queues[segment.log as usize].newest == number {
            return;
        }
        if segment.is_orphan {
            self.orphans -= 1;
        } else {
            self.unlink(number);
        }
        self.table[number as usize] = None;
        self.vacant.push(number);
    }

    /// Takes a segment that is not its log's newest out of its log.
    fn unlink(&mut self, number: u32) {
        let &Segment { newer, older, log, .. } = self.segment(number);
        if newer != NONE {
            self.segment_mut(newer).older = older;
        }
        if older != NONE {
            self.segment_mut(older).newer = newer;
        }
        let queue = &mut self.queues[log as usize];
        queue.segments -= 1;
        if queue.oldest == number {
            queue.oldest = newer;
        }
    }

    /// Whether a fragment is all that lives in a sealed segment, and fills enough of it to keep a page for it.
    pub(crate) fn holds_only(&self, location: Location) -> bool {
        let segment = self.segment(location.segment());
        let open = self.queues[segment.log as usize].newest == location.segment();
        !open && segment.live as usize == self.fragment(location).0.size() && segment.live as usize > CAPACITY / 2
    }

    /// Moves a sealed segment to the young end of a log that has an open segment, just after that one.
    pub(crate) fn rejuvenate(&mut self, number: u32, log: Log) {
        self.unlink(number);
        let newest = self.queues[log as usize].newest;
        let older = self.segment(newest).older;
        let segment = self.segment_mut(number);
        segment.log = log;
        segment.scanned = FIRST as u32;
        segment.newer = newest;
        segment.older = older;
        self.segment_mut(newest).older = number;
        let queue = &mut self.queues[log as usize];
        queue.segments += 1;
        if older == NONE {
            queue.oldest = number;
        } else {
            self.segment_mut(older).newer = number;
        }
    }

    /// Frees all segments. Pinned ones leave their logs now and are freed with their last pin.
    pub(crate) fn clear(&mut self) {
        self.queues = [Queue::EMPTY, Queue::EMPTY];
        self.vacant.clear();
        self.orphans = 0;
        for number in (0..self.numbers()).rev() {
            let slot = &mut self.table[number as usize];
            if slot.as_ref().is_none_or(|segment| segment.pins == 0) {
                *slot = None;
                self.vacant.push(number);
            } else if let Some(segment) = slot {
                segment.is_orphan = true;
                segment.live = 0;
                self.orphans += 1;
            }
        }
    }

    /// Bytes left in the open segment of a log.
    #[inline]
    pub(crate) fn room(&self, log: Log) -> usize {
        match self.queues[log as usize].newest {
            NONE => 0,
            number => PAGE_BYTES - self.segment(number).written as usize,
        }
    }

    /// Takes `bytes` (whole units, at most [`Segments::room`]) at the end of the open segment; they count as live.
    #[inline]
    pub(crate) fn take(&mut self, log: Log, bytes: usize, expiry: Expiry) -> Location {
        let number = self.queues[log as usize].newest;
        let segment = self.segment_mut(number);
        let offset = segment.written as usize;
        debug_assert!(bytes.is_multiple_of(UNIT) && offset + bytes <= PAGE_BYTES);
        segment.written += bytes as u32;
        segment.live += bytes as u32;
        segment.note_expiry(expiry);
        Location::new(number, offset)
    }

    /// Notes that a record in a segment now dies at `expiry`.
    pub(crate) fn note_expiry(&mut self, location: Location, expiry: Expiry) {
        self.segment_mut(location.segment()).note_expiry(expiry);
    }

    /// What CAS distances in the segment count from.
    #[inline]
    pub(crate) fn base(&self, location: Location) -> CasBase {
        self.segment(location.segment()).base
    }

    /// What CAS distances in the open segment of a log count from; `None` without one.
    #[inline]
    pub(crate) fn open_base(&self, log: Log) -> Option<CasBase> {
        match self.queues[log as usize].newest {
            NONE => None,
            number => Some(self.segment(number).base),
        }
    }

    /// The log a record lies in.
    #[inline]
    pub(crate) fn log(&self, location: Location) -> Log {
        self.segment(location.segment()).log
    }

    /// The log a segment belongs to.
    pub(crate) fn log_of(&self, number: u32) -> Log {
        self.segment(number).log
    }

    /// The header of the record at `location`.
    #[inline(always)]
    pub(crate) fn header(&self, location: Location) -> Header {
        self.segment(location.segment()).header(location.offset())
    }

    /// The key of the record at `location`, without decoding the rest.
    #[inline]
    pub(crate) fn key(&self, location: Location) -> &[u8] {
        self.segment(location.segment()).key(location.offset())
    }

    /// A range of bytes after `location`, all of it in one record: after that another thread may be filling room.
    #[inline]
    pub(crate) fn bytes(&self, location: Location, range: Range<usize>) -> &[u8] {
        let offset = location.offset();
        self.segment(location.segment()).page.slice(offset + range.start..offset + range.end)
    }

    /// Asks the processor for the first cache lines of a record.
    #[inline]
    pub(crate) fn prefetch(&self, location: Location) {
        self.segment(location.segment()).page.prefetch(location.offset());
    }

    /// `length` bytes from `location` plus `start` on, to write.
    #[inline]
    pub(crate) fn bytes_mut(&mut self, location: Location, start: usize, length: usize) -> &mut [u8] {
        let offset = location.offset() + start;
        self.segment_mut(location.segment()).page.slice_mut(offset..offset + length)
    }

    /// A range of bytes after `location` for use without the lock. The segment must be pinned meanwhile.
    pub(crate) fn part(&self, location: Location, range: Range<usize>) -> moneta_pages::Part {
        let offset = location.offset();
        self.segment(location.segment()).page.part(offset + range.start..offset + range.end)
    }

    /// Where the payload of the fragment at `location` lies, and the fragment.
    pub(crate) fn fragment(&self, location: Location) -> (Fragment, &[u8]) {
        let fragment = self.segment(location.segment()).fragment(location.offset());
        (fragment, self.bytes(location, FRAGMENT_HEADER_BYTES..FRAGMENT_HEADER_BYTES + fragment.length as usize))
    }

    /// Marks a record and its fragments dead and gives up segments that were emptied by it.
    #[inline]
    pub(crate) fn kill(&mut self, location: Location) {
        let header = self.header(location);
        self.bury(location, header.size());
        let mut next = if header.split { header.next } else { NO_FRAGMENT };
        while next != NO_FRAGMENT {
            let location = Location(next);
            let (fragment, _) = self.fragment(location);
            next = fragment.next;
            self.bury(location, fragment.size());
        }
    }

    /// Marks one record or fragment dead, without what it points to.
    #[inline]
    pub(crate) fn bury(&mut self, location: Location, size: usize) {
        let segment = self.segment_mut(location.segment());
        segment.page.slice_mut(location.offset()..location.offset() + 1)[0] |= mark::DEAD;
        segment.live -= size as u32;
        if segment.live == 0 {
            self.release_if_empty(location.segment());
        }
    }

    /// Turns the last bytes of a record that shrank in place into filler.
    pub(crate) fn leave_filler(&mut self, location: Location, from: usize, to: usize) {
        if from == to {
            return;
        }
        Fragment::fill(self.bytes_mut(location, from, to - from));
        self.segment_mut(location.segment()).live -= (to - from) as u32;
    }

    /// Keeps a segment from being freed or moved while it is used without the lock.
    pub(crate) fn pin(&mut self, number: u32) {
        self.segment_mut(number).pins += 1;
    }

    /// Ends what [`Segments::pin`] began.
    pub(crate) fn unpin(&mut self, number: u32) {
        self.segment_mut(number).pins -= 1;
        self.release_if_empty(number);
    }

    /// The oldest sealed segment of a log that is not pinned.
    pub(crate) fn oldest(&self, log: Log) -> Option<u32> {
        let queue = &self.queues[log as usize];
        let mut number = queue.oldest;
        while number != NONE && number != queue.newest {
            let segment = self.segment(number);
            if segment.pins == 0 {
                return Some(number);
            }
            number = segment.newer;
        }
        None
    }

    /// How far eviction has come in a segment. Each keeps its own: while the oldest is pinned, eviction works in another.
    pub(crate) fn scanned(&self, number: u32) -> usize {
        self.segment(number).scanned as usize
    }

    /// Notes how far eviction has come.
    pub(crate) fn set_scanned(&mut self, number: u32, offset: usize) {
        self.segment_mut(number).scanned = offset as u32;
    }

    /// Whether a number names a segment in use.
    pub(crate) fn is_in_use(&self, number: u32) -> bool {
        self.table.get(number as usize).is_some_and(Option::is_some)
    }

    /// The record at `offset` of a segment, and the offset of the next; `None` at the end.
    pub(crate) fn entry(&self, number: u32, offset: usize) -> Option<(Entry, usize)> {
        let segment = self.segment(number);
        if offset >= segment.written as usize {
            return None;
        }
        let location = Location::new(number, offset);
        if is_fragment(segment.page.slice(offset..offset + UNIT)) {
            let fragment = segment.fragment(offset);
            let live = fragment.marks & mark::DEAD == 0;
            return Some((Entry::Fragment { live }, offset + fragment.size()));
        }
        let header = segment.header(offset);
        let next = offset + header.size();
        let entry = if header.is(mark::DEAD) { Entry::Dead } else { Entry::Live(location, header) };
        Some((entry, next))
    }

    /// Numbers of a segment for choosing which one to clean.
    pub(crate) fn census(&self, number: u32) -> Option<Census> {
        let segment = self.table.get(number as usize)?.as_ref()?;
        let open = self.queues[segment.log as usize].newest == number;
        (!open && segment.pins == 0).then_some(Census { live: segment.live as usize, soonest: segment.soonest })
    }

    /// Sets anew when records of a segment die, after a sweep has looked at all of them.
    pub(crate) fn set_soonest(&mut self, number: u32, soonest: u32) {
        if self.is_in_use(number) {
            self.segment_mut(number).soonest = soonest;
        }
    }

    /// Bytes of live records, and bytes of dead ones and unused ends, over all segments.
    pub(crate) fn live_and_dead(&self) -> (u64, u64) {
        let segments = self.table.iter().enumerate().filter_map(|(number, segment)| Some((number, segment.as_ref()?)));
        segments.fold((0, 0), |(live, dead), (number, segment)| {
            let open = self.queues[segment.log as usize].newest as usize == number;
            let end = if open { segment.written as usize } else { PAGE_BYTES };
            (live + u64::from(segment.live), dead + end as u64 - u64::from(segment.live))
        })
    }
}

/// What lies at a place in a segment.
#[derive(Debug)]
pub(crate) enum Entry {
    /// An item's record, the newest of its key.
    Live(Location, Header),
    /// Overwritten, deleted, expired or moved.
    Dead,
    /// Part of a split value, or filler.
    Fragment {
        /// Part of a live item.
        live: bool,
    },
}

/// What choosing a segment to clean goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Census {
    pub(crate) live: usize,
    pub(crate) soonest: u32,
}

// No slice reaches after the record it is for: there another thread may be filling room without the shard's lock, and a slice
// over bytes that are written meanwhile is undefined, read or not.
impl Segment {
    #[inline(always)]
    fn header(&self, offset: usize) -> Header {
        let widths = self.base.widths();
        let length = header_length(self.page.slice(offset..offset + UNIT), widths);
        Header::read(self.page.slice(offset..offset + length), widths)
    }

    #[inline]
    fn key(&self, offset: usize) -> &[u8] {
        let first = self.page.slice(offset..offset + UNIT);
        let start = offset + header_length(first, self.base.widths());
        self.page.slice(start..start + usize::from(first[1]))
    }

    fn fragment(&self, offset: usize) -> Fragment {
        let length = fragment_header_length(self.page.slice(offset..offset + UNIT));
        Fragment::read(self.page.slice(offset..offset + length))
    }

    #[inline]
    fn note_expiry(&mut self, expiry: Expiry) {
        if expiry != Expiry::NEVER && (self.soonest == 0 || expiry.0 < self.soonest) {
            self.soonest = expiry.0;
        }
    }
}
