//! The records of one region, in order.

use std::collections::VecDeque;
use std::io;

use bytes::Bytes;

use super::ahead::{Begun, Part, ReadAhead, WINDOW};
use crate::inner::Inner;
use crate::log::regions::RegionStage;
use moneta_device::format::BLOCK;
use moneta_device::format::record::{Header, Salt, View};
use moneta_device::format::region::HEADER_BYTES;
use moneta_device::io::Aligned;
use moneta_store::Version;

/// Parts that are being read while another is worked on.
const DEPTH: usize = 4;
/// Bytes copied from RAM at once, unless a record is larger.
const COPY: usize = 256 << 10;
/// Records up to this size are looked at to find where a stamp is. Larger ones are taken to be after it.
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
    /// They are from a device, not from RAM: checksums have to hold.
    is_read: bool,
    /// Where they begin in the region.
    start: usize,
    /// Bytes of them in which records lie.
    end: usize,
    /// Stamp and length of the next record, which is whole and sound.
    peeked: Option<(u64, usize)>,
    /// Its changes count even if all of them were carried forward.
    carried_too: bool,
    /// Who reads it goes on from the region before: it pays to read ahead from the start.
    goes_on: bool,
    /// A record of it was taken.
    is_taken: bool,
    /// What is being read from the device while this works on what was read before, in order.
    begun: VecDeque<Begun>,
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

impl Stream {
    /// The records after `position` of the region that has that sequence number; `None` if it has another by now.
    pub(super) fn open(inner: &Inner, region: usize, sequence: u64, position: u64, carried_too: bool) -> Option<Self> {
        let entry = inner.regions.get(region);
        let (base, salt) = (entry.base(), entry.salt());
        if entry.sequence() != sequence {
            return None;
        }
        let mut stream = Self {
            region,
            sequence,
            base,
            salt,
            at: HEADER_BYTES,
            bytes: Bytes::new(),
            is_read: false,
            start: 0,
            end: 0,
            peeked: None,
            carried_too,
            goes_on: false,
            is_taken: false,
            begun: VecDeque::new(),
        };
        if position >= Version(base).local() {
            stream.seek(inner, position);
        }
        Some(stream)
    }

    /// Moves to a record that is not after the first one after `position`.
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
                // What cannot be read counts as after the position: then the search ends too early, not too late.
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

    /// The sequence number of its region.
    pub(super) fn sequence(&self) -> u64 {
        self.sequence
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
        let is_open = region.state() == RegionStage::Open;
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
        let here = self.at.checked_sub(self.start).and_then(|at| self.bytes.get(at..self.end)).unwrap_or_default();
        let needed = Header::read(here).map_or(BLOCK, |header| header.len());
        if let Some(view) = View::read(here).filter(View::is_whole) {
            if !self.is_read || view.is_sound(Salt { key: self.salt, offset: self.at as u32 }) {
                self.peeked = Some((self.stamp_of(&view.header), view.header.len()));
                return None;
            }
            return Some(self.skip(inner));
        }
        let is_whole_region_seen =
            !here.is_empty() && self.is_read && { self.start + self.end >= region.records_end() as usize };
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
                (self.bytes, self.is_read, self.start) = (copied.into(), false, self.at);
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
        let begun = self.take_begun(start, start + needed);
        // Who reads a little gets no more than that.
        let goes_on = self.is_read || self.goes_on;
        if goes_on {
            let after = begun.as_ref().map_or(Part { region: self.region, start, length }, |begun| begun.part);
            self.read_ahead(inner, ahead, after, end);
        }
        let begun = begun.map(|begun| (begun.part.start, begun.wait()));
        let (start, bytes) = match begun {
            Some((start, Ok(bytes))) => (start, bytes),
            // What failed is tried again.
            Some((_, Err(_))) | None => (start, ahead.read(Part { region: self.region, start, length })?),
        };
        self.end = records_end.saturating_sub(start).min(bytes.len());
        (self.bytes, self.is_read, self.start) = (bytes, true, start);
        Ok(())
    }

    /// What is being read of these bytes of the region; what is before it is dropped.
    fn take_begun(&mut self, start: usize, end: usize) -> Option<Begun> {
        while let Some(begun) = self.begun.pop_front() {
            if begun.part.start <= start && end <= begun.part.end() {
                return Some(begun);
            }
        }
        None
    }

    /// Begins to read what follows a part. `end`: where the region's blocks end.
    fn read_ahead(&mut self, inner: &Inner, ahead: &ReadAhead, after: Part, end: usize) {
        let mut last = self.begun.back().map_or(after, |begun| begun.part);
        while self.begun.len() < DEPTH && last.end() < end {
            // The last record that begins in a part may not end in it. It begins in the last block in which one does.
            let begins = |block: &usize| inner.regions.first_record(inner.regions.block_at(self.region, block * BLOCK));
            let block = (last.start / BLOCK + 1..last.end() / BLOCK).rev().find(|block| begins(block).is_some());
            let Some(start) = block.map(|block| block * BLOCK) else { return };
            last = Part { region: self.region, start, length: WINDOW.min(end - start) };
            let Some(begun) = ahead.begin(last) else { return };
            self.begun.push_back(begun);
        }
    }

    /// Goes on from another region, so that reading ahead pays from the start. Begins with it, if the region is on its device.
    pub(super) fn go_on(&mut self, inner: &Inner, ahead: &ReadAhead) {
        self.goes_on = true;
        let region = inner.regions.get(self.region);
        let is_in_ram = region.state() == RegionStage::Open || region.resident.read().is_some();
        let end = (region.records_end() as usize).next_multiple_of(BLOCK);
        let start = self.at / BLOCK * BLOCK;
        if is_in_ram || end <= start || self.is_gone(inner) {
            return;
        }
        let part = Part { region: self.region, start, length: WINDOW.min(end - start) };
        self.begun.extend(ahead.begin(part));
    }

    /// Whether something of it came from its device.
    pub(super) fn is_read(&self) -> bool {
        self.is_read
    }

    /// Whether none of its records was taken yet.
    pub(super) fn is_fresh(&self) -> bool {
        !self.is_taken
    }

    /// Whether all that is left of it on its device is being read, or was.
    pub(super) fn is_all_begun(&self, inner: &Inner) -> bool {
        let end = (inner.regions.get(self.region).records_end() as usize).next_multiple_of(BLOCK);
        self.is_read && self.begun.back().map_or(self.start + self.bytes.len(), |begun| begun.part.end()) >= end
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

    /// Takes the record that comes next; also what it lies in.
    pub(super) fn take(&mut self) -> Option<(View<'_>, &Bytes)> {
        let (_, length) = self.peeked.take()?;
        let at = self.at - self.start;
        (self.at, self.is_taken) = (self.at + length, true);
        View::read(&self.bytes[at..at + length]).map(|view| (view, &self.bytes))
    }
}
