//! Writes by version: what is newer replaces what is older, and nothing older replaces it, in whatever order both arrive.
//!
//! A region knows the greatest version of its records. A write above it is above the record that the index points to there, and
//! reads no device, unless it must not create an item.

use std::sync::atomic::Ordering;

use moneta_store::change::{self, Content};
use moneta_store::versions::{Standing, Verdict, digest, follows, follows_delete, takes_write};
use moneta_store::{Deleted, ItemMeta, ItemRef, Key, StoreError, Version, Written};

use crate::index::shard::Shard;
use crate::inner::Inner;
use crate::operations::attempt::Attempt;
use crate::operations::lookup::{Fetched, Look, RecordPlace};
use crate::operations::operate::Removing;

/// How a write by version stands to what the key holds.
enum Compared {
    /// The tier has nothing of the key, nor remembers a newer delete.
    Absent,
    /// And the version that it stands to.
    Verdict(Verdict, Version),
    /// The record has to be read first.
    On(RecordPlace),
}

impl Inner {
    /// [`moneta_store::Put::Newer`], as one try.
    pub(crate) fn try_put_newer(
        &self,
        key: &Key<'_>,
        item: &ItemRef<'_>,
        as_of: u64,
        base: Option<Version>,
        fetched: Option<&Fetched>,
    ) -> Attempt<Written> {
        let mut copied = Vec::new();
        let value = item.value.as_slice().unwrap_or_else(|| {
            item.value.copy_to(&mut copied);
            &copied
        });
        let version = item.meta.version();
        if let Err(error) = self.accept_version(version) {
            return Attempt::Done(Err(error));
        }
        if value.len() > self.config.item_max {
            return self.forget(key).map(|_| Written::TooLarge);
        }
        if self.log.queue.is_off() {
            return self.refuse_newer(key, (version, base), as_of);
        }
        let now = self.settle();
        let ground = self.ground();
        let mut shard = self.shard(key.hash).lock();
        let written = || standing(&item.meta, value);
        let horizon = self.deletes.find(self.identities.number(key.hash), key.hash).1;
        let may_create = !self.config.versioning.is_unsure(as_of, horizon);
        // What was there lives longer: that counts as a read, and is how a feed of one region tells it from what was written elsewhere.
        let mut is_touch = false;
        match self.compare(&shard, key, (version, base), may_create, written, fetched) {
            Compared::On(place) => return Attempt::Read(place),
            Compared::Verdict(Verdict::Older, by) => return Attempt::done(Written::Superseded { by }),
            Compared::Verdict(Verdict::Same, _) => return Attempt::done(Written::Unchanged { cas: version.0 }),
            Compared::Verdict(Verdict::Newer, there) => is_touch = there == version,
            Compared::Absent if !may_create => return Attempt::done(Written::NotStored),
            Compared::Absent => {}
        }
        let version = change::Version::of(&item.meta, Content::whole(value));
        let version = change::Version { fetched: version.fetched || is_touch, ..version };
        match self.store(&mut shard, key, &version, now, ground) {
            Ok(stored) => self.ended(Written::Stored { cas: stored.cas }, Some(stored.number)),
            Err(halt) => halt.into(),
        }
    }

    /// A write in mode newer while devices are off. A tier above goes on alone and knows nothing of deletes, so what is known in
    /// RAM decides first.
    #[cold]
    fn refuse_newer(&self, key: &Key<'_>, (version, base): (Version, Option<Version>), as_of: u64) -> Attempt<Written> {
        {
            let shard = self.shard(key.hash).lock();
            let (deleted, horizon) = self.deletes.find(self.identities.number(key.hash), key.hash);
            let is_deleted = deleted.is_some_and(|deleted| deleted >= version || !follows_delete(base, deleted));
            let bound = self.floors.bound();
            let is_flushed = takes_write(bound, version, base);
            if let Some(by) = deleted.filter(|_| is_deleted).max(Some(bound).filter(|_| is_flushed)) {
                return Attempt::done(Written::Superseded { by });
            }
            if self.config.versioning.is_unsure(as_of, horizon) && self.find(&shard, key.hash).is_none() {
                return Attempt::done(Written::NotStored);
            }
        }
        self.refuse(key)
    }

