//! An archive that runs out of room; the tests of `moneta-backup` use it, too.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use moneta_bulk::{Counts, Watch};
use moneta_segments::archive::Upload;
use moneta_segments::{Archive, Created, Directory};

/// A directory with room for so many bytes.
#[derive(Debug)]
pub struct Small {
    directory: Directory,
    room: Arc<AtomicI64>,
}

impl Small {
    /// `directory`, in which `room` bytes more may be written.
    pub fn new(directory: Directory, room: i64) -> Self {
        Self { directory, room: Arc::new(AtomicI64::new(room)) }
    }
}

struct SmallUpload {
    upload: Box<dyn Upload>,
    room: Arc<AtomicI64>,
}

fn use_room(room: &AtomicI64, bytes: usize) -> io::Result<()> {
    let bytes = i64::try_from(bytes).expect("it is short");
    match room.fetch_sub(bytes, Ordering::Relaxed) >= bytes {
        true => Ok(()),
        false => Err(io::ErrorKind::StorageFull.into()),
    }
}

impl Write for SmallUpload {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        use_room(&self.room, bytes.len())?;
        self.upload.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.upload.flush()
    }
}

impl Upload for SmallUpload {
    fn finish(self: Box<Self>) -> io::Result<()> {
        self.upload.finish()
    }
}

impl Archive for Small {
    fn create(&self, name: &str, content: &[u8]) -> io::Result<Created> {
        use_room(&self.room, content.len())?;
        self.directory.create(name, content)
    }

    fn begin(&self, name: &str) -> io::Result<Box<dyn Upload>> {
        Ok(Box::new(SmallUpload { upload: self.directory.begin(name)?, room: Arc::clone(&self.room) }))
    }

    fn open(&self, name: &str) -> io::Result<Box<dyn Read + Send>> {
        self.directory.open(name)
    }

    fn list(&self, folder: &str) -> io::Result<Vec<String>> {
        self.directory.list(folder)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.directory.remove(name)
    }

    fn tidy(&self, folder: &str) -> io::Result<()> {
        self.directory.tidy(folder)
    }
}

/// A watch that says nothing and never stops a run.
pub struct Silent;

impl Watch for Silent {
    fn note(&self, _: &str) {}

    fn phase(&self, _: &str, _: Option<u64>) {}

    fn progress(&self, _: Counts) {}

    fn should_stop(&self) -> bool {
        false
    }
}
