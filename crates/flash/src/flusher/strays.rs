//! Regions with blocks that the device does not take.
//!
//! A bad block must cost no more than its block. What its region has elsewhere is written; the records that touch the block
//! are appended again to another region, without waiting for room ([`Engine::move_out`]). Nothing is declared durable until
//! a sync covers these copies. The region stays in use, since its other records say what is newer than what lies in older
//! regions. It is retired when it is emptied, in its turn.
//!
//! ```text
//!   block fails ──▶ sealed ──▶ the rest written ──▶ copies appended ──▶ copies synced ──▶ footer and trailer
//! ```
//!
//! A device that takes no superblock either, or of which many regions fail at once, fails as a whole.
//!
//! [`Engine::move_out`]: super::engine::Engine::move_out

use std::io;
use std::sync::Arc;

use super::bad_blocks::BadBlocks;
use super::engine::Engine;
use super::tails::{Stage, Tails};
use super::unsynced::Unsynced;
use super::writing::Writer;
use crate::log::buffer::Buffer;
use crate::log::sealed::Sealed;

/// Regions that may have bad blocks at once. More of them are a device that fails.
const STRAYS_MAX: usize = 5;

/// A region with bad blocks.
struct Stray {
    region: usize,
    buffer: Arc<Buffer>,
    blocks: BadBlocks,
    /// The region, once it is full or was sealed early.
    sealed: Option<Sealed>,
    /// Number of the last append when all copies had been appended.
    moved: Option<u64>,
}

/// Regions with bad blocks of which not all is durable.
#[derive(Default)]
pub(super) struct Strays(Vec<Stray>);

impl Strays {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether everything up to an append is written, once the round that began with it has synced.
    pub(super) fn allow(&self, number: u64) -> bool {
        self.0.iter().all(|stray| stray.blocks.is_empty() || stray.moved.is_some_and(|moved| moved <= number))
    }

    fn of(&mut self, buffer: &Arc<Buffer>) -> Option<&mut Stray> {
        self.0.iter_mut().find(|stray| Arc::ptr_eq(&stray.buffer, buffer))
    }

    /// The bad blocks of a region that are known.
    pub(super) fn blocks(&mut self, buffer: &Arc<Buffer>) -> BadBlocks {
        self.of(buffer).map(|stray| stray.blocks.clone()).unwrap_or_default()
    }

    /// Takes note of the bad blocks of a region after a write of it.
    ///
    /// # Errors
    /// If it is the device that fails. All blocks are tried again then.
    pub(super) fn note(
        &mut self,
        writer: &Writer,
        region: usize,
        buffer: &Arc<Buffer>,
        blocks: BadBlocks,
    ) -> io::Result<()> {
        let known = self.of(buffer);
        if known.as_ref().map_or(blocks.is_empty(), |stray| stray.blocks == blocks) {
            return Ok(());
        }
        match known {
            Some(stray) => (stray.blocks, stray.moved) = (blocks, None),
            None => self.0.push(Stray { region, buffer: Arc::clone(buffer), blocks, sealed: None, moved: None }),
        }
        writer.log.regions.get(region).set_bad(true);
        if self.0.len() > STRAYS_MAX {
            self.try_again(writer);
            return Err(io::Error::other("writes to many regions fail"));
        }
        tracing::error!(region, "a device does not take a block: what was to lie there goes elsewhere");
        Ok(())
    }

    /// Forgets which blocks are bad.
    fn try_again(&mut self, writer: &Writer) {
        for stray in &mut self.0 {
            writer.log.regions.get(stray.region).set_bad(false);
            // All of it: what was synced may lack the bad blocks.
            stray.buffer.distrust_all();
            (stray.blocks, stray.moved) = (BadBlocks::default(), None);
        }
    }

    /// Takes over a full region if it has bad blocks.
    pub(super) fn take(&mut self, sealed: Sealed) -> Option<Sealed> {
        match self.of(&sealed.buffer) {
            Some(stray) => {
                stray.sealed = Some(sealed);
                None
            }
            None => Some(sealed),
        }
    }

    /// Lets go of what was flushed away.
    pub(super) fn prune(&mut self) {
        self.0.retain(|stray| !stray.buffer.is_discarded());
    }

    /// Writes what a failed sync has left in doubt.
    pub(super) fn write(&mut self, writer: &Writer, unsynced: &mut Unsynced) -> io::Result<()> {
        for number in 0..self.0.len() {
            let stray = &mut self.0[number];
            let (region, buffer, mut blocks) = (stray.region, Arc::clone(&stray.buffer), stray.blocks.clone());
            let Some(sealed) = stray.sealed.as_ref().filter(|sealed| !buffer.is_covered(sealed.end)) else { continue };
            let written = writer.write_sealed(sealed, false, unsynced, &mut blocks);
            self.note(writer, region, &buffer, blocks)?;
            written?;
        }
        Ok(())
    }

    /// Has regions sealed that have bad blocks and are open, and records appended again that touch bad blocks of full ones.
    pub(super) fn move_out(&mut self, writer: &Writer, engine: &dyn Engine) {
        for stray in self.0.iter_mut().filter(|stray| stray.moved.is_none() && !stray.blocks.is_empty()) {
            match &stray.sealed {
                None => engine.seal(stray.region),
                Some(sealed) => {
                    if engine.move_out(sealed, &stray.blocks) {
                        stray.moved = Some(writer.log.appended());
                    }
                }
            }
        }
    }

    /// Lets go of regions whose copies are durable, or whose blocks were taken in the end.
    pub(super) fn release(&mut self, writer: &Writer, unsynced: &mut Unsynced, tails: &mut Tails) {
        let durable = writer.log.queue.durable();
        for mut stray in std::mem::take(&mut self.0) {
            let stage = match (&stray.sealed, stray.moved) {
                (Some(_), Some(moved)) if moved <= durable => Stage::Ready,
                (Some(sealed), _) if stray.blocks.is_empty() && stray.buffer.is_covered(sealed.end) => Stage::Unsynced,
                (None, _) if stray.blocks.is_empty() => continue,
                _ => {
                    self.0.push(stray);
                    continue;
                }
            };
            unsynced.forget(&stray.buffer);
            if stage == Stage::Ready {
                writer.note_bad(stray.region);
            }
            if let Some(sealed) = stray.sealed.take() {
                tails.take(writer, sealed, stage);
            }
        }
    }
}
