//! Parts of regions, read from their device: the next one while the reader works on the one before.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use crate::inner::Inner;
use crate::io::Aligned;

/// A part of a region, in whole blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) region: usize,
    /// Where it begins in the region.
    pub(super) start: usize,
    pub(super) length: usize,
}

/// A part that is being read.
pub(super) struct Begun {
    pub(super) part: Part,
    bytes: Receiver<io::Result<Aligned>>,
}

impl Begun {
    /// Waits for its bytes.
    ///
    /// # Errors
    /// The device's, or that the thread is gone.
    pub(super) fn wait(self) -> io::Result<Aligned> {
        self.bytes.recv().unwrap_or_else(|_| Err(io::Error::other("the thread that reads ahead is gone")))
    }
}

/// What is to be read, and where its bytes go.
type Job = (Part, std::sync::mpsc::SyncSender<io::Result<Aligned>>);

/// Reads ahead for one reader of the feed. Its thread begins with the first part, and ends with this.
pub(super) struct ReadAhead {
    inner: Arc<Inner>,
    thread: Mutex<Option<(Sender<Job>, JoinHandle<()>)>>,
}

impl ReadAhead {
    pub(super) fn new(inner: &Arc<Inner>) -> Self {
        Self { inner: Arc::clone(inner), thread: Mutex::default() }
    }

    /// Begins to read a part; `None` if the system has no thread for it.
    pub(super) fn begin(&self, part: Part) -> Option<Begun> {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if thread.is_none() {
            let (sender, jobs) = channel::<Job>();
            let inner = Arc::clone(&self.inner);
            let run = move || {
                for (part, into) in jobs {
                    // A reader that is gone does not want it.
                    let _ = into.send(read(&inner, part));
                }
            };
            *thread = Some((sender, std::thread::Builder::new().name("feed-ahead".into()).spawn(run).ok()?));
        }
        let (into, bytes) = sync_channel(1);
        thread.as_ref()?.0.send((part, into)).ok()?;
        Some(Begun { part, bytes })
    }
}

impl Drop for ReadAhead {
    fn drop(&mut self) {
        let thread = self.thread.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((sender, thread)) = thread {
            drop(sender);
            // It holds the engine until then.
            let _ = thread.join();
        }
    }
}

/// Reads a part from its device.
pub(super) fn read(inner: &Inner, part: Part) -> io::Result<Aligned> {
    let mut bytes = Aligned::zeroed(part.length);
    let (device, start) = inner.devices.place(part.region);
    inner.devices.media(device).read_at(&mut bytes, start + part.start as u64)?;
    Ok(bytes)
}
