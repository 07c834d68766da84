//! Writes by version: what is newer replaces what is older, and nothing older replaces it, in whatever order both arrive.

use moneta_store::versions::{Standing, Verdict, digest, follows, follows_delete};
use moneta_store::{Deleted, ItemRef, Key, StoreError, Version, Written};

use crate::new_item::NewItem;
use crate::record::mark;
use crate::shard::{Found, Shard};
use crate::write::{Newer, Plan};

impl<'a> Newer<'a> {
    /// `as_of` and `base` as in [`moneta_store::Put::Newer`].
    pub(crate) fn new(key: &Key<'_>, content: &'a ItemRef<'a>, as_of: u64, base: Option<Version>) -> Self {
        Self { item: NewItem::of(&content.meta), content, hash: key.hash, as_of, base }
    }

    fn version(&self) -> Version {
        self.content.meta.version()
    }

    fn standing(&self) -> Standing {
        let mut rest = Vec::new();
        let whole = self.content.value.as_slice().unwrap_or_else(|| {
            self.content.value.copy_to(&mut rest);
            &rest
        });
        let meta = &self.content.meta;
        Standing::Item { version: self.version(), expiry: meta.expiry, digest: digest(meta, [whole]) }
    }
}

impl Shard {
    /// Refuses a version that is too far ahead of the clock, and takes note of one that is not. What was made or seen here never
    /// is, also when the clock was set back.
    ///
    /// # Errors
    /// [`moneta_store::ErrorKind::ClockAhead`], or [`moneta_store::ErrorKind::NoVersions`] where CAS values are none.
    pub(crate) fn accept_version(&mut self, version: Version) -> Result<(), StoreError> {
        if self.shared.versioning.counts_from.is_some() {
            return Err(StoreError::no_versions());
        }
        if self.shared.versioning.is_ahead(version, self.shared.clock.millis()) && version > self.newest_version() {
            self.refused_ahead += 1;
            return Err(StoreError::clock_ahead());
        }
        self.note_version(version);
        Ok(())
    }

    /// What becomes of an item in mode newer. `old` is live.
    pub(crate) fn plan_newer(&self, old: Option<&Found>, newer: &Newer<'_>) -> Plan {
        let version = newer.version();
        let superseded = |by| Plan::Refuse(Written::Superseded { by });
        if self.floors.takes_write(version, newer.base) {
            return superseded(self.floors.bound);
        }
        let Some(old) = old else {
            return match self.tombstones.find(newer.hash) {
                Some(deleted) if deleted >= version || !follows_delete(newer.base, deleted) => superseded(deleted),
                _ if self.shared.versioning.is_unsure(newer.as_of, self.tombstones.horizon()) => {
                    Plan::Refuse(Written::NotStored)
                }
                _ => Plan::Value(newer.item),
            };
        };
        // Contents matter only between equal versions.
        let verdict = match version.cmp(&self.version(old)) {
            std::cmp::Ordering::Greater => Verdict::Newer,
            std::cmp::Ordering::Less => Verdict::Older,
            std::cmp::Ordering::Equal => newer.standing().against(&self.standing(old)),
        };
        match verdict {
            Verdict::Newer if !follows(newer.base, Some(self.version(old))) => superseded(self.version(old)),
            Verdict::Newer if version == self.version(old) => Plan::Value(newer.item.touched()),
            Verdict::Newer => Plan::Value(newer.item),
            Verdict::Same => Plan::Refuse(Written::Unchanged { cas: version.0 }),
            Verdict::Older => superseded(self.version(old)),
        }
    }

    fn standing(&self, found: &Found) -> Standing {
        let mut value = Vec::new();
        self.copy_value(found, &mut value);
        let meta = self.meta(found);
        Standing::Item { version: self.version(found), expiry: meta.expiry, digest: digest(&meta, [&value[..]]) }
    }

    /// Deletes what is older than `version` and remembers that.
    ///
    /// # Errors
    /// [`moneta_store::ErrorKind::ClockAhead`].
    pub(crate) fn bury(&mut self, key: &Key<'_>, version: Version) -> Result<Deleted, StoreError> {
        let now = self.settle();
        self.accept_version(version)?;
        let found = self.find(key, now).ok();
        let there = found.as_ref().map(|found| self.version(found)).filter(|there| *there > version);
        let deleted = self.tombstones.find(key.hash).filter(|deleted| *deleted >= version);
        let floor = Some(self.floors.bound).filter(|bound| *bound > version);
        if let Some(by) = there.max(deleted).max(floor) {
            return Ok(Deleted::Superseded { by });
        }
        self.note_tombstone(key.hash, version);
        Ok(match found {
            Some(found) => {
                self.remove(&found);
                Deleted::Deleted
            }
            None => Deleted::NotFound,
        })
    }

    /// Remembers a delete that happens now.
    pub(crate) fn remember_delete(&mut self, hash: u64) {
        let version = self.next_version();
        self.note_tombstone(hash, version);
    }

    /// Remembers an item that has expired: nothing older than it may come back. The same one with a longer life may.
    #[cold]
    pub(crate) fn remember_expired(&mut self, found: &Found) {
        let version = self.version(found);
        if version > Version::ZERO {
            let hash = Key::new(self.key(found), self.shared.seed).hash;
            self.note_tombstone(hash, Version(version.0 - 1));
        }
    }

    fn note_tombstone(&mut self, hash: u64, version: Version) {
        self.tombstones.insert(hash, version, self.shared.clock.millis());
    }

    /// Whether an item is one that `touch` makes a new version of: in a cluster a life is only shortened so.
    pub(crate) fn is_new_by_touch(&self, found: &Found, expiry: moneta_store::Expiry) -> bool {
        let moment = |expiry: moneta_store::Expiry| if expiry.0 == 0 { u32::MAX } else { expiry.0 };
        self.shared.versioning.cluster && moment(expiry) < moment(found.header.expiry)
    }

    /// Gives an item the version of a write that happens now. False if there is no room to write it anew.
    pub(crate) fn renew(&mut self, key: &Key<'_>, found: &Found, now: u32) -> bool {
        let stamp = crate::record::Stamp::Version(self.next_version());
        let mut header = found.header;
        if self.restamp(found, &mut header, stamp) {
            self.write_header(found.location, &header);
            return true;
        }
        let item = NewItem {
            marks: header.marks & (mark::FETCHED | mark::STALE | mark::TOKEN),
            flags: header.flags,
            expiry: header.expiry,
            last_access: header.last_access,
            stamp: Some(stamp),
        };
        if !self.make_room_to_rewrite(key, now) {
            return false;
        }
        let Ok(found) = self.find(key, now) else { return false };
        let mut value = Vec::new();
        self.copy_value(&found, &mut value);
        self.place(key, Some(&found), [&value, &[]], &item).is_ok()
    }
}
