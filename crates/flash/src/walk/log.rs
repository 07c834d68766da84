//! Reading the log: regions in the order of their sequence numbers, a window of each at a time.
//!
//! A reader has a position, the sequence number of a region and an offset in it. If that region has been reused, the reader
//! continues at the next region in use.

use std::sync::Arc;

use moneta_store::{Cx, Pending, Version};
use parking_lot::Mutex;

use super::unreadable::unreadable;
use crate::inner::Inner;
use crate::log::buffer::Buffer;
use crate::log::regions::{Region, RegionStage};
use crate::operations::attempt::pend;
use moneta_device::format::BLOCK;
use moneta_device::format::region::HEADER_BYTES;
use moneta_device::io::Aligned;

/// Bytes read at once, unless a record is larger. Reads of requests queue behind this read.
const WINDOW: usize = 256 << 10;

/// Reads the regions that are in use when it is created.
pub(super) struct LogReader {
    /// Regions left to read, by sequence number; the next one is last.
    regions: Vec<(u64, usize)>,
    /// Regions from this sequence number on were begun after the reader.
    end: u64,
    /// A region was freed before it was read to its end.
    is_overtaken: bool,
    visit: Option<Visit>,
    /// The window that a read has delivered.
    read: Arc<Mutex<Option<Window>>>,
}

/// The region being read.
struct Visit {
    region: usize,
    sequence: u64,
    /// How far it has been read.
    offset: usize,
    /// Where reading ends: the region's end when the reader reached it.
    stop: usize,
    window: Option<Window>,
    /// Bytes that the next window must have, from the start of the block at `offset`.
    wanted: usize,
}

/// Part of a region, read from its device.
struct Window {
    start: usize,
    bytes: Aligned,
}

/// What comes next.
pub(super) enum Next {
    /// Records.
    Records(Piece),
    /// The region has nothing: call again.
    Passed,
    /// A read is needed first.
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
    /// Offset in the region of the first new record.
    pub(super) offset: usize,
    /// Offset in the region after the last one.
    pub(super) stop: usize,
    source: Source,
}

enum Source {
    Buffer(Arc<Buffer>),
    Window(Window),
}

/// How far a piece was processed.
pub(super) struct Stand {
    pub(super) offset: usize,
    /// Bytes needed to continue, from the start of the block at that offset, if the piece has fewer.
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

    /// All bytes available now. Under a shard's lock, they include every record in this region that the shard's entries point to,
    /// if the region is in RAM.
    pub(super) fn bytes(&self) -> &[u8] {
        match &self.source {
            Source::Buffer(buffer) => buffer.bytes(),
            Source::Window(window) => &window.bytes,
        }
    }

    /// Whether the bytes come from a device, so that checksums have to be verified.
    pub(super) fn is_from_device(&self) -> bool {
        matches!(self.source, Source::Window(_))
    }
}

impl LogReader {
    /// A reader of the regions in use now, but for those that are full of versions that were made before `since`, in milliseconds
    /// since the Unix epoch.
    pub(super) fn begin(inner: &Inner, since: u64) -> Self {
        let emptied = inner.regions.emptied();
        let end = inner.log.end();
        let in_use = inner.regions.iter().map(|(number, region)| (region.sequence(), number, region));
        let wanted = in_use.filter(|(sequence, _, region)| (1..end).contains(sequence) && !is_before(region, since));
        let mut regions: Vec<_> = wanted.map(|(sequence, number, _)| (sequence, number)).collect();
        regions.sort_unstable_by(|one, other| other.cmp(one));
        // A region freed while the table was read may be missing, and so may the one its records were carried to.
        let is_overtaken = inner.regions.emptied() != emptied;
        Self { regions, end, is_overtaken, visit: None, read: Arc::default() }
    }

    /// Regions from this sequence number on were begun after the reader.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Whether a region was freed before it was read.
    pub(super) fn is_overtaken(&self) -> bool {
        self.is_overtaken
    }

    /// Whether the reader has not yet reached the region with that sequence number.
    pub(super) fn is_ahead(&self, sequence: u64) -> bool {
        self.regions.binary_search_by(|(ahead, _)| sequence.cmp(ahead)).is_ok()
    }

    /// The next records, if they are available.
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
            // The region is full, so read it to its end.
            visit.stop = region.records_end() as usize;
        }
        if let Some(window) = self.read.lock().take() {
            visit.window = Some(window);
        }
        let is_done = visit.offset >= visit.stop;
        let (salt, base) = (region.salt(), region.base());
        // Checked last: the values read above may belong to the region's next use.
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

    /// Takes a piece back and moves the reader to where its processing ended.
    pub(super) fn move_to(&mut self, stand: Stand, piece: Piece) {
        let Some(visit) = &mut self.visit else { return };
        visit.offset = stand.offset;
        visit.wanted = stand.wanted;
        visit.window = match piece.source {
            // A paused walk must not hold one of the few buffers.
            Source::Buffer(_) => None,
            Source::Window(window) => (stand.wanted == 0).then_some(window),
        };
    }
}

/// Whether a region takes no more records, and all that it has were made before this moment. A record that is newer elsewhere has a
/// newer version, so what is to be shown lies in no such region.
fn is_before(region: &Region, since: u64) -> bool {
    let is_full = matches!(region.state(), RegionStage::Sealed | RegionStage::Written | RegionStage::Closed);
    let greatest = region.greatest_version();
    // Regions of an old format do not say theirs.
    is_full && greatest > Version::ZERO && greatest.millis() < since
}

impl Visit {
    /// Reads a window from the block at the reader's position.
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
    /// Whether the window has the bytes a reader needs to continue.
    fn covers(&self, visit: &Visit) -> bool {
        let from = visit.offset / BLOCK * BLOCK;
        self.start <= from && self.start + self.bytes.len() >= (from + visit.wanted).min(visit.stop)
    }
}
