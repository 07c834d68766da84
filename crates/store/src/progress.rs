//! How far a store has come with what it must do before it can serve.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Steps done of all there are; written by the store, read by the admin side.
#[derive(Debug, Default)]
pub struct Progress {
    done: AtomicU64,
    all: AtomicU64,
    /// Milliseconds since the Unix epoch; 0: there is nothing from before.
    kept_until: AtomicU64,
    lost_some: AtomicBool,
}

impl Progress {
    /// There are `all` steps, none of which is done.
    pub fn begin(&self, all: u64) {
        self.done.store(0, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }

    /// So many more steps are done.
    pub fn advance(&self, steps: u64) {
        self.done.fetch_add(steps, Ordering::Relaxed);
    }

    /// The newest that the store has from processes before this one was written at this moment, in milliseconds since the Unix
    /// epoch. `lost_some`: what was written shortly before may be lost.
    pub fn found(&self, newest: u64, lost_some: bool) {
        self.kept_until.store(newest, Ordering::Relaxed);
        self.lost_some.store(lost_some, Ordering::Relaxed);
    }

    /// Whether what was written shortly before [`Progress::kept_until`] may be lost.
    pub fn lost_some(&self) -> bool {
        self.lost_some.load(Ordering::Relaxed)
    }

    /// What [`Progress::found`] said; `None`: the store began empty.
    pub fn kept_until(&self) -> Option<u64> {
        Some(self.kept_until.load(Ordering::Relaxed)).filter(|millis| *millis != 0)
    }

    /// The share that is done, from 0 to 100; `None` while the steps are not counted, or there are none.
    pub fn percent(&self) -> Option<u8> {
        let (done, all) = (self.done.load(Ordering::Relaxed), self.all.load(Ordering::Relaxed));
        let share = u128::from(done) * 100 / u128::from(std::num::NonZeroU64::new(all)?.get());
        Some(share.min(100) as u8)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_known_once_the_steps_are_counted() {
        let progress = Progress::default();
        assert_eq!(progress.percent(), None);
        progress.begin(300);
        assert_eq!(progress.percent(), Some(0));
        progress.advance(129);
        assert_eq!(progress.percent(), Some(43));
        progress.advance(200);
        assert_eq!(progress.percent(), Some(100));
    }
}
