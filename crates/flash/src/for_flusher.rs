//! The engine as the flusher calls it.

use std::io;
use std::sync::Weak;

use crate::flusher::bad_blocks::BadBlocks;
use crate::flusher::engine::Engine;
use crate::inner::Inner;
use crate::log::sealed::Sealed;

/// A handle of the flusher's, which keeps no engine alive.
pub(crate) struct ForFlusher(pub(crate) Weak<Inner>);

impl Engine for ForFlusher {
    fn pay(&self) -> bool {
        self.0.upgrade().is_none_or(|inner| inner.pay())
    }

    fn seal(&self, region: usize) {
        if let Some(inner) = self.0.upgrade() {
            inner.seal(region);
        }
    }

    fn move_out(&self, sealed: &Sealed, blocks: &BadBlocks) -> bool {
        self.0.upgrade().is_none_or(|inner| inner.move_out(sealed, blocks))
    }

    fn came_back(&self) {
        if let Some(inner) = self.0.upgrade() {
            inner.came_back();
        }
    }

    fn save_untold(&self) -> io::Result<()> {
        self.0.upgrade().map_or(Ok(()), |inner| inner.save_untold())
    }
}
