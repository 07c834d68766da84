//! Entries of the index: which one is evicted when there is no room, and what is remembered about it.

use crate::counters::count;
use crate::index::location::Location;
use crate::index::shard::{Lost, Shard, Worth};
use crate::inner::Inner;

impl Inner {
    /// Makes `location` the index entry of a hash. If the index may not grow, another entry is evicted.
    pub(crate) fn enter(&self, shard: &mut Shard, hash: u64, location: Location) {
        shard.note_floor(self.log.floor());
        if shard.has_flushed()
            && let Some((_, location)) = shard.find(hash)
            && self.log.is_flushed(self.regions.get(self.regions.region_of(location.block())))
        {
            shard.note_replaced();
        }
        shard.put(hash, location, |rival| self.worth(rival), |lost| self.note_lost(lost));
    }

    /// Lowest are flushed and expired entries, then those read least, then those in the oldest region.
    fn worth(&self, location: Location) -> Worth {
        let region = self.regions.get(self.regions.region_of(location.block()));
        if self.log.is_flushed(region) || region.summary().expiry_max <= self.clock.now() {
            return (0, 0);
        }
        (location.hits(), region.sequence())
    }

    /// Remembers an entry that was evicted from the index although its record is still on a device.
    #[cold]
    pub(crate) fn note_lost(&self, lost: Lost) {
        let region = self.regions.get(self.regions.region_of(lost.location.block()));
        if self.log.is_flushed(region) {
            return;
        }
        self.log.forgotten.note_evicted(lost.hash, region.sequence());
        count(&self.counters.evictions, 1);
        count(&self.counters.index_evictions, 1);
        count(&self.counters.evicted_unfetched, u64::from(lost.location.hits() == 0));
    }
}
