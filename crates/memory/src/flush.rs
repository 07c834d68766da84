//! Flushes: a bound below which every version is gone.

use moneta_store::Expiry;
use moneta_store::versions::Floor;

use crate::engine::WALK_CLASSES;
use crate::shard::{Found, Shard, location_of};

impl Shard {
    /// Drops everything that is here at `moment`, where CAS values are no versions: there is nothing that could come from
    /// elsewhere.
    pub(crate) fn flush_all(&mut self, moment: Expiry) {
        let now = self.settle();
        if moment.0 > now {
            self.flush_at = moment.0;
        } else {
            self.flush_at = u32::MAX;
            self.clear();
        }
    }

    /// Takes a flush that a client commanded here, to take effect at `moment`. Tells what other copies are told of it.
    pub(crate) fn flush(&mut self, moment: Expiry) -> Floor {
        let now = self.settle();
        let floor = Floor::new(self.next_version(), moment, now);
        self.floor(floor);
        floor
    }

    /// Takes a flush, unless a later one is known.
    pub(crate) fn floor(&mut self, floor: Floor) {
        let now = self.settle();
        if floor.is_local() {
            self.tombstones.lose_before(self.shared.clock.millis());
            return self.clear();
        }
        let newest = self.newest_version();
        self.note_version(floor.version);
        let bound = self.floors.bound;
        if !self.floors.note(floor, now) {
            return;
        }
        self.flush_at = self.floors.pending.map_or(u32::MAX, |pending| pending.second);
        if self.floors.bound > bound {
            self.take_effect(newest);
        }
    }

    /// The moment of a delayed flush has come.
    #[cold]
    pub(crate) fn fall(&mut self, now: u32) {
        self.flush_at = u32::MAX;
        if self.floors.settle(now) || !self.shared.versioning.cluster {
            self.take_effect(self.newest_version());
        }
    }

    /// On a lone node everything goes that is there. One of several copies keeps what is newer than the flush.
    fn take_effect(&mut self, newest: moneta_store::Version) {
        let bound = self.floors.bound;
        if !self.shared.versioning.cluster || newest.local() <= bound.local() {
            self.clear();
        } else {
            self.flushes += 1;
            self.sweep = Some(self.index.begin_walk());
        }
        self.note_version(bound);
    }

    /// Whether a flush has taken an item that is not swept out yet.
    pub(crate) fn is_flushed(&self, found: &Found) -> bool {
        self.floors.takes(self.version(found))
    }

    /// Sweeps out a piece of what a flush has taken. False at the end. Writes go on with what a delayed flush has begun.
    pub(crate) fn sweep_step(&mut self) -> bool {
        let Some(sweep) = self.sweep.take() else { return false };
        let mut flushed = Vec::new();
        let goes_on = (0..WALK_CLASSES).all(|_| {
            self.index.walk(&sweep, |position, payload| {
                let location = location_of(payload);
                let found = Found { position, location, hits: 0, header: self.segments.header(location) };
                if self.is_flushed(&found) {
                    flushed.push(found);
                }
            })
        });
        flushed.iter().for_each(|found| self.remove(found));
        self.sweep = goes_on.then_some(sweep);
        goes_on
    }
}
