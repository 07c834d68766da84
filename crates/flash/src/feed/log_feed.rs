//! The engine as a [`Feed`].

use moneta_store::Version;
use moneta_store::feed::{Feed, Place, Reader, Wanted};

use super::reader::LogReader;
use crate::engine::Flash;

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
        if from.incarnation == incarnation {
            return Box::new(LogReader::new(&self.inner, from, wanted));
        }
        // Of another tier: all that this one has, after a gap.
        let from = Place { incarnation, position: 0, told: 0 };
        Box::new(LogReader::from_another(&self.inner, from, wanted))
    }
}
