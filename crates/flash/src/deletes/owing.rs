//! Owing tombstones, and appending them when there is room: see [`crate::deletes::debts`].

use std::sync::atomic::Ordering;

use moneta_store::{Expiry, Key, Version};

use crate::counters::count;
use crate::inner::Inner;
use crate::log::writer::{Log, Over};
use moneta_device::format::record::{Draft, mark};

impl Inner {
    /// A change of a key failed for want of room: removes the key.
    #[cold]
    pub(crate) fn owe(&self, key: &Key<'_>) {
        let mut shard = self.shard(key.hash).lock();
        match self.find(&shard, key.hash) {
            Some((position, location)) => {
                // Its record counts until the tombstone is there: what is stored before that must not go before the record.
                let region = self.regions.get(self.regions.region_of(location.block()));
                self.log.forgotten.note_evicted(key.hash, region.sequence());
                shard.index.remove(position);
            }
            // The device may have a record that the index had no room for.
            None if self.log.evicted(key.hash) != 0 => {}
            None => return,
        }
        if !self.debts.push(key) {
            self.outdate();
        }
        // After the push, so that a wait for everything appended so far includes the tombstone.
        self.log.count_append();
    }

    /// Appends owed tombstones as far as there is room. True if none is left.
    pub(crate) fn pay(&self) -> bool {
        if self.debts.count.load(Ordering::Acquire) == 0 {
            return true;
        }
        let mut keys = self.debts.take();
        while let Some(key) = keys.pop() {
            if !self.append_tombstone(&key.key(), None) {
                keys.push(key);
                break;
            }
        }
        let paid = keys.is_empty();
        self.debts.give_back(keys);
        paid
    }

    /// False if there is no room.
    pub(crate) fn append_tombstone(&self, key: &Key<'_>, delete: Option<Version>) -> bool {
        let expiry = Expiry::NEVER;
        let (cas, unversioned) = (delete.map(|version| version.0), delete.is_none());
        let tombstone =
            Draft { key: key.bytes, value: [&[], &[]], marks: mark::TOMBSTONE, expiry, flags: 0, cas, unversioned };
        let hash = tombstone.content_hash();
        let now = self.clock.now();
        let floor = self.log.floor();
        let shard = self.shard(key.hash).lock();
        if shard.find(key.hash).is_some() {
            // A newer record replaces the old one, so no tombstone is needed.
            return true;
        }
        let group = Log::group_of(expiry, now);
        let over = Over { block: None, floor };
        let Ok(appended) = self.log.append(&tombstone, key.hash, hash, group, over) else { return false };
        self.note_forgotten(key, appended.location);
        count(&self.counters.tombstone_bytes, tombstone.len() as u64);
        true
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use moneta_store::request::{Exptime, Write};
    use moneta_store::steps::finish;
    use moneta_store::{Calls, Clock, Store};

    use super::*;
    use crate::config::FlashConfig;
    use crate::engine::Flash;
    use moneta_device::DeviceConfig;
    use moneta_device::io::testing::MemoryMedia;

    #[test]
    fn what_is_stored_before_a_tombstone_is_paid_does_not_go_before_the_old_record() {
        let config = FlashConfig {
            region_bytes: 256 << 10,
            item_max: 48 << 10,
            flush_interval: Duration::from_secs(3600),
            ..FlashConfig::new(vec![DeviceConfig { path: "unused".into(), bytes: 0 }])
        };
        let media = MemoryMedia::new((1 << 20) + 20 * (256 << 10));
        let flash = Flash::open_on(vec![media as _], &config, Arc::new(Clock::manual(1_000_000_000))).unwrap();
        let (key, inner) = (Key::new(b"key", flash.seed()), &flash.inner);
        let set = |seconds: i64| {
            let request = Write { exptime: Exptime(seconds), ..Write::default() };
            pollster::block_on(finish(flash.set(&key, b"value", &request))).unwrap();
            let (_, location) = inner.shard(key.hash).lock().find(key.hash).expect("it is stored");
            inner.regions.get(inner.regions.region_of(location.block()))
        };
        let old = set(0);
        inner.owe(&key);
        // It dies first. Were its region emptied then, a restart would find the old record.
        let new = set(300);
        assert_ne!(old.sequence(), new.sequence());
        assert!(inner.pay());
        assert!(inner.shard(key.hash).lock().find(key.hash).is_some(), "the tombstone takes nothing that is newer");
        assert_eq!(new.summary().behind, old.sequence());
        flash.crash();
    }
}
