//! Tails: footers and trailers of full regions, written one sync after the records.
//!
//! A restart trusts a footer to list its region. A device may write unsynced blocks in any order, so a trailer may be written
//! only when all records before it are on the device. It needs no sync for itself: without it a restart reads the records
//! one by one. Tails wait for the next regular sync, so no round has to sync twice.

use std::io;

use super::bad_blocks::is_of_block;
use super::writing::Writer;
use crate::log::regions::RegionStage;
use crate::log::sealed::Sealed;
use moneta_device::format::BLOCK;
use moneta_device::io::Aligned;

/// With this many waiting tails, a sync is made for them alone. Each holds some bytes of RAM for every record.
const MANY: usize = 16;

/// The end of a full region.
pub(super) struct Tail {
    pub(super) region: usize,
    pub(super) sequence: u64,
    /// Where its records end.
    pub(super) end: usize,
    /// The end of the records, rewritten with the tail because they share a block.
    shared: Vec<u8>,
    /// Footer and trailer: the last bytes of the region.
    pub(super) bytes: Vec<u8>,
    pub(super) stage: Stage,
}

/// The stage of a tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// The records are written; a sync has to follow.
    Unsynced,
    /// A sync that followed the records failed: they have to be written again.
    Doubtful,
    /// The records are on the device.
    Ready,
    /// The tail is written, and the region can be emptied; a sync has to follow.
    Written,
}

/// Tails that are not durable yet.
#[derive(Default)]
pub(super) struct Tails(Vec<Tail>);

impl Tails {
    /// Takes over a region whose records are written, and releases its buffer.
    pub(super) fn take(&mut self, writer: &Writer, sealed: Sealed, stage: Stage) {
        let Sealed { region, sequence, buffer, end, tail } = sealed;
        let entry = writer.log.regions.get(region);
        if entry.sequence() != sequence || !entry.change_state(RegionStage::Sealed, RegionStage::Written) {
            // It was flushed away.
            return;
        }
        let (whole, first) = (end / BLOCK * BLOCK, (writer.devices.region_bytes() - tail.len()) / BLOCK * BLOCK);
        let shared = if whole == first { buffer.slice(whole..end).to_vec() } else { Vec::new() };
        *entry.resident.write() = None;
        self.0.push(Tail { region, sequence, end, shared, bytes: tail, stage });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the tails alone are worth a sync.
    pub(super) fn are_many(&self) -> bool {
        self.0.iter().filter(|tail| tail.stage == Stage::Unsynced).count() >= MANY
    }

    /// The tails whose records have to be written again.
    pub(super) fn doubtful(&mut self) -> impl Iterator<Item = &mut Tail> {
        self.0.iter_mut().filter(|tail| tail.stage == Stage::Doubtful)
    }

    /// Everything that was written is on the devices.
    pub(super) fn note_synced(&mut self) {
        self.0.retain_mut(|tail| match tail.stage {
            Stage::Unsynced => {
                tail.stage = Stage::Ready;
                true
            }
            Stage::Doubtful | Stage::Ready => true,
            Stage::Written => false,
        });
    }

    /// What was written since the last sync may be lost.
    pub(super) fn distrust(&mut self, writer: &Writer) {
        self.0.retain_mut(|tail| match tail.stage {
            Stage::Unsynced => {
                tail.stage = Stage::Doubtful;
                true
            }
            Stage::Doubtful | Stage::Ready => true,
            // Write it again, because it shares a block with records, unless the region is being emptied.
            Stage::Written => {
                tail.stage = Stage::Ready;
                let entry = writer.log.regions.get(tail.region);
                entry.sequence() == tail.sequence && entry.change_state(RegionStage::Closed, RegionStage::Written)
            }
        });
    }

    /// Writes the tails of regions whose records are on the device. These regions can then be emptied.
    pub(super) fn write(&mut self, writer: &Writer) -> io::Result<()> {
        let regions = &writer.log.regions;
        self.0.retain(|tail| tail.stage != Stage::Ready || tail.is_wanted(writer));
        for tail in self.0.iter_mut().filter(|tail| tail.stage == Stage::Ready) {
            match tail.write(writer) {
                Err(error) if is_of_block(&error) => {
                    writer.try_superblocks()?;
                    let region = tail.region;
                    tracing::error!(region, %error, "a device does not take a footer: a restart reads the records");
                    writer.note_bad(region);
                }
                written => written?,
            }
            tail.stage = Stage::Written;
            if regions.get(tail.region).change_state(RegionStage::Written, RegionStage::Closed) {
                writer.log.note_closed();
            }
        }
        Ok(())
    }
}

impl Tail {
    /// Whether the region has not been flushed since its records were written.
    fn is_wanted(&self, writer: &Writer) -> bool {
        let entry = writer.log.regions.get(self.region);
        entry.sequence() == self.sequence && entry.state() == RegionStage::Written
    }

    fn write(&self, writer: &Writer) -> io::Result<()> {
        let region_bytes = writer.devices.region_bytes();
        let start = region_bytes - self.bytes.len();
        let first = start / BLOCK * BLOCK;
        let mut blocks = Aligned::zeroed(region_bytes - first);
        blocks[..self.shared.len()].copy_from_slice(&self.shared);
        blocks[start - first..].copy_from_slice(&self.bytes);
        writer.write_at(self.region, first, &blocks)
    }
}
