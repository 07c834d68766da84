//! A device that remembers every write in order, to show what a crash at any moment would have left.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::io::Media;

/// Something that happened to a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Bytes were written.
    Write {
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Everything before is on the device.
    Sync,
}

/// Records the writes to a device.
pub struct RecordingMedia<M: ?Sized = dyn Media> {
    inner: Arc<M>,
    /// The contents when the recording began.
    before: Vec<u8>,
    log: Mutex<Vec<Recorded>>,
}

impl<M: Media + ?Sized> RecordingMedia<M> {
    /// Records from now on.
    ///
    /// # Panics
    /// If the device cannot be read.
    pub fn new(inner: Arc<M>) -> Arc<Self> {
        let mut before = crate::io::Aligned::zeroed(usize::try_from(inner.bytes()).expect("fits into memory"));
        inner.read_at(&mut before, 0).expect("the device can be read");
        Arc::new(Self { inner, before: before.to_vec(), log: Mutex::default() })
    }

    /// How many events there are: writes and syncs. With [`RecordingMedia::log`] a test can tell where the syncs are.
    pub fn events(&self) -> usize {
        self.log.lock().len()
    }

    /// Bytes of the write that is event number `event`; 0 for a sync.
    pub fn length(&self, event: usize) -> usize {
        match &self.log.lock()[event] {
            Recorded::Write { bytes, .. } => bytes.len(),
            Recorded::Sync => 0,
        }
    }

    /// Everything that happened.
    pub fn log(&self) -> Vec<Recorded> {
        self.log.lock().clone()
    }

    /// The image after a crash that lets the first `events` events through, and the first `torn` bytes of the next write.
    pub fn image(&self, events: usize, torn: usize) -> Vec<u8> {
        let log = self.log.lock();
        let mut image = self.before.clone();
        log[..events].iter().for_each(|event| apply(&mut image, event, usize::MAX));
        if let Some(event) = log.get(events) {
            apply(&mut image, event, torn);
        }
        image
    }

    /// Shows the image at every cut, in order: before each write, after every `step` bytes of it, and after the last one. The image
    /// changes in place from one cut to the next.
    pub fn each_cut(&self, step: usize, mut show: impl FnMut(Cut, &[u8])) {
        let log = self.log();
        let mut image = self.before.clone();
        for (events, event) in log.iter().enumerate() {
            if let Recorded::Write { offset, bytes } = event {
                for (piece, torn) in bytes.chunks(step).zip((0..).step_by(step)) {
                    show(Cut { events, torn }, &image);
                    let start = *offset as usize + torn;
                    image[start..start + piece.len()].copy_from_slice(piece);
                }
            }
        }
        show(Cut { events: log.len(), torn: 0 }, &image);
    }
}

/// A moment of power loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Events that are through.
    pub events: usize,
    /// Bytes of the next write that are through.
    pub torn: usize,
}

fn apply(image: &mut [u8], event: &Recorded, limit: usize) {
    if let Recorded::Write { offset, bytes } = event {
        let part = &bytes[..bytes.len().min(limit)];
        let start = *offset as usize;
        image[start..start + part.len()].copy_from_slice(part);
    }
}

impl<M: Media + ?Sized> Media for RecordingMedia<M> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.inner.read_at(buffer, offset)
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        // Under the lock, so that the order of the log is the order on the device.
        let mut log = self.log.lock();
        self.inner.write_at(bytes, offset)?;
        log.push(Recorded::Write { offset, bytes: bytes.to_vec() });
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut log = self.log.lock();
        self.inner.sync()?;
        log.push(Recorded::Sync);
        Ok(())
    }

    fn descriptor(&self) -> Option<RawFd> {
        self.inner.descriptor()
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryMedia;
    use super::*;
    use crate::io::Aligned;

    #[test]
    fn an_image_can_be_had_as_of_any_byte_written() {
        let memory = MemoryMedia::new(4 * 4096);
        let mut block = Aligned::zeroed(4096);
        block.fill(1);
        memory.write_at(&block, 0).unwrap();
        let recording = RecordingMedia::new(Arc::clone(&memory));
        block.fill(2);
        recording.write_at(&block, 0).unwrap();
        recording.sync().unwrap();
        block.fill(3);
        recording.write_at(&block, 8192).unwrap();

        assert_eq!((recording.events(), recording.length(0), recording.length(1)), (3, 4096, 0));
        assert!(recording.image(0, 0)[..4096].iter().all(|&byte| byte == 1));
        let torn = recording.image(0, 512);
        assert_eq!((torn[511], torn[512]), (2, 1));
        assert_eq!(recording.image(3, 0), memory.image());

        let mut cuts = Vec::new();
        recording.each_cut(512, |cut, image| {
            assert_eq!(image, recording.image(cut.events, cut.torn), "{cut:?}");
            cuts.push(cut);
        });
        assert_eq!(cuts.len(), 8 + 8 + 1);
        assert!(cuts.contains(&Cut { events: 2, torn: 3584 }));
    }
}
