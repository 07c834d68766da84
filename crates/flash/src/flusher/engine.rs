//! The engine as the flusher sees it.

use std::io;

use super::bad_blocks::BadBlocks;
use crate::log::sealed::Sealed;

/// What the flusher calls in the engine.
pub(crate) trait Engine: Send {
    /// Appends owed tombstones ([`crate::deletes::owing`]). False if there is no room for all of them.
    fn pay(&self) -> bool;

    /// Seals an open region, so that it comes to the flusher as a full one.
    fn seal(&self, region: usize);

    /// Appends the records of a full region that touch bad blocks to another region. False if there is no room for all of
    /// them; the flusher calls again then.
    fn move_out(&self, sealed: &Sealed, blocks: &BadBlocks) -> bool;

    /// Devices answer again after an error. Queues jobs that flush stale contents.
    fn came_back(&self);

    /// Has superblocks say which changes the log lacks, if they do not yet.
    ///
    /// # Errors
    /// If the superblocks cannot be written.
    fn save_untold(&self) -> io::Result<()>;
}
