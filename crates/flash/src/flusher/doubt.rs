//! Syncs, and repeats the writes since the last sync when one fails.
//!
//! After a failed sync the kernel marks the pages it could not write as clean, and the next sync succeeds without them. So
//! everything since the last good sync is written again: from RAM if it is still there, else it is read back, checked against
//! its footer, and rewritten. A region that reads back wrong is dropped with everything older. Other threads sync too (the
//! reclaimer, superblocks), and the kernel reports a failure only once, so their failed syncs count as well.

use std::io;

use moneta_store::Key;

use super::bad_blocks::is_of_block;
use super::tails::{Stage, Tail, Tails};
use super::unsynced::Unsynced;
use super::writing::Writer;
use crate::log::regions::RegionStage;
use moneta_device::devices::Devices;
use moneta_device::format::BLOCK;
use moneta_device::format::record::{Salt, View, mark, salt_of};
use moneta_device::format::region::{End, HEADER_BYTES, TRAILER_BYTES};
use moneta_device::format::{VERSION, footer};
use moneta_device::io::Aligned;

impl Unsynced {
    /// Syncs all devices.
    ///
    /// # Errors
    /// If a sync failed, here or on another thread since the last good one: everything written since is in doubt.
    pub(super) fn sync(&mut self, writer: &Writer) -> io::Result<()> {
        let health = &writer.log.queue.health;
        let mut synced = Ok(());
        // Sync all devices even if one fails.
        for media in writer.devices.all() {
            synced = synced.and(health.watch(|| media.sync()));
        }
        let failures = writer.devices.failed_syncs();
        if failures == self.failures {
            self.buffers.drain(..).for_each(|buffer| buffer.note_synced());
            return synced;
        }
        self.failures = failures;
        self.buffers.drain(..).for_each(|buffer| buffer.distrust());
        synced
            .and_then(|()| Err(io::Error::other("a sync of a device failed, and what was written before is in doubt")))
    }

    /// Rewrites records that are no longer in a buffer.
    pub(super) fn restore(&mut self, writer: &Writer, tails: &mut Tails) -> io::Result<()> {
        for tail in tails.doubtful() {
            let restored = match restore(writer, tail) {
                Err(error) if is_of_block(&error) && writer.try_superblocks().is_ok() => false,
                restored => restored?,
            };
            if restored {
                tail.stage = Stage::Unsynced;
                continue;
            }
            tracing::error!(
                region = tail.region,
                "what a failed sync lost cannot be written again: the SSD tier starts empty when its devices answer"
            );
            writer.log.queue.note_outdated();
            // No footer claims these records yet; a restart before that reads the records themselves.
            tail.stage = Stage::Written;
            writer.log.regions.get(tail.region).change_state(RegionStage::Written, RegionStage::Closed);
        }
        Ok(())
    }
}

/// Reads a region's records back and rewrites them if they match its footer. Also true if the region was flushed.
fn restore(writer: &Writer, tail: &Tail) -> io::Result<bool> {
    let entry = writer.log.regions.get(tail.region);
    if entry.sequence() != tail.sequence {
        return Ok(true);
    }
    let mut bytes = Aligned::zeroed(tail.end.next_multiple_of(BLOCK));
    writer.read(tail.region, &mut bytes)?;
    if !is_whole(&bytes[..tail.end], tail, &writer.devices) {
        return Ok(false);
    }
    let last = writer.devices.region_bytes() - BLOCK;
    let mut copy = Aligned::zeroed(BLOCK);
    copy[BLOCK - HEADER_BYTES..].copy_from_slice(&bytes[..HEADER_BYTES]);
    if bytes.len() > last {
        let shared = bytes.len() - BLOCK;
        copy[..tail.end - shared].copy_from_slice(&bytes[shared..tail.end]);
        bytes[shared..].copy_from_slice(&copy);
    } else {
        writer.write_at(tail.region, last, &copy)?;
    }
    writer.write_at(tail.region, 0, &bytes)?;
    Ok(true)
}

/// Whether a region's header and all its records match its footer.
fn is_whole(bytes: &[u8], tail: &Tail, devices: &Devices) -> bool {
    let head: &[u8; HEADER_BYTES] = bytes.first_chunk().expect("a region is longer than its header");
    let is_begun = matches!(End::decode(head, devices.tier()), End::Header(found) if found.sequence == tail.sequence);
    let Some((_, _, entries)) = footer::decode_head(&tail.bytes[..tail.bytes.len() - TRAILER_BYTES], VERSION) else {
        return false;
    };
    let key = salt_of(VERSION, tail.sequence, devices.seed());
    let mut offset = HEADER_BYTES;
    for entry in footer::entries(entries) {
        let Some(view) = bytes.get(offset..).and_then(View::read).filter(View::is_whole) else { return false };
        let fits = view.header.len() == entry.length as usize
            && view.header.is(mark::TOMBSTONE) == entry.is_tombstone
            && footer::kept(Key::new(view.key(), devices.key_hash()).hash) == entry.hash
            && view.is_sound(Salt { key, offset: offset as u32 });
        if !fits {
            return false;
        }
        offset += entry.length as usize;
    }
    is_begun && offset == bytes.len()
}
