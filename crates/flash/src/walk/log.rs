//! Reading the log: regions in the order of their sequence numbers, a window of each at a time.
//!
//! A reader stands at a position, the sequence number of a region and an offset in it, and goes on at the next region in use
//! if that one is used for something else by then.

use std::sync::Arc;

use moneta_store::{Cx, Pending};
use parking_lot::Mutex;

use super::unreadable;
use crate::attempt::pend;
use crate::buffer::Buffer;
use crate::engine::Inner;
use crate::format::BLOCK;
use crate::format::region::HEADER_BYTES;
use crate::io::Aligned;

/// Bytes that are read at once, unless a record is larger. What requests read waits behind it.
const WINDOW: usize = 256 << 10;

/// A reader of the regions that are in use when it begins.
pub(super) struct LogReader {
    /// What is left to read, by sequence number; the next one last.
    regions: Vec<(u64, usize)>,
    /// All regions from this sequence number on were begun later.
    end: u64,
    /// A region went before it was read to its end.
    is_overtaken: bool,
    visit: Option<Visit>,
    /// Where a read leaves what it read.
    read: Arc<Mutex<Option<Window>>>,
}

/// The region being read.
struct Visit {
    region: usize,
    sequence: u64,
    /// Up to where it has been read.
    offset: usize,
    /// Up to where it is to be read: what was appended before the reader came to it.
    stop: usize,
    window: Option<Window>,
    /// Bytes from the start of the block it stands in that the next window has to have.
    wanted: usize,
}

/// Part of a region, read from its device.
struct Window {
    start: usize,
    bytes: Aligned,
}

/// What the reader has next.
pub(super) enum Next {
    /// Records.
    Records(Piece),
    /// Nothing from the region it came to: call again.
    Passed,
    /// Nothing before this is done.
    Wait(Pending<()>),
    /// Everything was read.
    End,
}

/// Records of a region.
pub(super) struct Piece {
    pub(super) region: usize,
    /// Key of the checksums of its records.
    pub(super) salt: u64,
    /// Base of their sequence numbers.
    pub(super) base: u64,
    /// Offset in the region of the first record that is new.
    pub(super) offset: usize,
    /// Offset in the region behind the last one.
    pub(super) stop: usize,
    source: Source,
}

enum Source {
    Buffer(Arc<Buffer>),
    Window(Window),
}

/// Up to where a piece was looked at.
pub(super) struct Stand {
    pub(super) offset: usize,
    /// Bytes from the start of the block there that are needed to go on, if the piece has fewer.
    pub(super) wanted: usize,
}

impl Piece {
    /// Offset in the region at which [`Piece::bytes`] begin.
    pub(super) fn start(&self) -> usize {
        match &self.source {
            Source::Buffer(_) => 0,
            Source::Window(window) => window.start,
        }
    }

    /// All there is by now. While a shard is locked, this includes what its index means, if that lies in this region in RAM.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Buffer(buffer) => buffer.bytes(),
            Source::Window(window) => &window.bytes,
        }
    }

    /// Whether the bytes come from a device, and have to be checked.
    pub(super) fn is_from_device(&self) -> bool {
        matches!(self.source, Source::Window(_))
    }
}

impl LogReader {
    /// A reader of what is in use now.
    pub(super) fn begin(inner: &Inner) -> Self {
        let emptied = inner.regions.emptied();
        let end = inner.log.end();
        let in_use = inner.regions.iter().map(|(number, region)| (region.sequence(), number));
        let mut regions: Vec<_> = in_use.filter(|(sequence, _)| (1..end).contains(sequence)).collect();
        regions.sort_unstable_by(|one, other| other.cmp(one));
        // A region that ended while the table was read may be missing, and so may that to which its records were carried.
        let is_overtaken = inner.regions.emptied() != emptied;
        Self { regions, end, is_overtaken, visit: None, read: Arc::default() }
    }

    /// The sequence number from which on regions were begun after the reader.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether a region was gone before it was read.
    pub(super) fn is_overtaken(&self) -> bool {
        self.is_overtaken
    }

    /// Whether the region with that sequence number is still to be begun with.
    pub(super) fn is_ahead(&self, sequence: u64) -> bool {
        self.regions.binary_search_by(|(ahead, _)| sequence.cmp(ahead)).is_ok()
    }

    /// The next records, as far as they are at hand.
    pub(super) fn next(&mut self, inner: &Arc<Inner>, cx: &Cx) -> Next {
        let visit = match &mut self.visit {
            Some(visit) => visit,
            None => {
                let Some((sequence, region)) = self.regions.pop() else { return Next::End };
                let stop = inner.regions.get(region).records_end() as usize;
                let visit = Visit { region, sequence, offset: HEADER_BYTES, stop, window: None, wanted: 0 };
                self.visit.insert(visit)
            }
        };
        let region = inner.regions.get(visit.region);
        let resident = region.resident.read().clone();
        if resident.is_none() {
            // Nothing is appended any more: there is no reason to stop before.
            visit.stop = region.records_end() as usize;
        }
        if let Some(window) = self.read.lock().take() {
            visit.window = Some(window);
        }
        let is_done = visit.offset >= visit.stop;
        let (salt, base) = (region.salt(), region.base());
        // Last: what was found above may be of its next use.
        let is_gone = region.sequence() != visit.sequence;
        if is_gone || is_done {
            self.is_overtaken |= is_gone;
            self.visit = None;
            return Next::Passed;
        }
        let source = match (resident, visit.window.take()) {
            (Some(buffer), _) => Source::Buffer(buffer),
            (None, Some(window)) if visit.wanted == 0 || window.covers(visit) => Source::Window(window),
            (None, _) => return Next::Wait(visit.read(inner, cx, Arc::clone(&self.read))),
        };
        let Visit { region, offset, stop, .. } = *visit;
        Next::Records(Piece { region, salt, base, offset, stop, source })
    }

    /// Takes a piece back that was looked at up to there.
    pub(super) fn move_to(&mut self, stand: Stand, piece: Piece) {
        let Some(visit) = &mut self.visit else { return };
        visit.offset = stand.offset;
        visit.wanted = stand.wanted;
        visit.window = match piece.source {
            // A walk that stands still must not keep a buffer of the few there are.
            Source::Buffer(_) => None,
            Source::Window(window) => (stand.wanted == 0).then_some(window),
        };
    }
}

impl Visit {
    /// Reads a window from the block in which the reader stands.
    fn read(&self, inner: &Arc<Inner>, cx: &Cx, into: Arc<Mutex<Option<Window>>>) -> Pending<()> {
        let (device, region_start) = inner.devices.place(self.region);
        let start = self.offset / BLOCK * BLOCK;
        let most = self.stop.next_multiple_of(BLOCK) - start;
        let bytes = self.wanted.next_multiple_of(BLOCK).max(WINDOW).min(most);
        let (inner, cx) = (Arc::clone(inner), cx.clone());
        pend(async move {
            let bytes = inner.reader.read(&cx, device, region_start + start as u64, bytes).await.map_err(unreadable)?;
            *into.lock() = Some(Window { start, bytes });
            Ok(())
        })
    }
}

impl Window {
    /// Whether it has what a reader wants to go on.
    fn covers(&self, visit: &Visit) -> bool {
        let from = visit.offset / BLOCK * BLOCK;
        self.start <= from && self.start + self.bytes.len() >= (from + visit.wanted).min(visit.stop)
    }
}
