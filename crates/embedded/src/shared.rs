//! What a library's threads need from the engine above it: which items are live, the time, what is remembered of deletes and
//! flushes, and the observer of removals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use moneta_store::component::{Observer, RemovalCause, Removed};
use moneta_store::versions::{Floor, Floors, Versioning};
use moneta_store::{Clock, Expiry, Key, KeyHash, StoreError, Version};
use parking_lot::{Mutex, RwLock, RwLockReadGuard};

use crate::deletes::Deletes;
use crate::error::Failure;
use crate::manifest::Manifest;
use crate::record::Header;
use crate::sequence::Sequence;
use crate::untrusted::UntrustedKeys;

/// What engine and library share.
pub struct EngineShared {
    clock: Arc<Clock>,
    manifest: Manifest,
    seed: KeyHash,
    sequence: Sequence,
    flushed_below: AtomicU64,
    flush_at: AtomicU32,
    /// Among several copies: items of lower versions are gone, too.
    bound: AtomicU64,
    floors: Mutex<Floors>,
    versioning: Versioning,
    pub(crate) deletes: Deletes,
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

impl EngineShared {
    pub(crate) fn new(manifest: Manifest, clock: Arc<Clock>, versioning: &Versioning, shards: usize) -> Self {
        let entries = manifest.entries();
        let floors = entries.floors();
        let deletes = Deletes::new(versioning, shards, clock.millis());
        Self {
            clock,
            seed: entries.key_hash(),
            // A flush covers numbers too that were refused, as no floor above them could be written.
            sequence: Sequence::from(
                entries.sequence_floor.max(entries.flushed_below).max(floors.newest.0).max(floors.bound.0),
                versioning,
            ),
            flushed_below: AtomicU64::new(entries.flushed_below),
            flush_at: AtomicU32::new(floors.pending.map_or(entries.flush_at, |pending| pending.second)),
            bound: AtomicU64::new(if versioning.cluster { floors.bound.0 } else { 0 }),
            floors: Mutex::new(floors),
            versioning: *versioning,
            deletes,
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
        if header.sequence <= self.flushed_below() || header.meta.version() < self.bound() {
            Life::Flushed
        } else if header.meta.expiry.is_dead(self.now()) {
            Life::Expired
        } else {
            Life::Live
        }
    }

    /// What is older than this version is gone, where this is one of several copies.
    fn bound(&self) -> Version {
        Version(self.bound.load(Ordering::Acquire))
    }

    /// Remembers an item whose time is up, as it leaves: nothing older may come in its place. The same one with a longer life
    /// may.
    pub fn expired(&self, key: &[u8], header: &Header) {
        let version = header.meta.version();
        if self.deletes.is_kept() && version > Version::ZERO {
            let hash = Key::new(key, self.seed).hash;
            self.deletes.insert(hash, version.just_below(), self.millis());
        }
    }

    /// Whether this is one of several copies.
    pub(crate) fn is_copy(&self) -> bool {
        self.versioning.cluster
    }

    /// Whether a value that was current at `as_of` may have been deleted since, deletes being known since `horizon`.
    pub(crate) fn is_unsure(&self, as_of: u64, horizon: u64) -> bool {
        self.versioning.is_unsure(as_of, horizon)
    }

    /// Refuses a version that is too far ahead of the clock, and takes note of one that is not. What was given out here, or seen,
    /// never is: after a kill versions begin ahead of the clock.
    ///
    /// # Errors
    /// [`moneta_store::ErrorKind::ClockAhead`], or [`moneta_store::ErrorKind::NoVersions`] where none are kept.
    pub(crate) fn accept_version(&self, version: Version) -> Result<(), StoreError> {
        if self.versioning.counts_from.is_some() {
            return Err(StoreError::no_versions());
        }
        if self.versioning.is_ahead(version, self.millis()) && version.0 > self.sequence.last() {
            return Err(StoreError::clock_ahead());
        }
        self.sequence.note(version);
        Ok(())
    }

    /// Milliseconds since the Unix epoch.
    pub(crate) fn millis(&self) -> u64 {
        self.clock.millis()
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

    /// Whether CAS values are counted, and so no versions.
    pub(crate) fn counts(&self) -> bool {
        self.sequence.counts()
    }

    /// The next sequence number.
    pub(crate) fn next_sequence(&self) -> Result<u64, Failure> {
        self.sequence.next(self.millis(), |floor| self.raise(floor)).map_err(|error| broken(&error))
    }

    pub(crate) fn renew_sequence(&self) -> Result<(), Failure> {
        self.sequence.renew(self.millis(), |floor| self.raise(floor)).map_err(|error| broken(&error))
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
        let _no_changes = self.changing.write();
        // Drawn here: all that is stored has a lower version, and what is stored later a higher one.
        let version = Version(self.next_sequence()?);
        let mut floors = *self.floors.lock();
        if !self.counts() {
            let now = self.now();
            floors.note(Floor::new(version, Expiry(moment), now), now);
            self.sequence.note(floors.bound);
        }
        self.write_flush(moment, moment == 0, floors)
    }

    /// Takes a flush that was commanded elsewhere, unless a later one is known. On one of several copies what is newer than it
    /// stays.
    pub(crate) fn floor(&self, floor: Floor) -> Result<(), Failure> {
        if floor.is_local() {
            self.deletes.lose_before(self.millis());
            return self.empty();
        }
        self.settle()?;
        let _one_at_a_time = self.flushing.lock();
        let _no_changes = self.changing.write();
        let mut floors = *self.floors.lock();
        let before = floors.bound;
        if !floors.note(floor, self.now()) {
            return Ok(());
        }
        let is_newest = Version(self.sequence.last()).local() <= floors.bound.local();
        self.sequence.note(floor.version.max(floors.bound));
        let takes_all = floors.bound > before && (is_newest || !self.is_copy());
        self.write_flush(floors.pending.map_or(0, |pending| pending.second), takes_all, floors)
    }

    /// What is known of flushes.
    /// The newest version that was made or seen.
    pub(crate) fn newest(&self) -> Version {
        Version(self.sequence.last())
    }

    pub(crate) fn floors(&self) -> Floors {
        *self.floors.lock()
    }

    /// Flushes all there is now. A flush still to come does come.
    pub(crate) fn empty(&self) -> Result<(), Failure> {
        self.settle()?;
        let _one_at_a_time = self.flushing.lock();
        let _no_changes = self.changing.write();
        let floors = *self.floors.lock();
        self.write_flush(self.flush_at.load(Ordering::Acquire), true, floors)
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
        if !due() {
            return Ok(());
        }
        let _no_changes = self.changing.write();
        let mut floors = *self.floors.lock();
        floors.settle(self.now());
        self.sequence.note(floors.bound);
        // One of several copies keeps what is newer than the flush.
        self.write_flush(0, !self.is_copy(), floors)
    }

    /// Notes that the process ends in good order: the next one goes on from the numbers of this one.
    pub(crate) fn close(&self) -> std::io::Result<()> {
        self.manifest.change(|entries| {
            entries.clean = true;
            entries.sequence_floor = self.sequence.last().saturating_add(1);
        })
    }

    /// Keeps flushes away during read-modify-write changes. Its holder must not [`settle`](Self::settle).
    pub(crate) fn changing(&self) -> RwLockReadGuard<'_, ()> {
        self.changing.read()
    }

    /// Writes down what is flushed. With `now` all there is: what is stored later has a higher number than any given out so far.
    /// The caller keeps changes away.
    fn write_flush(&self, moment: u32, now: bool, floors: Floors) -> Result<(), Failure> {
        let below = if now { self.sequence.last() } else { self.flushed_below() };
        let written = self.manifest.change(|entries| {
            entries.flush_at = moment;
            entries.note_floors(&floors);
            entries.flushed_below = below;
        });
        written.map_err(|error| broken(&error))?;
        self.flushed_below.store(below, Ordering::Release);
        self.flush_at.store(moment, Ordering::Release);
        self.bound.store(if self.is_copy() { floors.bound.0 } else { 0 }, Ordering::Release);
        *self.floors.lock() = floors;
        Ok(())
    }
}

fn broken(error: &std::io::Error) -> Failure {
    Failure::Broken(format!("the manifest cannot be written: {error}"))
}
