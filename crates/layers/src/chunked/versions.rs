//! Versions of items that lie in a store which knows of none: made here, and compared with what heads say. What is remembered of
//! deletes and flushes is in RAM, and is for the entries of this process: those of one before are misses.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::change::{Old, Version as Change};
use moneta_store::versions::{Floor, Floors, Tombstones, Versioning};
use moneta_store::{Clock, Lane, StoreError, Version, next_local};
use parking_lot::Mutex;

/// What is known of versions.
pub(super) struct Versions {
    versioning: Versioning,
    clock: Arc<Clock>,
    /// Time and counter of the last version made or seen; or the last CAS value that was counted.
    last: AtomicU64,
    lane: Lane,
    // Both are held for a look or a note.
    deletes: Mutex<Tombstones>,
    floors: Mutex<Floors>,
}

impl Versions {
    pub(super) fn new(versioning: &Versioning, clock: Arc<Clock>) -> Self {
        Self {
            versioning: *versioning,
            last: AtomicU64::new(versioning.counts_from.unwrap_or(0)),
            lane: Lane::whole(versioning.salt),
            deletes: Mutex::new(Tombstones::of_shard(versioning, 1, clock.millis())),
            floors: Mutex::default(),
            clock,
        }
    }

    /// Whether this is one of several copies.
    pub(super) fn is_copy(&self) -> bool {
        self.versioning.cluster
    }

    /// Whether CAS values are counted, and so no versions.
    pub(super) fn counts(&self) -> bool {
        self.versioning.counts_from.is_some()
    }

    /// The next CAS value: above every one made or seen here.
    pub(super) fn next(&self) -> Version {
        if self.counts() {
            return Version(self.last.fetch_add(1, Ordering::Relaxed) + 1);
        }
        let millis = self.clock.millis();
        let next = |last: u64| next_local(last, millis, self.lane);
        let last = self.last.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |last| Some(next(last)));
        Version::new(next(last.unwrap_or_else(|last| last)), self.versioning.origin)
    }

    /// Makes all further versions greater than one that was seen. Counts are of this store alone.
    pub(super) fn note(&self, seen: Version) {
        if !self.counts() {
            self.last.fetch_max(seen.local(), Ordering::Relaxed);
        }
    }

    /// Refuses a version that is too far ahead of the clock and of what was made or seen here; takes note of one that is not.
    ///
    /// # Errors
    /// [`moneta_store::ErrorKind::ClockAhead`], or [`moneta_store::ErrorKind::NoVersions`] where none are kept.
    pub(super) fn accept(&self, version: Version) -> Result<(), StoreError> {
        if self.counts() {
            return Err(StoreError::no_versions());
        }
        let is_ahead = self.versioning.is_ahead(version, self.clock.millis());
        if is_ahead && version.local() > self.last.load(Ordering::Relaxed) {
            return Err(StoreError::clock_ahead());
        }
        self.note(version);
        Ok(())
    }

    /// What was flushed by now.
    pub(super) fn floors(&self) -> Floors {
        let mut floors = self.floors.lock();
        if floors.settle(self.clock.now()) {
            self.note(floors.bound);
        }
        *floors
    }

    /// Takes note of a flush; false if a later one is known.
    pub(super) fn flush(&self, floor: Floor) -> bool {
        self.note(floor.version);
        let mut floors = self.floors.lock();
        let is_new = floors.note(floor, self.clock.now());
        self.note(floors.bound);
        is_new
    }

    /// Whether a flush of several copies has taken what was written under a version.
    pub(super) fn is_flushed(&self, version: Version) -> bool {
        self.is_copy() && self.floors().takes(version)
    }

    /// The version under which a key was deleted, as far as that is remembered, and since when deletes are.
    pub(super) fn buried(&self, hash: u64) -> (Option<Version>, u64) {
        let deletes = self.deletes.lock();
        (deletes.find(hash), deletes.horizon())
    }

    /// Counts as having forgotten the deletes until now.
    pub(super) fn lose(&self) {
        self.deletes.lock().lose_before(self.clock.millis());
    }

    /// Remembers a delete.
    pub(super) fn bury(&self, hash: u64, version: Version) {
        self.deletes.lock().insert(hash, version, self.clock.millis());
    }

    /// Remembers a delete of a client of one of several copies, whether the key was there or not.
    pub(super) fn deleted(&self, hash: u64) {
        if self.is_copy() {
            self.bury(hash, self.next());
        }
    }

    /// Remembers an item whose time is up: nothing older may come in its place. The same one with a longer life may.
    pub(super) fn expired(&self, hash: u64, version: Version) {
        if self.is_copy() && version > Version::ZERO {
            self.bury(hash, version.just_below());
        }
    }

    /// Whether a value that was current at `as_of` may have been deleted since, deletes being known since `horizon`.
    pub(super) fn is_unsure(&self, as_of: u64, horizon: u64) -> bool {
        self.versioning.is_unsure(as_of, horizon)
    }

    /// What is stored in place of `old`, as one of several copies makes it if this is one.
    pub(super) fn versioned<'v>(&self, version: Change<'v>, old: Option<&Old<'_>>) -> Change<'v> {
        match old {
            Some(old) if self.is_copy() => version.in_cluster(&old.meta, old.value.len()),
            _ => version,
        }
    }

    /// Seconds that entries outlive their items: what has expired must be known for as long as deletes are.
    pub(super) fn outlives(&self) -> u32 {
        if self.is_copy() { self.versioning.tombstone_ttl } else { 0 }
    }
}
