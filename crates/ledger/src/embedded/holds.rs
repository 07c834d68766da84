//! When holds end. Deadlines are of the monotonic clock and in RAM alone, so a restart gives each hold a full period.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::entry::Hold;
use crate::error::LedgerError;

/// The longest time to live, in seconds: what etcd takes, 9,000,000,000, is no use to a fleet.
const SECONDS_MAX: u64 = 366 * 24 * 60 * 60;

/// A time to live in whole seconds, rounded up; one at least.
pub(crate) fn seconds(ttl: Duration) -> u64 {
    let whole = ttl.as_secs().saturating_add(u64::from(ttl.subsec_nanos() > 0));
    whole.clamp(1, SECONDS_MAX)
}

#[derive(Clone, Copy, Debug)]
struct Term {
    ttl: Duration,
    until: Instant,
    /// Its end is being committed: it cannot be renewed any more.
    is_ending: bool,
}

/// All holds.
#[derive(Debug)]
pub(crate) struct Holds {
    terms: Mutex<HashMap<i64, Term>>,
}

impl Holds {
    /// Holds with their seconds, each for a full period from now on.
    pub(crate) fn new(holds: Vec<(i64, u64)>) -> Self {
        let terms = Self { terms: Mutex::default() };
        holds.into_iter().for_each(|(hold, seconds)| terms.begin(hold, seconds));
        terms
    }

    pub(crate) fn begin(&self, hold: i64, seconds: u64) {
        let ttl = Duration::from_secs(seconds);
        self.terms.lock().insert(hold, Term { ttl, until: Instant::now() + ttl, is_ending: false });
    }

    pub(crate) fn forget(&self, hold: i64) {
        self.terms.lock().remove(&hold);
    }

    pub(crate) fn renew(&self, hold: Hold) -> Result<(), LedgerError> {
        match self.terms.lock().get_mut(&hold.0) {
            Some(term) if !term.is_ending => {
                term.until = Instant::now() + term.ttl;
                Ok(())
            }
            _ => Err(LedgerError::HoldEnded),
        }
    }

    /// Gives each a full period: nobody could renew.
    pub(crate) fn grant_all(&self) {
        let now = Instant::now();
        self.terms.lock().values_mut().for_each(|term| term.until = now + term.ttl);
    }

    /// Those that are to end now; they cannot be renewed from here on.
    pub(crate) fn due(&self) -> Vec<Hold> {
        let now = Instant::now();
        let mut terms = self.terms.lock();
        let due = terms.iter_mut().filter(|(_, term)| term.is_ending || term.until <= now);
        due.map(|(hold, term)| {
            term.is_ending = true;
            Hold(*hold)
        })
        .collect()
    }

    /// When the next ends.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.terms.lock().values().map(|term| term.until).min()
    }
}
