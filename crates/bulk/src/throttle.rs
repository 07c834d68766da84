//! How fast a job goes: bytes and operations a second, of all its sources together.
//!
//! A bound on changes that are followed gives way while they come faster: behind it a reader falls back until the source has forgotten
//! what it is to be told, and a job that waits for a moment of the source would not end. [`Throttle::keep_up`] is the rule.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_feed::Pace;

/// Longest pause before it is looked whether the bound is another, or the job is over.
const LOOKS_EVERY: Duration = Duration::from_millis(200);
/// By how much the bound of changes rises and falls at once.
const STEP: f64 = 1.5;
/// How often it is looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// The part of the time that a reader waited for the bound from which on that is what holds it.
const HELD: f64 = 0.8;
/// The part below which the bound may fall.
const FREE: f64 = 0.4;
/// How much of the source's time a reader that is held passes in a second of its own, at least.
const ADVANCE: f64 = 2.0;
/// How long after a rise the bound does not fall: several sources may share it.
const RAISED: Duration = Duration::from_secs(10);

/// Bounds of a job. Clones share them.
#[derive(Clone, Debug)]
pub struct Throttle(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// There is a bound: else no change need look at a clock.
    is_bound: AtomicBool,
    paces: Mutex<Paces>,
}

#[derive(Debug)]
struct Paces {
    bytes: Pace,
    operations: Pace,
    /// As they were set; 0: none.
    bounds: (u64, u64),
    /// What they are multiplied by, 1 at least.
    factor: f64,
    raised: Option<Instant>,
}

impl Paces {
    fn apply(&mut self, now: Instant) {
        let bound = |bound: u64| if bound == 0 { 0 } else { ((bound as f64 * self.factor) as u64).max(1) };
        let (bytes, operations) = (bound(self.bounds.0), bound(self.bounds.1));
        self.bytes.set(bytes, now);
        self.operations.set(operations, now);
    }
}

/// How far a reader of changes has come since it was looked at last.
#[derive(Debug)]
pub(crate) struct Advance {
    since: Instant,
    /// The source's watermark then, Unix milliseconds.
    watermark: u64,
    /// How long it has waited for the bound since.
    held: Duration,
}

impl Advance {
    /// It begins at this watermark.
    pub(crate) fn from(watermark: u64, now: Instant) -> Self {
        Self { since: now, watermark, held: Duration::ZERO }
    }

    /// It has waited for the bound.
    pub(crate) fn held(&mut self, waited: Duration) {
        self.held += waited;
    }
}

impl Throttle {
    /// At most so many bytes of keys and values, and so many changes, a second; 0: as many as it goes.
    pub fn of(bytes: u64, operations: u64) -> Self {
        let paces = Paces {
            bytes: Pace::of(bytes),
            operations: Pace::of(operations),
            bounds: (bytes, operations),
            factor: 1.0,
            raised: None,
        };
        let is_bound = AtomicBool::new(bytes > 0 || operations > 0);
        Self(Arc::new(Shared { is_bound, paces: Mutex::new(paces) }))
    }

    fn paces(&self) -> MutexGuard<'_, Paces> {
        self.0.paces.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_bound(&self) -> bool {
        self.0.is_bound.load(Ordering::Relaxed)
    }

    /// Other bounds from now on.
    pub fn set(&self, bytes: u64, operations: u64) {
        let mut paces = self.paces();
        self.0.is_bound.store(bytes > 0 || operations > 0, Ordering::Relaxed);
        paces.bounds = (bytes, operations);
        paces.apply(Instant::now());
    }

    /// So many changes of so many bytes together have gone.
    pub fn sent(&self, changes: u64, bytes: u64) {
        if !self.is_bound() {
            return;
        }
        let now = Instant::now();
        let mut paces = self.paces();
        paces.bytes.sent(bytes, now);
        paces.operations.sent(changes, now);
    }

    /// How long no other is to go.
    pub fn left(&self) -> Duration {
        if !self.is_bound() {
            return Duration::ZERO;
        }
        let now = Instant::now();
        let mut paces = self.paces();
        paces.bytes.left(now).max(paces.operations.left(now))
    }

