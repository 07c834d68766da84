//! Writing records: room in the open segment, a new segment, or a value split over several.

use moneta_store::Expiry;

use crate::record::{FRAGMENT_HEADER_BYTES, Fragment, Header, NO_FRAGMENT, Stamp, UNIT, mark, padded};
use crate::segments::{CAPACITY, Location, Log};
use crate::shard::Shard;

/// A record that does not fit the rest of its segment is split if it is at least this large; a smaller one leaves the rest
/// unused. At most this much, so under 2 % of a segment on average, is lost so.
const SPLIT_FROM: usize = 2048;
/// A split record's first part has at least this many bytes of value, else it is not worth a header.
const FIRST_PART_MIN: usize = 64;

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Draft<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) hash: u64,
    pub(crate) value_length: usize,
    /// FETCHED, STALE, TOKEN and DEAD as wanted; the others follow from the fields.
    pub(crate) marks: u8,
    /// Its CAS value.
    pub(crate) cas: Cas,
    pub(crate) expiry: Expiry,
    pub(crate) flags: u32,
    pub(crate) last_access: u32,
    /// Has expiry and flags fields even where they would say nothing, so that they can be set later.
    pub(crate) all_fields: bool,
}

/// A record's CAS value, and the form it is kept in.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Cas {
    /// The shortest that holds it.
    Short(Stamp),
    /// One in which later versions fit, too: it can then be changed in place.
    Lasting(Stamp),
    /// 64 bits: it means the same in any segment.
    Full(Stamp),
}

/// Room for a record whose header and key are written and whose value is not yet.
#[derive(Debug)]
pub(crate) struct Room {
    pub(crate) location: Location,
    /// Where in the record the value begins, and how much of it belongs there.
    pub(crate) first: (usize, usize),
    /// The fragments, and how much of the value belongs in each.
    pub(crate) fragments: Vec<(Location, usize)>,
}

/// No page could be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// Pages that writing a record of `bytes` may take in the worst case.
pub(crate) fn pages_for(bytes: usize) -> usize {
    1 + bytes / (CAPACITY - FRAGMENT_HEADER_BYTES)
}

impl Shard {
    /// Takes room for a record at the young end of `log` and writes all of it but the value. Call
    /// [`Shard::make_room`] before.
    #[inline]
    pub(crate) fn take_room(&mut self, log: Log, draft: &Draft<'_>) -> Result<Room, NoRoom> {
        let mut header = self.header(log, draft);
        let whole = header.value_start() + draft.value_length;
        let room = self.segments.room(log);
        if padded(whole) <= room && draft.value_length < usize::from(u16::MAX) {
            return Ok(self.take_whole(log, draft, &header));
        }
        let split_head = header.bytes_if_split() + draft.key.len();
        if whole < SPLIT_FROM || room < split_head + FIRST_PART_MIN {
            self.open_segment(log)?;
            header = self.header(log, draft);
            if padded(header.value_start() + draft.value_length) <= self.segments.room(log) {
                return Ok(self.take_whole(log, draft, &header));
            }
        }
        self.take_split(log, draft, header)
    }

    fn take_whole(&mut self, log: Log, draft: &Draft<'_>, header: &Header) -> Room {
        let location = self.segments.take(log, header.size(), draft.expiry);
        let start = header.value_start();
        let bytes = self.segments.bytes_mut(location, 0, start);
        header.write(bytes);
        bytes[start - draft.key.len()..].copy_from_slice(draft.key);
        Room { location, first: (start, draft.value_length), fragments: Vec::new() }
    }

    fn take_split(&mut self, log: Log, draft: &Draft<'_>, mut header: Header) -> Result<Room, NoRoom> {
        let room = self.segments.room(log);
        header.split = true;
        let start = header.value_start();
        header.first_length = (room - start).min(draft.value_length) as u32;
        let location = self.segments.take(log, header.size(), draft.expiry);
        let first = (start, header.first_length as usize);
        let mut left = draft.value_length - first.1;
        let mut fragments = Vec::with_capacity(pages_for(left));
        while left > 0 {
            if self.segments.room(log) < FRAGMENT_HEADER_BYTES + UNIT && self.open_segment(log).is_err() {
                self.drop_unfinished(location, &header, &fragments);
                return Err(NoRoom);
            }
            let length = (self.segments.room(log) - FRAGMENT_HEADER_BYTES).min(left);
            let size = padded(FRAGMENT_HEADER_BYTES + length);
            fragments.push((self.segments.take(log, size, draft.expiry), length));
            left -= length;
        }
        self.write_chain(location, &mut header, draft, &fragments);
        Ok(Room { location, first, fragments })
    }

