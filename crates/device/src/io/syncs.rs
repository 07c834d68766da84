//! Counts failed syncs of a device across all threads.
//!
//! The kernel reports a failed write-back only once: one thread's failed sync consumes the error, and syncs of other threads then
//! succeed although their writes are lost. So syncs of a device run one at a time, and each failure is counted before the
//! next one begins. What writes and then syncs compares the counts from before and after both.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use super::media::Media;

/// The error of a sync that succeeded after another thread's had failed: that one may have lost what the caller wrote before.
pub fn in_doubt() -> io::Error {
    io::Error::other("a sync of another thread failed, and what was written before is in doubt")
}

/// A device, and how many of its syncs have failed.
pub struct SyncsCounted {
    inner: Arc<dyn Media>,
    // Held for a sync: nearly always by the flusher, sometimes by the reclaimer for its wipes.
    one_at_a_time: Mutex<()>,
    failed: Arc<AtomicU64>,
}

impl SyncsCounted {
    /// Counts failed syncs of `inner` in `failed`.
    pub fn new(inner: Arc<dyn Media>, failed: Arc<AtomicU64>) -> Self {
        Self { inner, one_at_a_time: Mutex::new(()), failed }
    }
}

impl Media for SyncsCounted {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        let _one_at_a_time = self.one_at_a_time.lock();
        self.inner.sync().inspect_err(|_| {
            self.failed.fetch_add(1, Ordering::AcqRel);
        })
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }
}
