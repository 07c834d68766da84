//! The flushes that are known, as versions: below the bound everything is gone.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::Version;
use moneta_store::versions::{Floor, Floors};
use parking_lot::Mutex;

use moneta_device::devices::TierState;

/// The flushes that are known.
#[derive(Debug)]
pub(crate) struct KnownFloors {
    // Held for a comparison.
    all: Mutex<(Floors, u32)>,
    /// Of the flushes that took effect, for readers.
    bound: AtomicU64,
}

impl KnownFloors {
    /// Those that the tier knew when it was stopped.
    pub(crate) fn new(state: &TierState, now: u32) -> Self {
        let last = Floor { version: Version(state.floor_version), second: state.floor_from };
        let pending = Some(last).filter(|last| last.version > Version::ZERO && last.waits(now));
        let bound = Version(state.floor_bound);
        let bound = if pending.is_some() { bound } else { bound.max(last.bound()) };
        let second = pending.map_or(0, |pending| pending.second);
        let floors = Floors { bound, newest: last.version, pending, before: bound, second };
        Self { all: Mutex::new((floors, last.second)), bound: AtomicU64::new(bound.0) }
    }

    pub(crate) fn known(&self) -> Floors {
        self.all.lock().0
    }

    /// What superblocks say of them: version and second of the last one, and the bound.
    pub(crate) fn saved(&self) -> (u64, u32, u64) {
        let (floors, second) = *self.all.lock();
        (floors.newest.0, second, floors.bound.0)
    }

    /// Everything older is gone.
    #[inline]
    pub(crate) fn bound(&self) -> Version {
        Version(self.bound.load(Ordering::Acquire))
    }

    /// Takes note of a flush. False if a later one is known.
    pub(crate) fn note(&self, floor: Floor, now: u32) -> bool {
        let mut all = self.all.lock();
        let is_new = all.0.note(floor, now);
        if is_new {
            all.1 = floor.second;
            self.bound.store(all.0.bound.0, Ordering::Release);
        }
        is_new
    }

    /// Lets take effect what is to.
    pub(crate) fn settle(&self, now: u32) {
        let mut all = self.all.lock();
        all.0.settle(now);
        self.bound.store(all.0.bound.0, Ordering::Release);
    }
}
