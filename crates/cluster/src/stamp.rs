//! The clock that stamps the writes of this process.

use moneta_store::{Clock, Lane, Origin, Version, VersionClock};
use parking_lot::Mutex;

/// Makes versions, each above all that were made or seen.
pub(crate) struct Stamps(Mutex<VersionClock>);

impl Stamps {
    /// `salt` differs from process to process.
    pub(crate) fn new(origin: Origin, salt: u64) -> Self {
        Self(Mutex::new(VersionClock::new(origin, Lane::whole(salt))))
    }

    pub(crate) fn next(&self, clock: &Clock) -> Version {
        self.0.lock().next(clock.millis())
    }

    /// All further versions are above this one.
    pub(crate) fn note(&self, seen: Version) {
        self.0.lock().note(seen);
    }

    /// The same for a version that was read: only one ahead of `millis` can matter.
    #[inline]
    pub(crate) fn note_if_ahead(&self, seen: Version, millis: u64) {
        if seen.millis() >= millis {
            self.note(seen);
        }
    }

    /// All further versions are later than this moment, in milliseconds since the Unix epoch.
    pub(crate) fn skip_to(&self, millis: u64) {
        self.note(Version::at(millis));
    }
}
