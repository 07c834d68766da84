//! Removes many index entries while requests use the index: a few buckets at a time, each time under the shard's lock.
//!
//! A flush is complete when its floor is raised and written to the superblocks: [`Inner::find`] ignores entries below. The
//! reclaimer removes these entries and frees the regions afterwards.

use parking_lot::{Mutex, MutexGuard};

use crate::index::location::Location;
use crate::index::shard::{Lost, Shard};
use crate::inner::Inner;
use crate::log::writer::REGIONS_LEAST;

/// Classes of buckets swept under one lock: 128 to 256 buckets of eight entries, tens of microseconds.
const STEP: usize = 128;

/// How a sweep ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swept {
    /// It is complete; the number of removed entries.
    All(u64),
    /// It was stopped.
    Stopped,
}

/// Removes the entries of a shard for which `goes` is true, and gives memory back if the index is then sparse. Entries that no
/// longer fit are evicted and passed to `lost`. `removed` gets the number removed in each step, under the same lock. Stops as
/// soon as `may_go_on` returns false.
pub(crate) fn sweep(
    shard: &Mutex<Shard>,
    goes: impl Fn(Location) -> bool,
    removed: impl Fn(&mut Shard, usize),
    mut lost: impl FnMut(Lost),
    may_go_on: impl Fn() -> bool,
) -> Swept {
    let walk = shard.lock().index.begin_walk();
    let (mut gone, mut swept, mut more) = (Vec::new(), 0, true);
    while more {
        if !may_go_on() {
            return Swept::Stopped;
        }
        let mut shard = shard.lock();
        for _ in 0..STEP {
            more = more
                && shard.index.walk(&walk, |position, payload| {
                    if goes(Location(payload)) {
                        gone.push(position);
                    }
                });
        }
        swept += gone.len() as u64;
        removed(&mut shard, gone.len());
        gone.drain(..).for_each(|position| shard.index.remove(position));
        // Hand the lock to a waiting thread, if there is one.
        MutexGuard::unlock_fair(shard);
    }
    drop(walk);
    while may_go_on() {
        let mut shard = shard.lock();
        if !shard.shrink(&mut lost) {
            break;
        }
        MutexGuard::unlock_fair(shard);
    }
    Swept::All(swept)
}

impl Inner {
    /// Removes flushed entries from the index and frees their regions. Leaves them to a later call if `may_go_on` returns false.
    pub(crate) fn sweep_flushed(&self, may_go_on: impl Fn() -> bool) {
        let regions = self.reclaim.take_flushed();
        if regions.is_empty() {
            return;
        }
        // At least the floor that flushed these regions; a later flush is swept in its own turn.
        let floor = self.log.floor();
        let goes = |location: Location| self.regions.get(self.regions.region_of(location.block())).sequence() < floor;
        for shard in self.shards() {
            shard.lock().note_floor(floor);
            if sweep(shard, goes, Shard::note_removed, |lost| self.note_lost(lost), &may_go_on) == Swept::Stopped {
                return self.reclaim.leave_flushed(regions);
            }
            shard.lock().note_swept(floor);
        }
        for region in regions {
            if self.regions.get(region).is_bad() {
                self.retire_flushed(region);
                continue;
            }
            self.regions.get(region).end();
            self.regions.give_back(region);
        }
        self.log.queue.note_room();
    }

    /// Takes a region with a bad block out of use, of which a flush has taken all.
    fn retire_flushed(&self, region: usize) {
        self.regions.retire(region);
        match self.devices.retire(region) {
            Ok(()) => tracing::error!(region, "a region has a bad block: it is in use no more"),
            Err(error) => tracing::error!(region, %error, "it cannot be written down that a region is bad"),
        }
        if self.regions.usable() < REGIONS_LEAST {
            self.log.queue.wear_out();
        }
    }
}
