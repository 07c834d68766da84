//! What a library's threads need from the engine above it: which items are live, the time, and the observer of removals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use moneta_store::component::{Observer, RemovalCause, Removed};
use moneta_store::{Clock, KeyHash};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::error::Failure;
use crate::manifest::Manifest;
use crate::record::Header;
use crate::sequence::Sequence;
use crate::untrusted::UntrustedKeys;

/// What engine and library share.
pub struct Shared {
    clock: Arc<Clock>,
    manifest: Manifest,
    seed: KeyHash,
    sequence: Sequence,
    flushed_below: AtomicU64,
    flush_at: AtomicU32,
    // Held while a flush is written down, so that a later one cannot be overtaken.
    flushing: Mutex<()>,
    // Held for reading from when a batch looks at items until it has taken effect, and for writing by a flush: else an item
    // seen before it could be stored with a number above it, and so outlive it.
    changing: RwLock<()>,
    observer: RwLock<Option<Arc<dyn Observer>>>,
    pub(crate) untrusted: UntrustedKeys,
}

/// Whether a record counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Live,
    /// Its time is up.
    Expired,
    /// A flush covers it.
    Flushed,
}

impl Shared {
    pub(crate) fn new(manifest: Manifest, clock: Arc<Clock>) -> Self {
        let entries = manifest.entries();
        Self {
            clock,
            seed: entries.key_hash(),
            // A flush covers numbers too that were refused, as no floor above them could be written.
            sequence: Sequence::from(entries.sequence_floor.max(entries.flushed_below)),
            flushed_below: AtomicU64::new(entries.flushed_below),
            flush_at: AtomicU32::new(entries.flush_at),
            flushing: Mutex::new(()),
            changing: RwLock::new(()),
            observer: RwLock::new(None),
            untrusted: UntrustedKeys::default(),
            manifest,
        }
    }

    /// The folder's manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// How keys are hashed.
    pub(crate) fn seed(&self) -> KeyHash {
        self.seed
    }

    /// The current Unix second.
    pub fn now(&self) -> u32 {
        self.clock.now()
    }

    /// The highest sequence number that a flush covers.
    pub fn flushed_below(&self) -> u64 {
        self.flushed_below.load(Ordering::Acquire)
    }

    /// Whether a record counts at this moment. Once it does not, it never will again.
    pub fn life(&self, header: &Header) -> Life {
        if header.sequence <= self.flushed_below() {
            Life::Flushed
        } else if header.meta.expiry.is_dead(self.now()) {
            Life::Expired
        } else {
            Life::Live
        }
    }

    /// Tells the observer, if there is one, that a record has left.
    pub fn removed(&self, key: &[u8], header: &Header, value_bytes: usize, cause: RemovalCause) {
        if let Some(observer) = self.observer.read().as_ref() {
            observer.removed(&Removed { key, meta: header.meta, value_bytes, cause });
        }
    }

    pub(crate) fn observe(&self, observer: Option<Arc<dyn Observer>>) {
        *self.observer.write() = observer;
    }

    /// The next sequence number.
    pub(crate) fn next_sequence(&self) -> Result<u64, Failure> {
        self.sequence.next(self.now(), |floor| self.raise(floor)).map_err(|error| broken(&error))
    }

    pub(crate) fn renew_sequence(&self) -> Result<(), Failure> {
        self.sequence.renew(self.now(), |floor| self.raise(floor)).map_err(|error| broken(&error))
    }

    fn raise(&self, floor: u64) -> std::io::Result<()> {
        self.manifest.change(|entries| entries.sequence_floor = floor)
    }

    /// The moment of a flush still to come.
    pub(crate) fn pending_flush(&self) -> Option<u32> {
        Some(self.flush_at.load(Ordering::Acquire)).filter(|moment| *moment > self.now())
    }

    /// Flushes now, with `moment` 0, or when that second comes. Returns when that is on the device.
    pub(crate) fn flush(&self, moment: u32) -> Result<(), Failure> {
        self.settle()?;
        let _one_at_a_time = self.flushing.lock();
        self.write_flush(moment, moment == 0)
    }

    /// Flushes all there is now. A flush still to come does come.
    pub(crate) fn empty(&self) -> Result<(), Failure> {
        self.settle()?;
        let _one_at_a_time = self.flushing.lock();
        self.write_flush(self.flush_at.load(Ordering::Acquire), true)
    }

    /// Makes a flush happen whose moment has come. To be called before anything is read or written, by a thread that may wait.
    pub(crate) fn settle(&self) -> Result<(), Failure> {
        let due = || {
            let moment = self.flush_at.load(Ordering::Acquire);
            moment != 0 && moment <= self.now()
        };
        if !due() {
            return Ok(());
        }
        let _one_at_a_time = self.flushing.lock();
        if due() { self.write_flush(0, true) } else { Ok(()) }
    }

    /// Keeps flushes away during read-modify-write changes. Its holder must not [`settle`](Self::settle).
    pub(crate) fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read()
    }

    /// What is stored later has a higher number than any given out so far.
    fn write_flush(&self, moment: u32, now: bool) -> Result<(), Failure> {
        let _nobody_changes = self.changing.write();
        let below = if now { self.sequence.last() } else { self.flushed_below() };
        let written = self.manifest.change(|entries| {
            entries.flush_at = moment;
            entries.flushed_below = below;
        });
        written.map_err(|error| broken(&error))?;
        self.flushed_below.store(below, Ordering::Release);
        self.flush_at.store(moment, Ordering::Release);
        Ok(())
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::Broken(format!("the manifest cannot be written: {error}"))
}
