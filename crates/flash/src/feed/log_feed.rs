//! The engine as a [`Feed`].

use moneta_store::Version;
use moneta_store::feed::{Feed, FeedPlace, Reader, Wanted};

use super::reader::LogReader;
use crate::engine::Flash;

impl Feed for Flash {
    fn end(&self) -> FeedPlace {
        FeedPlace { incarnation: self.inner.devices.tier(), position: self.inner.behind(self.inner.fence()), told: 0 }
    }

    fn since(&self, millis: u64) -> FeedPlace {
        let position = Version::at(millis).local().saturating_sub(1);
        FeedPlace { incarnation: self.inner.devices.tier(), position, told: 0 }
    }

    fn has_more(&self, from: FeedPlace) -> bool {
        from.incarnation != self.inner.devices.tier()
            || self.inner.newest_change() > from.position
            || self.inner.telling.missing() > from.position.max(from.told)
    }

    fn reader(&self, from: FeedPlace, wanted: Wanted) -> Box<dyn Reader> {
        let incarnation = self.inner.devices.tier();
        if from.incarnation == incarnation {
            return Box::new(LogReader::new(&self.inner, from, wanted));
        }
        // Of another tier: all that this one has, after a gap.
        let from = FeedPlace { incarnation, position: 0, told: 0 };
        Box::new(LogReader::from_another(&self.inner, from, wanted))
    }
}
