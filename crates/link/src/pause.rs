//! Pauses before another try: each twice as long as the one before, with jitter, so that what failed for all at once is not asked
//! again by all at once.

use std::time::Duration;

/// The pauses of one thing that is tried.
#[derive(Debug)]
pub(crate) struct Pauses {
    first: Duration,
    max: Duration,
    next: Duration,
}

impl Pauses {
    /// Pauses from `first` to `max`.
    pub(crate) fn new(first: Duration, max: Duration) -> Self {
        Self { first, max, next: first }
    }

    /// It has worked.
    pub(crate) fn reset(&mut self) {
        self.next = self.first;
    }

    /// The next pause: from half of its length to all of it.
    pub(crate) fn next(&mut self) -> Duration {
        let pause = self.next;
        self.next = (2 * pause).min(self.max);
        jittered(pause)
    }
}

/// From half of `pause` to all of it.
pub(crate) fn jittered(pause: Duration) -> Duration {
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_bound_and_begin_again() {
        let second = Duration::from_secs(1);
        let mut pauses = Pauses::new(second, 5 * second);
        for (at_least, at_most) in [(500, 1000), (1000, 2000), (2000, 4000), (2500, 5000), (2500, 5000)] {
            let pause = pauses.next().as_millis();
            assert!((at_least..=at_most).contains(&pause), "{pause} ms");
        }
        pauses.reset();
        assert!(pauses.next() <= second);
    }
}