    fn write_chain(
        &mut self,
        location: Location,
        header: &mut Header,
        draft: &Draft<'_>,
        fragments: &[(Location, usize)],
    ) {
        header.next = fragments.first().map_or(NO_FRAGMENT, |(next, _)| next.0);
        let start = header.value_start();
        let bytes = self.segments.bytes_mut(location, 0, start);
        header.write(bytes);
        bytes[start - draft.key.len()..].copy_from_slice(draft.key);
        for (at, &(location, length)) in fragments.iter().enumerate() {
            let next = fragments.get(at + 1).map_or(NO_FRAGMENT, |(next, _)| next.0);
            let marks = mark::FRAGMENT | (draft.marks & mark::DEAD);
            let fragment = Fragment { marks, length: length as u16, next, hash: draft.hash };
            fragment.write(self.segments.bytes_mut(location, 0, FRAGMENT_HEADER_BYTES));
        }
    }

    /// Gives back what a split record had taken before there was no more.
    fn drop_unfinished(&mut self, location: Location, header: &Header, fragments: &[(Location, usize)]) {
        let draft = Draft {
            key: &[],
            hash: 0,
            value_length: 0,
            marks: 0,
            cas: Cas::Full(Stamp::Chosen(0)),
            expiry: Expiry::NEVER,
            flags: 0,
            last_access: 0,
            all_fields: false,
        };
        // The key is not written: the key of a dead record is never read.
        self.write_chain(location, &mut Header { ..*header }, &draft, fragments);
        self.segments.kill(location);
    }

    /// Writes a value given in two runs into its room.
    #[inline]
    pub(crate) fn fill(&mut self, room: &Room, front: &[u8], back: &[u8]) {
        let (start, length) = room.first;
        if room.fragments.is_empty() && back.is_empty() {
            self.segments.bytes_mut(room.location, start, length).copy_from_slice(front);
            return;
        }
        let mut runs = [front, back];
        copy_runs(&mut runs, self.segments.bytes_mut(room.location, start, length));
        for &(location, length) in &room.fragments {
            copy_runs(&mut runs, self.segments.bytes_mut(location, FRAGMENT_HEADER_BYTES, length));
        }
    }

    /// Opens a new segment if a page can be had without reclaiming.
    pub(crate) fn open_segment(&mut self, log: Log) -> Result<(), NoRoom> {
        if self.pages_left() == 0 {
            return Err(NoRoom);
        }
        let page = self.shared.pool.take().map_err(|_| NoRoom)?;
        let base = self.cas_base();
        self.segments.open(log, page, base);
        Ok(())
    }

    fn header(&self, log: Log, draft: &Draft<'_>) -> Header {
        let mut marks = draft.marks;
        // Without an open segment the header is only measured: it is written with the base of the one to be opened.
        let base = self.segments.open_base(log).unwrap_or_else(|| self.cas_base());
        let (form, cas_field) = match draft.cas {
            Cas::Short(stamp) => base.encode(stamp, false),
            Cas::Lasting(stamp) => base.encode(stamp, true),
            Cas::Full(stamp) => base.encode_full(stamp),
        };
        marks |= form;
        if draft.expiry != Expiry::NEVER || draft.all_fields {
            marks |= mark::EXPIRY;
        }
        if draft.flags != 0 || draft.all_fields {
            marks |= mark::FLAGS;
        }
        Header {
            marks,
            key_length: draft.key.len() as u8,
            value_length: draft.value_length as u32,
            first_length: draft.value_length as u32,
            next: NO_FRAGMENT,
            last_access: draft.last_access,
            cas_field,
            cas_bytes: base.widths().of(marks) as u8,
            expiry: draft.expiry,
            flags: draft.flags,
            split: false,
        }
    }
}

/// Fills `target` from the front of two runs and moves them on.
fn copy_runs(runs: &mut [&[u8]; 2], mut target: &mut [u8]) {
    for run in runs {
        let length = run.len().min(target.len());
        let (now, later) = run.split_at(length);
        let (to, rest) = target.split_at_mut(length);
        to.copy_from_slice(now);
        *run = later;
        target = rest;
    }
}
