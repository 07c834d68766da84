//! The clock that stamps the writes of this process.

use moneta_store::{Clock, Lane, Origin, Version, VersionClock};
use parking_lot::Mutex;

/// Makes versions, each above all that were made or seen.
pub(crate) struct Stamps {
    clock: Mutex<VersionClock>,
    origin: Origin,
    salt: u64,
}

impl Stamps {
    /// `salt` differs from process to process.
    pub(crate) fn new(origin: Origin, salt: u64) -> Self {
        Self { clock: Mutex::new(VersionClock::new(origin, Lane::whole(salt))), origin, salt }
    }

    /// Begins again at the present: what was made was so far ahead that nodes have refused it.
    pub(crate) fn begin_again(&self) {
        *self.clock.lock() = VersionClock::new(self.origin, Lane::whole(self.salt));
    }

    pub(crate) fn next(&self, clock: &Clock) -> Version {
        self.clock.lock().next(clock.millis())
    }

    /// All further versions are above this one.
    pub(crate) fn note(&self, seen: Version) {
        self.clock.lock().note(seen);
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
