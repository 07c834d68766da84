//! An object that is read as it comes: while its reader works, the next bytes are on their way.

use std::io::{self, Read};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use futures_util::StreamExt;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::runtime::Handle;
use tokio::sync::mpsc::{Receiver, channel};

use crate::failure;
use crate::trying::tried;

/// Pieces that wait for the reader: some hundred KiB, since a piece is what one read of a connection gives.
const AHEAD: usize = 16;

/// Reads an object.
pub(crate) struct Download {
    pieces: Receiver<io::Result<Bytes>>,
    piece: Bytes,
    /// Bytes that are still to come.
    left: u64,
}

impl Download {
    /// Begins to read.
    ///
    /// # Errors
    /// The store's.
    pub(crate) fn begin(runtime: &Handle, store: &Arc<dyn ObjectStore>, path: &Path) -> io::Result<Self> {
        let object = tried(|| runtime.block_on(store.get(path)))?;
        let left = object.meta.size;
        let (into, pieces) = channel(AHEAD);
        runtime.spawn(async move {
            let mut stream = object.into_stream();
            while let Some(piece) = stream.next().await {
                let is_over = piece.is_err();
                if into.send(piece.map_err(failure::of)).await.is_err() || is_over {
                    break;
                }
            }
        });
        Ok(Self { pieces, piece: Bytes::new(), left })
    }
}

impl Read for Download {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.piece.is_empty() {
            match self.pieces.blocking_recv() {
                Some(piece) => self.piece = piece?,
                None if self.left == 0 => return Ok(0),
                None => return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the object is cut short")),
            }
        }
        let length = buffer.len().min(self.piece.len());
        self.piece.copy_to_slice(&mut buffer[..length]);
        self.left = self.left.saturating_sub(length as u64);
        Ok(length)
    }
}
