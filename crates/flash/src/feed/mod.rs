//! The feed: the log, read in the order of appending.
//!
//! ```text
//!  place ──▶ stamp ──────────────────▶ fence
//!            records of up to a few     all that was appended before the
//!            regions, merged by stamp   fence was drawn is below it
//! ```
//!
//! Every record has a stamp, and stamps grow with the appends of all open regions together. So a place in the feed is a stamp,
//! and it means the same before and after a restart. A reader draws a *fence*: a stamp below which no append is still under
//! way. Up to it the reader merges the records of the regions that it has not read, from RAM or from the device, in the order of
//! their stamps. Writers do nothing for readers, and a reader keeps copies of what it reads, never a region's buffer.
//!
//! What is not in the log, or not any more, is one number: the stamp up to which changes may be missing ([`Telling`]). A reader
//! that comes from below it is told of a gap.
//!
//! Carried-forward records are no changes. A region that has nothing else is passed over, unless the reader was told of a gap or
//! begins at the start: what it lacks may be among them.

mod ahead;
mod gaps;
mod reader;
mod stream;
mod telling;

use moneta_store::Version;
use moneta_store::feed::{Feed, Place, Reader, Wanted};

use crate::engine::Flash;
use crate::inner::Inner;
pub(crate) use telling::Telling;

/// Bytes read from a device at once, unless a record is larger.
const WINDOW: usize = 1 << 20;

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

    /// A place behind all that was appended before a fence. Not the fence itself: that is on no device, and stamps begin at those
    /// that are, if the clock was set back before a restart.
    fn behind(&self, fence: Fence) -> u64 {
        self.newest_change().max(self.telling.missing()).max(self.telling.lost()).min(fence.stamp)
    }

    /// At least the stamp of the newest change.
    fn newest_change(&self) -> u64 {
        Version(self.log.newest_stamp()).local().max(self.telling.newest_event())
    }
}

impl Feed for Flash {
    fn end(&self) -> Place {
        Place { incarnation: self.inner.devices.tier(), position: self.inner.behind(self.inner.fence()), told: 0 }
    }

    fn since(&self, millis: u64) -> Place {
        let position = Version::at(millis).local().saturating_sub(1);
        Place { incarnation: self.inner.devices.tier(), position, told: 0 }
    }

    fn has_more(&self, from: Place) -> bool {
        from.incarnation != self.inner.devices.tier()
            || self.inner.newest_change() > from.position
            || self.inner.telling.missing() > from.position.max(from.told)
    }

    fn reader(&self, from: Place, wanted: Wanted) -> Box<dyn Reader> {
        let incarnation = self.inner.devices.tier();
        // Of another tier: all that this one has, behind a gap.
        let from = if from.incarnation == incarnation { from } else { Place { incarnation, position: 0, told: 0 } };
        Box::new(reader::LogReader::new(&self.inner, from, wanted))
    }
}