    /// [`moneta_store::Op::Bury`], as one try.
    pub(crate) fn try_bury(&self, key: &Key<'_>, version: Version, fetched: Option<&Fetched>) -> Attempt<Deleted> {
        if let Err(error) = self.accept_version(version) {
            return Attempt::Done(Err(error));
        }
        if self.log.queue.is_off() {
            return self.refuse_delete(key, version);
        }
        let now = self.settle();
        let ground = self.ground();
        let mut shard = self.shard(key.hash).lock();
        let was_there = self.find(&shard, key.hash).is_some();
        match self.compare(&shard, key, (version, None), true, || Standing::Deleted(version), fetched) {
            Compared::On(place) => return Attempt::Read(place),
            Compared::Verdict(Verdict::Older | Verdict::Same, by) => return Attempt::done(Deleted::Superseded { by }),
            Compared::Verdict(Verdict::Newer, _) | Compared::Absent => {}
        }
        let deleted = if was_there { Deleted::Deleted } else { Deleted::NotFound };
        self.remove(&mut shard, key, Removing::As(Some(version)), now, ground)
            .map_or_else(Attempt::from, |number| self.ended(deleted, number))
    }

    /// A delete by version while devices are off: nothing older may come back when they answer again.
    #[cold]
    pub(crate) fn refuse_delete(&self, key: &Key<'_>, version: Version) -> Attempt<Deleted> {
        {
            let _shard = self.shard(key.hash).lock();
            self.remember_delete(key, version);
        }
        self.refuse(key)
    }

    /// Refuses a version where none are kept, or that is too far ahead of the clock, and takes note of one that is not. What was
    /// made or seen here never is: after a restart versions begin ahead of the clock.
    fn accept_version(&self, version: Version) -> Result<(), StoreError> {
        if self.config.versioning.counts_from.is_some() {
            return Err(StoreError::no_versions());
        }
        if self.config.versioning.is_ahead(version, self.clock.millis()) && version > self.log.sequence.newest() {
            self.counters.refused_ahead.fetch_add(1, Ordering::Relaxed);
            return Err(StoreError::clock_ahead());
        }
        self.log.sequence.raise(version.0);
        Ok(())
    }

    /// `may_create`: it does not matter whether the key's item is there.
    fn compare(
        &self,
        shard: &Shard,
        key: &Key<'_>,
        (version, base): (Version, Option<Version>),
        may_create: bool,
        written: impl Fn() -> Standing,
        fetched: Option<&Fetched>,
    ) -> Compared {
        let bound = self.floors.bound();
        if takes_write(bound, version, base) {
            return Compared::Verdict(Verdict::Older, bound);
        }
        let deleted = self.deletes.find(self.identities.number(key.hash), key.hash).0;
        if let Some(deleted) = deleted.filter(|deleted| *deleted >= version) {
            return Compared::Verdict(written().against(&Standing::Deleted(deleted)), deleted);
        }
        // A delete is remembered for as long as an older record of the key may be found.
        if let Some(deleted) = deleted.filter(|deleted| !follows_delete(base, *deleted)) {
            return Compared::Verdict(Verdict::Older, deleted);
        }
        // An entry may be that of another key, or of an item that a flush took: a delete of this key has left it there.
        if may_create && let Some((_, location)) = self.find(shard, key.hash) {
            let region = self.regions.get(self.regions.region_of(location.block()));
            let greatest = region.greatest_version();
            if version > greatest && base.is_none_or(|base| base >= greatest) {
                return Compared::Verdict(Verdict::Newer, greatest);
            }
        }
        match self.look(shard, key, fetched) {
            Look::On(place) => Compared::On(place),
            Look::Present(present) => {
                let (meta, view) = (present.meta(u32::MAX), present.view());
                match written().against(&standing(&meta, view.value())) {
                    Verdict::Newer if !follows(base, Some(meta.version())) => {
                        Compared::Verdict(Verdict::Older, meta.version())
                    }
                    verdict => Compared::Verdict(verdict, meta.version()),
                }
            }
            Look::Absent | Look::Foreign => Compared::Absent,
        }
    }

    /// The version under which a key was deleted, as far as it is remembered; else 0.
    pub(crate) fn buried_as(&self, key: &Key<'_>) -> Version {
        let _shard = self.shard(key.hash).lock();
        self.deletes.find(self.identities.number(key.hash), key.hash).0.unwrap_or_default()
    }

    /// Remembers a delete under a version. The caller holds the lock of the key's shard.
    pub(crate) fn remember_delete(&self, key: &Key<'_>, version: Version) {
        self.deletes.insert(self.identities.number(key.hash), key.hash, version, self.clock.millis());
    }

    /// Remembers an item that has expired: nothing older than it may come back. The same one with a longer life may.
    pub(crate) fn remember_expired(&self, key: &Key<'_>, meta: &ItemMeta) {
        let version = meta.version();
        if self.config.versioning.cluster && version > Version::ZERO {
            self.remember_delete(key, Version(version.0 - 1));
        }
    }
}

fn standing(meta: &ItemMeta, value: &[u8]) -> Standing {
    Standing::Item { version: meta.version(), expiry: meta.expiry, digest: digest(meta, [value]) }
}
