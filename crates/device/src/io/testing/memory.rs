//! A device in RAM.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::io::Media;

/// A device in RAM: zeros at first. What is written is there at once.
#[derive(Debug)]
pub struct MemoryMedia {
    image: RwLock<Vec<u8>>,
}

impl MemoryMedia {
    /// A blank device of `bytes`.
    pub fn new(bytes: u64) -> Arc<Self> {
        Self::of(vec![0; usize::try_from(bytes).expect("fits into memory")])
    }

    /// A device that holds `image`.
    pub fn of(image: Vec<u8>) -> Arc<Self> {
        Arc::new(Self { image: RwLock::new(image) })
    }

    /// A copy of all its bytes.
    pub fn image(&self) -> Vec<u8> {
        self.image.read().clone()
    }

    /// Changes bytes directly, without a write.
    pub fn tamper(&self, change: impl FnOnce(&mut [u8])) {
        change(&mut self.image.write());
    }
}

impl Media for MemoryMedia {
    fn bytes(&self) -> u64 {
        self.image.read().len() as u64
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let image = self.image.read();
        let found = usize::try_from(offset).ok().and_then(|start| image.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(found.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut image = self.image.write();
        let room = usize::try_from(offset).ok().and_then(|start| image.get_mut(start..start.checked_add(bytes.len())?));
        room.ok_or(io::ErrorKind::WriteZero)?.copy_from_slice(bytes);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}
