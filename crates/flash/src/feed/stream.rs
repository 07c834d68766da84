//! The records of one region, in order.

use std::io;

use super::ahead::{Begun, Part, ReadAhead, read};
use crate::format::BLOCK;
use crate::format::record::{Header, Salt, View};
use crate::format::region::HEADER_BYTES;
use crate::inner::Inner;
use crate::io::Aligned;
use crate::regions::State;
use moneta_store::Version;

/// Bytes read from a device at once, unless a record is larger.
const WINDOW: usize = 1 << 20;
/// Bytes copied from RAM at once, unless a record is larger.
const COPY: usize = 256 << 10;
/// Records up to this size are looked at to find where a stamp is. Larger ones are taken to be behind it.
const PROBE: usize = 4 * BLOCK;

/// The records of a region that are left to read.
pub(super) struct Stream {
    region: usize,
    sequence: u64,
    base: u64,
    salt: u64,
    /// Where the next record begins in the region.
    at: usize,
    bytes: Bytes,
    /// Where they begin in the region.
    start: usize,
    /// Bytes of them in which records lie.
    end: usize,
    /// Stamp and length of the next record, which is whole and sound.
    peeked: Option<(u64, usize)>,
    /// Its changes count even if all of them were carried forward.
    carried_too: bool,
    /// What is being read from the device while this works on what was read before.
    begun: Option<Begun>,
}

/// Part of a region.
enum Bytes {
    /// From RAM.
    Copied(Vec<u8>),
    /// From a device: checksums have to hold.
    Read(Aligned),
}

/// What comes next in a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// A record with this stamp.
    Record(u64),
    /// Nothing up to the fence, but more may come.
    Later,
    /// It was read to its end.
    End,
    /// Everything older than a flush: it counts no longer.
    Flushed,
    /// It was emptied before it was read to its end.
    Gone,
    /// Some of its records cannot be read: changes up to this stamp may be missing.
    Lost(u64),
}

impl Bytes {
    fn all(&self) -> &[u8] {
        match self {
            Self::Copied(bytes) => bytes,
            Self::Read(bytes) => bytes,
        }
    }
}

impl Stream {
    /// The records behind `position` of the region that has that sequence number; `None` if it has another by now.
    pub(super) fn open(inner: &Inner, region: usize, sequence: u64, position: u64, carried_too: bool) -> Option<Self> {
        let entry = inner.regions.get(region);
        let (base, salt) = (entry.base(), entry.salt());
        if entry.sequence() != sequence {
            return None;
        }
        let bytes = Bytes::Copied(Vec::new());
        let (at, start, end) = (HEADER_BYTES, 0, 0);
        let mut stream =
            Self { region, sequence, base, salt, at, bytes, start, end, peeked: None, carried_too, begun: None };
        if position >= Version(base).local() {
            stream.seek(inner, position);
        }
        Some(stream)
    }

    /// Moves to a record that is not behind the first one after `position`.
    fn seek(&mut self, inner: &Inner, position: u64) {
        let last = inner.regions.get(self.region).records_end() as usize / BLOCK;
        let begins_in = |from: usize, to: usize| {
            (from..=to).find_map(|block| inner.regions.first_record(inner.regions.block_at(self.region, block * BLOCK)))
        };
        let (mut low, mut high) = (0, last);
        let mut found = HEADER_BYTES;
        while low < high {
            let middle = (low + high).div_ceil(2);
            match begins_in(middle, high) {
                // What cannot be read counts as behind the position: then the search ends too early, not too late.
                Some(at) if self.stamp_at(inner, at).is_some_and(|stamp| stamp <= position) => {
                    (low, found) = (at / BLOCK, at);
                }
                _ => high = middle - 1,
            }
        }
        self.at = found;
    }

    /// The stamp of the record at an offset, if it is there, small and sound.
    fn stamp_at(&self, inner: &Inner, at: usize) -> Option<u64> {
        let resident = inner.regions.get(self.region).resident.read().clone();
        if let Some(buffer) = resident {
            return buffer.bytes().get(at..).and_then(Header::read).map(|header| self.stamp_of(&header));
        }
        let start = at / BLOCK * BLOCK;
        let mut bytes = Aligned::zeroed(PROBE.min(inner.devices.region_bytes() - start));
        let (device, region_start) = inner.devices.place(self.region);
        inner.devices.media(device).read_at(&mut bytes, region_start + start as u64).ok()?;
        let view = bytes.get(at - start..).and_then(View::read).filter(View::is_whole)?;
        view.is_sound(Salt { key: self.salt, offset: at as u32 }).then(|| self.stamp_of(&view.header))
    }

    fn stamp_of(&self, header: &Header) -> u64 {
        Version(header.stamp(self.base)).local()
    }

    /// Base of its records' stamps.
    pub(super) fn base(&self) -> u64 {
        self.base
    }

    /// The block in which the next record begins.
    pub(super) fn block(&self, inner: &Inner) -> usize {
        inner.regions.block_at(self.region, self.at)
    }

    /// What comes next, up to a fence.
    pub(super) fn next(&mut self, inner: &Inner, ahead: &ReadAhead, fence: u64) -> Next {
        loop {
            if let Some((stamp, _)) = self.peeked {
                return if stamp <= fence { Next::Record(stamp) } else { Next::Later };
            }
            if let Some(ended) = self.advance(inner, ahead) {
                return ended;
            }
        }
    }

