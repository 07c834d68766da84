//! Parts of regions, read from their device: those that come next while the reader works on the one before.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;

use crate::inner::Inner;
use moneta_device::io::Aligned;
use moneta_store::offload::Offload;

/// Bytes read from a device at once, unless a record is larger.
pub(super) const WINDOW: usize = 1 << 20;

/// Buffers that are kept for the next parts: those that are being read, the one that is worked on, and one that is sent.
const KEPT: usize = 8;

/// A part of a region, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) region: usize,
    /// Where it begins in the region.
    pub(super) start: usize,
    pub(super) length: usize,
}

impl Part {
    /// Where it ends in the region.
    pub(super) fn end(&self) -> usize {
        self.start + self.length
    }
}

/// A part that is being read.
pub(super) struct Begun {
    pub(super) part: Part,
    bytes: Receiver<io::Result<Bytes>>,
}

impl Begun {
    /// Waits for its bytes.
    ///
    /// # Errors
    /// The device's, or that the thread is gone.
    pub(super) fn wait(self) -> io::Result<Bytes> {
        self.bytes.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that reads ahead is gone")))
    }
}

/// Threads of a reader. One alone leaves the device idle while it hands over what it read.
const THREADS: usize = 4;

/// Reads parts for one reader of the feed. Its threads begin with the first part that is read ahead, and end with this.
pub(super) struct ReadAhead {
    source: Source,
    /// `None`: the system has no threads for it.
    threads: OnceLock<Option<Offload>>,
}

impl ReadAhead {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self { source: Source { inner: Arc::clone(inner), kept: Arc::default() }, threads: OnceLock::new() }
    }

    /// Bytes of its buffers, in use and not.
    pub(super) fn held(&self) -> usize {
        self.source.kept.bytes.load(Ordering::Relaxed)
    }

    /// Frees the buffers that are not in use: there is nothing to read for now.
    pub(super) fn rest(&self) {
        let buffers = std::mem::take(&mut *self.source.kept.buffers.lock().unwrap_or_else(PoisonError::into_inner));
        self.source.kept.bytes.fetch_sub(buffers.len() * WINDOW, Ordering::Relaxed);
    }

    /// Reads a part from its device, and waits for it.
    ///
    /// # Errors
    /// The device's.
    pub(super) fn read(&self, part: Part) -> io::Result<Bytes> {
        self.source.read(part)
    }

    /// Begins to read a part; `None` if the system has no threads for it.
    pub(super) fn begin(&self, part: Part) -> Option<Begun> {
        let threads = self.threads.get_or_init(|| Offload::start("feed-ahead", THREADS).ok()).as_ref()?;
        let (into, bytes) = sync_channel(1);
        let source = self.source.clone();
        // A reader that is gone does not want it.
        threads.execute(move || _ = into.send(source.read(part)));
        Some(Begun { part, bytes })
    }
}

/// Where parts come from, and buffers for them.
#[derive(Clone)]
struct Source {
    inner: Arc<Inner>,
    kept: Arc<Kept>,
}

/// Buffers of a window that are not in use, and how much memory all have.
#[derive(Default)]
struct Kept {
    buffers: Mutex<Vec<Aligned>>,
    /// Of those in use, too.
    bytes: AtomicUsize,
}

impl Source {
    fn read(&self, part: Part) -> io::Result<Bytes> {
        let kept = match part.length <= WINDOW {
            true => self.kept.buffers.lock().unwrap_or_else(PoisonError::into_inner).pop(),
            false => None,
        };
        // Freshly allocated memory costs the system as much as what is read into it.
        let bytes = kept.unwrap_or_else(|| {
            let bytes = Aligned::recycled(part.length.max(WINDOW));
            self.kept.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
            bytes
        });
        let mut window = Window { bytes: Some(bytes), kept: Arc::clone(&self.kept) };
        let bytes = window.bytes.as_mut().expect("it was put there").get_mut(..part.length).expect("it is as long");
        let (device, start) = self.inner.devices.place(part.region);
        self.inner.devices.media(device).read_at(bytes, start + part.start as u64)?;
        Ok(Bytes::from_owner(window).slice(..part.length))
    }
}

/// A buffer that is kept for another part when nothing refers to it any more.
struct Window {
    /// There until it is dropped.
    bytes: Option<Aligned>,
    kept: Arc<Kept>,
}

impl AsRef<[u8]> for Window {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_deref().unwrap_or_default()
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        let Some(bytes) = self.bytes.take() else { return };
        let mut kept = self.kept.buffers.lock().unwrap_or_else(PoisonError::into_inner);
        if bytes.len() == WINDOW && kept.len() < KEPT {
            return kept.push(bytes);
        }
        self.kept.bytes.fetch_sub(bytes.len(), Ordering::Relaxed);
    }
}
