//! An object that is written as it comes: in parts, some of them under way, or at once if it is short.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;

use moneta_segments::archive;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStore, ObjectStoreExt, PutPayload};
use tokio::runtime::Handle;
use tokio::task::JoinHandle;

use crate::failure;
use crate::trying::tried;

/// Bytes of a part. Stores want 5 MiB and more, all equal but the last, and 10,000 of them at most.
const PART: usize = 8 << 20;
/// Parts that are under way at once.
const UNDER_WAY: usize = 2;

/// Writes an object, which is there once it is finished. It holds three parts at most.
pub(crate) struct Upload {
    runtime: Handle,
    store: Arc<dyn ObjectStore>,
    path: Path,
    part: Vec<u8>,
    /// `None`: what came fits in one part.
    parts: Option<Box<dyn MultipartUpload>>,
    under_way: VecDeque<JoinHandle<object_store::Result<()>>>,
    is_finished: bool,
}

impl Upload {
    pub(crate) fn new(runtime: Handle, store: Arc<dyn ObjectStore>, path: Path) -> Self {
        let (part, under_way) = (Vec::new(), VecDeque::new());
        Self { runtime, store, path, part, parts: None, under_way, is_finished: false }
    }

    fn send_part(&mut self) -> io::Result<()> {
        let parts = match &mut self.parts {
            Some(parts) => parts,
            None => {
                let begun = tried(|| self.runtime.block_on(self.store.put_multipart(&self.path)))?;
                self.parts.insert(begun)
            }
        };
        let part = PutPayload::from(std::mem::take(&mut self.part));
        let sent = parts.put_part(part);
        self.under_way.push_back(self.runtime.spawn(sent));
        self.wait(UNDER_WAY)
    }

    /// Waits until no more than so many parts are under way.
    fn wait(&mut self, most: usize) -> io::Result<()> {
        while self.under_way.len() > most {
            let Some(sent) = self.under_way.pop_front() else { break };
            self.runtime.block_on(sent).map_err(io::Error::other)?.map_err(failure::of)?;
        }
        Ok(())
    }
}

impl Write for Upload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len().min(PART - self.part.len());
        self.part.extend_from_slice(&bytes[..length]);
        if self.part.len() == PART {
            self.send_part()?;
        }
        Ok(length)
    }

    /// What is written is there at the end alone.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl archive::Upload for Upload {
    fn finish(mut self: Box<Self>) -> io::Result<()> {
        if self.parts.is_none() {
            let all = PutPayload::from(std::mem::take(&mut self.part));
            self.is_finished = true;
            return tried(|| self.runtime.block_on(self.store.put(&self.path, all.clone()))).map(drop);
        }
        if !self.part.is_empty() {
            self.send_part()?;
        }
        self.wait(0)?;
        if let Some(parts) = &mut self.parts {
            self.runtime.block_on(parts.complete()).map_err(failure::of)?;
        }
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        self.under_way.iter().for_each(JoinHandle::abort);
        if let (false, Some(parts)) = (self.is_finished, &mut self.parts) {
            // What is left of it otherwise is for a rule of the bucket that ends uploads that are not finished.
            let _ = self.runtime.block_on(parts.abort());
        }
    }
}
