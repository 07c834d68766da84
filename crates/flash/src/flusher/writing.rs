//! Writes of parts of regions.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use super::bad_blocks::{BadBlocks, is_of_block};
use super::unsynced::Unsynced;
use crate::counters::{FlashCounters, count};
use crate::log::buffer::Buffer;
use crate::log::sealed::Sealed;
use crate::log::writer::Log;
use moneta_device::devices::Devices;
use moneta_device::format::BLOCK;
use moneta_device::format::region::HEADER_BYTES;
use moneta_device::io::Aligned;

/// Bytes of one write: reads of requests queue behind it.
const WRITE_BYTES: usize = 256 << 10;
/// The same while full regions wait: larger writes give a slow device more throughput.
const WRITE_BYTES_BEHIND: usize = 1 << 20;

/// Where an open region ended when a round began.
pub(super) struct Snapshot {
    pub(super) region: usize,
    pub(super) buffer: Arc<Buffer>,
    pub(super) end: usize,
}

/// Writes to devices.
pub(super) struct Writer {
    pub(super) log: Arc<Log>,
    pub(super) devices: Arc<Devices>,
    pub(super) counters: Arc<FlashCounters>,
}

impl Writer {
    /// Writes what is left of a full region's records.
    pub(super) fn write_sealed(
        &self,
        sealed: &Sealed,
        is_behind: bool,
        unsynced: &mut Unsynced,
        bad: &mut BadBlocks,
    ) -> io::Result<()> {
        if sealed.buffer.is_discarded() {
            return Ok(());
        }
        let step = if is_behind { WRITE_BYTES_BEHIND } else { WRITE_BYTES };
        self.write_up_to(sealed.region, &sealed.buffer, sealed.end, true, step, unsynced, bad)
    }

    /// Writes the appends to an open region up to its snapshot: all of them, or only whole blocks. Returns whether there were
    /// any.
    pub(super) fn write_open(
        &self,
        open: &Snapshot,
        all: bool,
        unsynced: &mut Unsynced,
        bad: &mut BadBlocks,
    ) -> io::Result<bool> {
        let Snapshot { region, buffer, end } = open;
        // A region sealed since may already be written beyond the snapshot.
        if buffer.is_covered(*end) || buffer.is_discarded() {
            return Ok(false);
        }
        self.write_up_to(*region, buffer, *end, all, WRITE_BYTES, unsynced, bad)?;
        Ok(true)
    }

    #[expect(clippy::too_many_arguments, reason = "what is written, how far, in what steps, and what to note of it")]
    fn write_up_to(
        &self,
        region: usize,
        buffer: &Arc<Buffer>,
        end: usize,
        all: bool,
        step: usize,
        unsynced: &mut Unsynced,
        bad: &mut BadBlocks,
    ) -> io::Result<()> {
        unsynced.note(buffer);
        self.write_copy(region, buffer, bad)?;
        let whole = end / BLOCK * BLOCK;
        for start in (buffer.written()..whole).step_by(step) {
            let piece = start..whole.min(start + step);
            self.write_around(region, start, buffer.slice(piece.clone()), bad)?;
            buffer.note_written(piece.end, piece.end);
        }
        if all && whole < end {
            self.write_partial(region, buffer, whole..end, bad)?;
        }
        buffer.note_written(whole, if all { end } else { whole });
        Ok(())
    }

    /// Writes the copy of a region's header to the region's end, if nothing of the region is on the device yet.
    fn write_copy(&self, region: usize, buffer: &Buffer, bad: &mut BadBlocks) -> io::Result<()> {
        if buffer.is_covered(HEADER_BYTES) {
            return Ok(());
        }
        let last = self.devices.region_bytes() - BLOCK;
        self.write_partial(region, buffer, last..last, bad)
    }

    /// Writes less than a block of a region that is not sealed yet, with zeros after it.
    fn write_partial(&self, region: usize, buffer: &Buffer, part: Range<usize>, bad: &mut BadBlocks) -> io::Result<()> {
        let mut block = Aligned::zeroed(BLOCK);
        let offset = part.start;
        if !part.is_empty() {
            block[..part.len()].copy_from_slice(buffer.slice(part));
        }
        if offset + BLOCK == self.devices.region_bytes() {
            block[BLOCK - HEADER_BYTES..].copy_from_slice(buffer.slice(0..HEADER_BYTES));
        }
        self.write_around(region, offset, &block, bad)
    }

    /// Writes whole blocks of a region, except for those that the device does not take, which are noted.
    fn write_around(&self, region: usize, offset: usize, bytes: &[u8], bad: &mut BadBlocks) -> io::Result<()> {
        if !bad.touch(offset..offset + bytes.len()) {
            match self.write_at(region, offset, bytes) {
                Err(error) if is_of_block(&error) => {
                    count(&self.counters.io_errors, 1);
                    self.try_superblocks()?;
                }
                written => return written,
            }
        }
        for (at, block) in (offset..).step_by(BLOCK).zip(bytes.chunks(BLOCK)) {
            if bad.touch(at..at + BLOCK) {
                continue;
            }
            match self.write_at(region, at, block) {
                Err(error) if is_of_block(&error) => bad.note(at, self.devices.region_bytes()),
                written => written?,
            }
        }
        Ok(())
    }

    /// Has a region retired when it is emptied, also by a later run.
    pub(super) fn note_bad(&self, region: usize) {
        self.log.regions.get(region).set_bad(true);
        if let Err(error) = self.log.queue.health.watch(|| self.devices.note_bad(region)) {
            tracing::warn!(region, %error, "it cannot be written down that a region has a bad block");
        }
    }

    /// Whether devices take anything: their superblocks.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn try_superblocks(&self) -> io::Result<()> {
        self.log.queue.go_on()?;
        self.log.queue.health.watch(|| self.devices.save(&self.devices.state()))
    }

    /// Writes whole blocks of a region.
    pub(super) fn write_at(&self, region: usize, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.log.queue.go_on()?;
        let (device, start) = self.devices.place(region);
        let media = self.devices.media(device);
        self.log.queue.health.watch(|| media.write_at(bytes, start + offset as u64))?;
        count(&self.counters.device_bytes, bytes.len() as u64);
        Ok(())
    }

    /// Reads whole blocks of a region from its start.
    pub(super) fn read(&self, region: usize, bytes: &mut [u8]) -> io::Result<()> {
        let (device, start) = self.devices.place(region);
        self.log.queue.health.watch(|| self.devices.media(device).read_at(bytes, start))
    }
}