    /// Makes the next record available; else says why there is none.
    fn advance(&mut self, inner: &Inner, ahead: &ReadAhead) -> Option<Next> {
        let region = inner.regions.get(self.region);
        // In this order: what is final in a region that is not open any more is read afterwards.
        let is_open = region.state() == State::Open;
        let is_passed = !self.carried_too && region.is_carried();
        if is_passed {
            // The mark may be that of the region's next use.
            return Some(if self.is_gone(inner) {
                self.gone(inner)
            } else if is_open {
                Next::Later
            } else {
                Next::End
            });
        }
        let here =
            self.at.checked_sub(self.start).and_then(|at| self.bytes.all().get(at..self.end)).unwrap_or_default();
        let needed = Header::read(here).map_or(BLOCK, |header| header.len());
        if let Some(view) = View::read(here).filter(View::is_whole) {
            let is_sound = match self.bytes {
                Bytes::Copied(_) => true,
                Bytes::Read(_) => view.is_sound(Salt { key: self.salt, offset: self.at as u32 }),
            };
            if is_sound {
                self.peeked = Some((self.stamp_of(&view.header), view.header.len()));
                return None;
            }
            return Some(self.skip(inner));
        }
        let is_whole_region_seen = !here.is_empty() && matches!(self.bytes, Bytes::Read(_)) && {
            self.start + self.end >= region.records_end() as usize
        };
        if is_whole_region_seen && self.at < region.records_end() as usize {
            // It does not fit into its region.
            return Some(if self.is_gone(inner) { self.gone(inner) } else { self.skip(inner) });
        }
        let resident = region.resident.read().clone();
        let loaded = match resident {
            Some(buffer) if region.sequence() == self.sequence => {
                let published = buffer.bytes();
                let end = published.len().min(self.at + needed.max(COPY));
                let copied = published.get(self.at..end).map(<[u8]>::to_vec).unwrap_or_default();
                if copied.is_empty() {
                    return Some(if is_open { Next::Later } else { Next::End });
                }
                self.end = copied.len();
                (self.bytes, self.start) = (Bytes::Copied(copied), self.at);
                Ok(())
            }
            _ => {
                if !self.is_gone(inner) && self.at >= region.records_end() as usize {
                    // It was open when its state was read, and has been written since: it is looked at again.
                    return Some(if is_open { Next::Later } else { Next::End });
                }
                self.load(inner, ahead, needed)
            }
        };
        if self.is_gone(inner) {
            return Some(self.gone(inner));
        }
        match loaded {
            Ok(()) => None,
            Err(error) => {
                tracing::warn!(region = self.region, %error, "the feed cannot read a region");
                self.at = region.records_end() as usize;
                Some(Next::Lost(Version(region.summary().last).local()))
            }
        }
    }

    /// Reads at least `needed` bytes from the device.
    fn load(&mut self, inner: &Inner, ahead: &ReadAhead, needed: usize) -> io::Result<()> {
        let end = (inner.regions.get(self.region).records_end() as usize).next_multiple_of(BLOCK);
        let start = self.at / BLOCK * BLOCK;
        let most = end.saturating_sub(start);
        let records_end = inner.regions.get(self.region).records_end() as usize;
        let needed = (self.at - start + needed).next_multiple_of(BLOCK).min(most);
        let length = needed.max(WINDOW).min(most);
        if length == 0 {
            // It has been emptied and begun again.
            return Ok(());
        }
        let begun = self.begun.take().filter(|begun| begun.part.start == start && begun.part.length >= needed);
        // Who reads a little gets no more than that.
        let goes_on = matches!(self.bytes, Bytes::Read(_));
        let bytes = match begun.map(Begun::wait) {
            Some(Ok(bytes)) => bytes,
            // What failed is tried again.
            Some(Err(_)) | None => read(inner, Part { region: self.region, start, length })?,
        };
        self.end = records_end.saturating_sub(start).min(bytes.len());
        (self.bytes, self.start) = (Bytes::Read(bytes), start);
        if goes_on {
            self.read_ahead(ahead, end);
        }
        Ok(())
    }

    /// Begins to read what follows the records that are whole in what was read. `end`: where the region's blocks end.
    fn read_ahead(&mut self, ahead: &ReadAhead, end: usize) {
        let (bytes, mut at) = (&self.bytes.all()[..self.end], self.at - self.start);
        while let Some(header) = bytes.get(at..).and_then(Header::read)
            && at + header.len() <= bytes.len()
        {
            at += header.len();
        }
        let start = (self.start + at) / BLOCK * BLOCK;
        let length = WINDOW.min(end.saturating_sub(start));
        if start > self.start && length > 0 && self.start + self.end < end {
            self.begun = ahead.begin(Part { region: self.region, start, length });
        }
    }

    fn is_gone(&self, inner: &Inner) -> bool {
        let region = inner.regions.get(self.region);
        region.sequence() != self.sequence || inner.log.is_flushed(region)
    }

    fn gone(&self, inner: &Inner) -> Next {
        if self.sequence < inner.log.floor() { Next::Flushed } else { Next::Gone }
    }

    /// Passes over a damaged record, to where the table of regions has one begin in a later block.
    fn skip(&mut self, inner: &Inner) -> Next {
        let region = inner.regions.get(self.region);
        let end = region.records_end() as usize;
        let begins = |block: usize| inner.regions.first_record(inner.regions.block_at(self.region, block * BLOCK));
        self.at = (self.at / BLOCK + 1..end.div_ceil(BLOCK)).find_map(begins).unwrap_or(end);
        let last = Version(region.summary().last).local();
        if self.is_gone(inner) { self.gone(inner) } else { Next::Lost(last) }
    }

    /// Takes the record that comes next.
    pub(super) fn take(&mut self) -> Option<View<'_>> {
        let (_, length) = self.peeked.take()?;
        let at = self.at - self.start;
        self.at += length;
        View::read(&self.bytes.all()[at..at + length])
    }
}
