//! Taking many entries out of the index while requests use it: a few buckets at a time, each time under the shard's lock.
//!
//! A flush is over when its floor is raised and written down: [`Inner::find`] shows nothing of what lies below. Its entries and
//! regions are cleaned up afterwards, by the reclaimer, however many they are.

use parking_lot::{Mutex, MutexGuard};

use crate::engine::Inner;
use crate::location::Location;
use crate::shard::{Lost, Shard};

/// Classes of buckets that are swept under one lock: 128 to 256 buckets of eight entries, some ten microseconds.
const STEP: usize = 128;

/// What a sweep was told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Swept {
    /// It came to the end, and so many entries went.
    All(u64),
    /// It was stopped.
    Stopped,
}

/// Removes the entries of a shard whose location `goes`, and gives back memory if that leaves much of it empty. Entries for
/// which there is no room in less memory go too, and are told to `lost`. `removed` is told how many go in a step, under the lock under
/// which they go. Stops as soon as `may_go_on` says so.
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
        // To who waits for the lock, if anybody does.
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
    /// Takes out of the index what flushes have taken, and frees their regions. Leaves them to a later call if `may_go_on`
    /// says so.
    pub(crate) fn sweep_flushed(&self, may_go_on: impl Fn() -> bool) {
        let regions = self.reclaim.take_flushed();
        if regions.is_empty() {
            return;
        }
        // Not lower than what took these regions; what a later flush takes is swept for that one.
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
            self.regions.get(region).end();
            self.regions.give_back(region);
        }
        self.log.queue.note_room();
    }
}
