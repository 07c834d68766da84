//! A device that fails on command.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::io::Media;

/// The faults of a device from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Reads fail with an I/O error.
    pub reads: bool,
    /// Writes fail with an I/O error, and nothing is written.
    pub writes: bool,
    /// Writes fail for want of room, and nothing is written.
    pub full: bool,
    /// Syncs fail with an I/O error.
    pub syncs: bool,
    /// Reads wait until this is cleared.
    pub stall_reads: bool,
    /// Writes and syncs wait until this is cleared.
    pub stall_writes: bool,
}

/// Wraps a device and fails calls on command. It has no descriptor, so reads go through threads.
pub struct FaultyMedia<M: ?Sized = dyn Media> {
    inner: Arc<M>,
    state: Mutex<FaultyState>,
    changed: Condvar,
}

#[derive(Default)]
struct FaultyState {
    faults: Faults,
    /// Offset of a byte, and its bits that read as flipped.
    flips: BTreeMap<u64, u8>,
    failed: u64,
    stalled: usize,
}

impl<M: Media + ?Sized> FaultyMedia<M> {
    /// A device without a fault yet.
    pub fn new(inner: Arc<M>) -> Arc<Self> {
        Arc::new(Self { inner, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Replaces the faults; calls that no longer have to wait continue.
    pub fn set(&self, faults: Faults) {
        self.state.lock().faults = faults;
        self.changed.notify_all();
    }

    /// From now on reads show the byte at `offset` with `bits` flipped; 0 heals it.
    pub fn flip(&self, offset: u64, bits: u8) {
        self.state.lock().flips.insert(offset, bits);
    }

    /// Reads, writes and syncs that were made to fail so far.
    pub fn failed(&self) -> u64 {
        self.state.lock().failed
    }

    /// Reads, writes and syncs that wait now.
    pub fn stalled(&self) -> usize {
        self.state.lock().stalled
    }

    /// Waits while `stalls`, then fails if `fails` says so.
    fn pass(&self, stalls: fn(&Faults) -> bool, fails: fn(&Faults) -> Option<Errno>) -> io::Result<()> {
        let mut state = self.state.lock();
        state.stalled += 1;
        while stalls(&state.faults) {
            self.changed.wait(&mut state);
        }
        state.stalled -= 1;
        match fails(&state.faults) {
            Some(error) => {
                state.failed += 1;
                Err(error.into())
            }
            None => Ok(()),
        }
    }
}

impl<M: Media + ?Sized> Media for FaultyMedia<M> {
    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.pass(|faults| faults.stall_reads, |faults| faults.reads.then_some(Errno::IO))?;
        self.inner.read_at(buffer, offset)?;
        for (&at, bits) in self.state.lock().flips.range(offset..offset + buffer.len() as u64) {
            buffer[(at - offset) as usize] ^= bits;
        }
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let fails = |faults: &Faults| match faults {
            Faults { writes: true, .. } => Some(Errno::IO),
            Faults { full: true, .. } => Some(Errno::NOSPC),
            _ => None,
        };
        self.pass(|faults| faults.stall_writes, fails)?;
        self.inner.write_at(bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.pass(|faults| faults.stall_writes, |faults| faults.syncs.then_some(Errno::IO))?;
        self.inner.sync()
    }

    fn descriptor(&self) -> Option<RawFd> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::MemoryMedia;
    use super::*;
    use crate::io::Aligned;

    #[test]
    fn faults_come_and_go() {
        let memory = MemoryMedia::new(8192);
        let faulty = FaultyMedia::new(Arc::clone(&memory));
        let mut block = Aligned::zeroed(4096);
        block.fill(7);
        faulty.set(Faults { full: true, reads: true, syncs: true, ..Faults::default() });
        assert_eq!(faulty.write_at(&block, 0).unwrap_err().kind(), io::ErrorKind::StorageFull);
        assert!(faulty.read_at(&mut block, 0).is_err() && faulty.sync().is_err());
        assert_eq!(memory.image(), vec![0; 8192]);
        faulty.set(Faults::default());
        faulty.write_at(&block, 4096).unwrap();
        faulty.flip(4097, 0x80);
        faulty.read_at(&mut block, 4096).unwrap();
        assert_eq!((block[0], block[1], block[2]), (7, 0x87, 7));
        assert_eq!(faulty.failed(), 3);
    }

    #[test]
    fn a_stalled_device_goes_on_when_it_is_released() {
        let faulty = FaultyMedia::new(MemoryMedia::new(8192));
        faulty.set(Faults { stall_writes: true, ..Faults::default() });
        std::thread::scope(|scope| {
            let sync = scope.spawn(|| faulty.sync());
            while faulty.stalled() == 0 {
                std::thread::yield_now();
            }
            faulty.read_at(&mut Aligned::zeroed(4096), 0).unwrap();
            faulty.set(Faults::default());
            sync.join().unwrap().unwrap();
        });
    }
}
