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

    /// Of a region that is read in part, its part of the region's time.
    fn behind(&self, from: FeedPlace) -> u64 {
        let position = if from.incarnation == self.inner.devices.tier() { from.position } else { 0 };
        let left = self.inner.regions.iter().filter(|(_, region)| region.sequence() > 0 && !region.is_carried());
        left.map(|(_, region)| {
            let (base, last) = (Version(region.base()).local(), Version(region.summary().last).local());
            let (span, after) = (last.saturating_sub(base).max(1), last.saturating_sub(position));
            let records = u64::from(region.records());
            if after >= span { records } else { (u128::from(records) * u128::from(after)).div_ceil(span.into()) as u64 }
        })
        .sum()
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
