//! Fences: up to where a reader of the feed may read.

use moneta_store::Version;

use crate::inner::Inner;

/// Up to where a reader may read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fence {
    /// All appends with a stamp up to this one have ended. The time and counter of a version.
    pub(super) stamp: u64,
    /// When it was drawn, in milliseconds since the Unix epoch.
    pub(super) millis: u64,
    /// Regions from this sequence number on were begun later.
    pub(super) end: u64,
}

impl Inner {
    /// Draws a fence.
    pub(super) fn fence(&self) -> Fence {
        let millis = self.clock.millis();
        // Drawn like the stamp of a write: all later ones are greater, also if the wall clock is set back.
        let stamp = self.log.sequence.next().local();
        // An append takes its stamp and is published under its group's lock: once each lock was free, lower stamps are there.
        let end = self.log.end();
        Fence { stamp, millis, end }
    }

    /// A place after all that was appended before a fence. Not the fence itself: that is on no device, and stamps begin at those
    /// that are, if the clock was set back before a restart.
    pub(super) fn behind(&self, fence: Fence) -> u64 {
        self.newest_change().max(self.telling.missing()).max(self.telling.lost()).min(fence.stamp)
    }

    /// At least the stamp of the newest change.
    pub(super) fn newest_change(&self) -> u64 {
        Version(self.log.newest_stamp()).local().max(self.telling.newest_event())
    }
}