    /// Waits until others may go, or `is_over` says that none will.
    pub fn wait(&self, is_over: impl Fn() -> bool) {
        loop {
            let left = self.left();
            if left.is_zero() || is_over() {
                return;
            }
            sleep(left.min(LOOKS_EVERY));
        }
    }

    /// How many changes at once keep to the bound, of `most`: a fifth of a second of them.
    pub fn batch(&self, most: usize) -> usize {
        match self.paces().bounds.1 {
            0 => most,
            operations => usize::try_from(operations / 5).map_or(most, |batch| batch.clamp(1, most)),
        }
    }

    /// A reader of changes has come to this watermark: raises the bound if that is what holds it back while it passes less than two
    /// seconds of the source's time in one, and lowers it again, to what was set at least, once it has half of that to spare. Tells
    /// whether it was raised.
    pub(crate) fn keep_up(&self, advance: &mut Advance, watermark: u64, now: Instant) -> bool {
        let passed = now.saturating_duration_since(advance.since);
        if watermark == 0 || passed < LOOK_EVERY {
            return false;
        }
        let of_source = watermark.saturating_sub(advance.watermark) as f64 / 1000.0;
        let (held, speed) = (advance.held.as_secs_f64() / passed.as_secs_f64(), of_source / passed.as_secs_f64());
        let is_first = advance.watermark == 0;
        *advance = Advance::from(watermark, now);
        let mut paces = self.paces();
        if held > HELD && speed < ADVANCE && !is_first {
            paces.factor *= STEP;
            paces.raised = Some(now);
            paces.apply(now);
            return true;
        }
        let may_fall = paces.raised.is_some_and(|raised| now.saturating_duration_since(raised) >= RAISED);
        if held < FREE && paces.factor > 1.0 && may_fall {
            paces.factor = (paces.factor / STEP).max(1.0);
            paces.apply(now);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// A reader of changes that come at `writes` bytes a second; `behind`: seconds of them that wait for it. Returns how far behind it is
    /// after so many seconds, and the factor.
    fn follow(throttle: &Throttle, bound: f64, writes: f64, behind: f64, seconds: u32) -> (f64, f64) {
        let begun = Instant::now();
        let (mut backlog, mut watermark) = (behind * writes, 1_000_000.0);
        let mut advance = Advance::from(watermark as u64, begun);
        let mut factor = throttle.paces().factor;
        for second in 1..=seconds {
            let most = bound * factor;
            let taken = most.min(backlog + writes);
            backlog += writes - taken;
            watermark += taken / writes * 1000.0;
            advance.held(SECOND.mul_f64(taken / most));
            throttle.keep_up(&mut advance, watermark as u64, begun + second * SECOND);
            factor = throttle.paces().factor;
        }
        (backlog / writes, factor)
    }

    #[test]
    fn changes_that_come_faster_than_the_bound_are_caught_up_with_in_less_time_than_they_took() {
        let throttle = Throttle::of(1_000, 0);
        let (behind, factor) = follow(&throttle, 1_000.0, 10_000.0, 100.0, 60);
        assert!(behind < 50.0, "{behind} s behind");
        assert!((20.0..50.0).contains(&factor), "no faster than it must: {factor}");
        let (behind, factor) = follow(&throttle, 1_000.0, 10_000.0, behind, 60);
        assert!(behind < 1.0, "{behind} s behind");
        assert!(factor < 40.0);
    }

    #[test]
    fn a_bound_that_is_enough_stays_and_one_that_was_raised_falls_again() {
        let throttle = Throttle::of(1_000, 0);
        assert_eq!(follow(&throttle, 1_000.0, 100.0, 5.0, 60), (0.0, 1.0));
        throttle.paces().factor = 9.0;
        throttle.paces().raised = Some(Instant::now());
        assert_eq!(follow(&throttle, 1_000.0, 100.0, 0.0, 60).1, 1.0);
        // What was set is what it is a multiple of.
        throttle.paces().factor = 3.0;
        throttle.set(2_000, 7);
        throttle.sent(1, 6_000);
        assert!((900..=1_000).contains(&throttle.left().as_millis()), "{:?}", throttle.left());
    }
}
