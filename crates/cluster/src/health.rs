//! Whether a node is asked: that it takes no connection ejects it, that it leaves a probe unanswered after failures in a row, or
//! that it is far slower than others, and a probe that it answers takes it back.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use crate::config::ClusterConfig;
use crate::sources::Advice;

/// What is known of a node's health. All threads share it.
#[derive(Debug, Default)]
pub(crate) struct NodeHealth {
    /// Failures since the last answer.
    failures: AtomicU32,
    /// It failed so often in a row that it is to be asked whether it is there.
    suspected: AtomicBool,
    /// It was ejected since it takes no connection.
    away: AtomicBool,
    /// When it is probed next, in milliseconds since the Unix epoch; 0: it is not ejected.
    probe_at: AtomicU64,
    /// Probes in a row that failed.
    probes: AtomicU32,
    /// When it was ejected last, in milliseconds since the Unix epoch.
    ejected_at: AtomicU64,
    /// Times that it was ejected.
    pub(crate) ejections: AtomicU64,
    /// Of these, since it was slow.
    pub(crate) slow_ejections: AtomicU64,
    /// How long a probe may take to bring it back, in microseconds; 0: it was not ejected for being slow.
    slow_limit: AtomicU64,
    /// When it was taken back last, in milliseconds since the Unix epoch.
    reinstated_at: AtomicU64,
    /// Times in a row that it was slow again soon after it was taken back.
    relapses: AtomicU32,
    /// Until when it is asked last, since it said that it catches up with other copies; in milliseconds since the Unix epoch.
    behind_until: AtomicU64,
    /// Until when reads ask it last, since a source of topologies says that it leaves; in milliseconds since the Unix epoch.
    leaving_until: AtomicU64,
    /// A source of topologies has said something of it.
    is_advised: AtomicBool,
    /// When it was looked after by advice last, in milliseconds since the Unix epoch.
    looked_at: AtomicU64,
}

/// How long it is believed that a node leaves, unless it is said again, in milliseconds.
const LEAVING: u64 = 15_000;
/// Advice has a node asked once in this time at most, in milliseconds.
const LOOK_PAUSE: u64 = 1_000;

/// How long a node that catches up is not asked again first, in milliseconds.
const BEHIND: u64 = 500;
/// A node that is slow again so soon after it was taken back is probed later than before, in milliseconds: its probes do not show
/// what makes it slow.
const RELAPSE: u64 = 60_000;

/// The longest pause between two probes, in milliseconds.
const LONGEST: u64 = ClusterConfig::PROBE_MAX.as_millis() as u64;

/// The pauses between probes: the first one and the longest one, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probes {
    pub(crate) min: u64,
    pub(crate) max: u64,
}

impl Probes {
    /// The pause after so many probes: each is half as long again as the one before.
    fn pause(self, probes: u32) -> u64 {
        let pause = self.min as f64 * 1.5f64.powi(probes.min(64).cast_signed());
        (pause.min(self.max as f64) as u64).max(1)
    }
}

impl NodeHealth {
    #[inline]
    pub(crate) fn is_ejected(&self) -> bool {
        self.probe_at.load(Ordering::Relaxed) != 0
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures.load(Ordering::Relaxed)
    }

    /// It answered.
    #[inline]
    pub(crate) fn note_answer(&self) {
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.failures.store(0, Ordering::Relaxed);
        }
    }

    /// It is to be asked whether it is there.
    pub(crate) fn suspect(&self) {
        self.suspected.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_suspected(&self) -> bool {
        self.suspected.load(Ordering::Relaxed)
    }

    /// It is there.
    pub(crate) fn clear(&self) {
        self.suspected.store(false, Ordering::Relaxed);
        self.note_answer();
    }

    /// Ejects it at `now`, since it takes no connection. False if it is ejected already.
    pub(crate) fn eject_away(&self, now: u64, pauses: Probes) -> bool {
        self.away.store(true, Ordering::Relaxed);
        self.eject(now, pauses)
    }

    /// It takes connections at `now`: if it was ejected for taking none, it is probed now.
    pub(crate) fn note_connected(&self, now: u64) {
        if self.away.load(Ordering::Relaxed) {
            self.away.store(false, Ordering::Relaxed);
            self.probe_by(now);
        }
    }

    /// It said at `now` that what it holds may be old.
    pub(crate) fn note_behind(&self, now: u64) {
        self.behind_until.store(now + BEHIND, Ordering::Relaxed);
    }

    /// Whether what it holds may be old at `now`, as far as it has said lately.
    #[inline]
    pub(crate) fn is_behind(&self, now: u64) -> bool {
        let until = self.behind_until.load(Ordering::Relaxed);
        // Much later than that only where the clock has gone back.
        until > now && until - now <= 2 * BEHIND
    }

    /// A source of topologies has said at `now` what it thinks of the node. That decides nothing but the order of reads: the node
    /// is asked whether it is there, and what it answers counts.
    pub(crate) fn advise(&self, advice: Option<Advice>, now: u64) {
        let until = if advice == Some(Advice::Leaving) { now + LEAVING } else { 0 };
        self.leaving_until.store(until, Ordering::Relaxed);
        let was_advised = self.is_advised.swap(advice.is_some(), Ordering::Relaxed);
        let is_to_look = match advice {
            Some(Advice::Leaving) => false,
            Some(Advice::Away) => !self.is_ejected(),
            None => was_advised && self.is_ejected(),
        };
        if !is_to_look || now.abs_diff(self.looked_at.load(Ordering::Relaxed)) < LOOK_PAUSE {
            return;
        }
        self.looked_at.store(now, Ordering::Relaxed);
        if self.is_ejected() { self.probe_by(now) } else { self.suspect() }
    }

    /// Whether a source has said lately that it leaves.
    #[inline]
    pub(crate) fn is_leaving(&self, now: u64) -> bool {
        let until = self.leaving_until.load(Ordering::Relaxed);
        // Much later than that only where the clock has gone back.
        until > now && until - now <= 2 * LEAVING
    }

    /// It failed; tells how often in a row.
    pub(crate) fn note_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Since when it is ejected.
    pub(crate) fn ejected_since(&self) -> Option<u64> {
        self.is_ejected().then(|| self.ejected_at.load(Ordering::Relaxed))
    }

    /// Ejects it at `now`, since it fails. False if it is ejected already.
    pub(crate) fn eject(&self, now: u64, pauses: Probes) -> bool {
        self.eject_after(now, pauses, 0)
    }

    /// Ejects it at `now`, since it is slow: a probe that takes longer than `limit` does not bring it back. False if it is
    /// ejected already.
    pub(crate) fn eject_slow(&self, now: u64, pauses: Probes, limit: Duration) -> bool {
        let is_soon = now.saturating_sub(self.reinstated_at.load(Ordering::Relaxed)) < RELAPSE;
        let relapses = if is_soon { self.relapses.load(Ordering::Relaxed).saturating_add(1) } else { 0 };
        let ejected = self.eject_after(now, pauses, relapses);
        if ejected {
            self.relapses.store(relapses, Ordering::Relaxed);
            self.slow_ejections.fetch_add(1, Ordering::Relaxed);
            let limit = u64::try_from(limit.as_micros()).unwrap_or(u64::MAX);
            self.slow_limit.store(limit.max(1), Ordering::Relaxed);
        }
        ejected
    }

    /// How fast it has to answer a probe, if it was ejected for being slow.
    pub(crate) fn slow_limit(&self) -> Option<Duration> {
        let limit = self.slow_limit.load(Ordering::Relaxed);
        (limit != 0 && self.is_ejected()).then(|| Duration::from_micros(limit))
    }

    /// Ejects it, as if `probes` had failed already.
    fn eject_after(&self, now: u64, pauses: Probes, probes: u32) -> bool {
        let probe_at = now + pauses.pause(probes);
        let ejected = self.probe_at.compare_exchange(0, probe_at, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ejected {
            self.slow_limit.store(0, Ordering::Relaxed);
            self.suspected.store(false, Ordering::Relaxed);
            self.ejected_at.store(now, Ordering::Relaxed);
            self.probes.store(probes, Ordering::Relaxed);
            self.ejections.fetch_add(1, Ordering::Relaxed);
        }
        ejected
    }

    /// Whether it is to be probed at `now`. No pause is longer than the longest: where one seems to be, the clock has gone back.
    pub(crate) fn wants_probe(&self, now: u64) -> bool {
        let probe_at = self.probe_at.load(Ordering::Relaxed);
        probe_at != 0 && (probe_at <= now || probe_at > now.saturating_add(LONGEST))
    }

    /// If it is ejected, it is probed at `now`, unless that is to be earlier. Where that probe fails, the pause after it is no
    /// longer than the one before.
    pub(crate) fn probe_by(&self, now: u64) {
        let earlier = |probe_at: u64| (probe_at > now).then_some(now.max(1));
        if self.probe_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier).is_ok() {
            let one_less = |probes: u32| probes.checked_sub(1);
            let _ = self.probes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
    }

    /// A probe failed at `now`: the next one comes after half as long again.
    pub(crate) fn note_failed_probe(&self, now: u64, pauses: Probes) {
        let probes = self.probes.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        self.probe_at.store(now + pauses.pause(probes), Ordering::Relaxed);
    }

    /// It is asked again from `now` on.
    pub(crate) fn reinstate(&self, now: u64) {
        self.failures.store(0, Ordering::Relaxed);
        self.suspected.store(false, Ordering::Relaxed);
        self.reinstated_at.store(now, Ordering::Relaxed);
        self.probe_at.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSES: Probes = Probes { min: 1000, max: 60_000 };

    #[test]
    fn a_node_that_is_slow_again_soon_is_probed_later_each_time() {
        let health = NodeHealth::default();
        let limit = Duration::from_millis(100);
        let mut now = 1_000_000;
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert!(health.eject_slow(now, PAUSES, limit) && !health.eject(now, PAUSES));
            assert_eq!(health.slow_limit(), Some(limit));
            pauses.push(health.probe_at.load(Ordering::Relaxed) - now);
            now += pauses.last().expect("it was pushed");
            health.reinstate(now);
            assert_eq!(health.slow_limit(), None);
            now += RELAPSE - 1;
        }
        assert_eq!((&pauses[..3], pauses.last()), (&[1000, 1500, 2250][..], Some(&60_000)));
        assert!(health.eject_slow(now + 1, PAUSES, limit));
        assert_eq!(health.probe_at.load(Ordering::Relaxed), now + 1001, "it was well for long");
        assert_eq!(health.slow_ejections.load(Ordering::Relaxed), 21);
    }

    #[test]
    fn probes_that_come_early_make_pauses_no_longer() {
        let health = NodeHealth::default();
        assert!(health.eject(0, PAUSES));
        health.note_failed_probe(1000, PAUSES);
        for now in (1100..3000).step_by(100) {
            health.probe_by(now);
            assert!(health.wants_probe(now));
            health.note_failed_probe(now, PAUSES);
            assert_eq!(health.probe_at.load(Ordering::Relaxed), now + 1500);
        }
    }

    #[test]
    fn a_clock_that_goes_back_keeps_no_node_away() {
        let health = NodeHealth::default();
        let hour = 3_600_000;
        assert!(health.eject(10 * hour, PAUSES));
        assert!(!health.wants_probe(10 * hour));
        assert!(health.wants_probe(9 * hour), "no pause is so long");
        health.note_failed_probe(9 * hour, PAUSES);
        assert!(!health.wants_probe(9 * hour) && health.wants_probe(9 * hour + 1500));
        health.note_behind(10 * hour);
        assert!(health.is_behind(10 * hour) && !health.is_behind(9 * hour) && !health.is_behind(10 * hour + BEHIND));
    }

    #[test]
    fn advice_has_a_node_asked_and_decides_nothing() {
        let health = NodeHealth::default();
        health.advise(Some(Advice::Leaving), 10_000);
        assert!(health.is_leaving(10_000) && !health.is_ejected() && !health.is_suspected());
        assert!(!health.is_leaving(10_000 + LEAVING), "it was not said again");
        health.advise(None, 11_000);
        assert!(!health.is_leaving(11_000));
        health.advise(Some(Advice::Away), 12_000);
        assert!(health.is_suspected() && !health.is_ejected(), "it is asked first");
        health.clear();
        health.advise(Some(Advice::Away), 12_000 + LOOK_PAUSE - 1);
        assert!(!health.is_suspected(), "not so often");
        assert!(health.eject(20_000, PAUSES));
        health.advise(Some(Advice::Away), 20_000);
        assert!(!health.wants_probe(20_001), "what is known needs no haste");
        health.advise(None, 20_001);
        assert!(health.wants_probe(20_001), "it is said to be back");
    }

    #[test]
    fn probes_come_at_growing_pauses_until_one_is_answered() {
        let health = NodeHealth::default();
        assert!(!health.is_ejected() && !health.wants_probe(u64::MAX));
        assert_eq!((health.note_failure(), health.note_failure()), (1, 2));
        assert!(health.eject(0, PAUSES) && !health.eject(0, PAUSES));
        assert_eq!(health.slow_limit(), None);
        let mut now = 1000;
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert!(health.is_ejected() && !health.wants_probe(now - 1) && health.wants_probe(now));
            health.note_failed_probe(now, PAUSES);
            let next = health.probe_at.load(Ordering::Relaxed);
            pauses.push(next - now);
            now = next;
        }
        assert_eq!(&pauses[..3], &[1500, 2250, 3375]);
        assert_eq!(pauses.last(), Some(&60_000));
        health.probe_by(now - 1);
        assert!(health.wants_probe(now - 1), "another node is back: this one may be, too");
        health.reinstate(now);
        health.probe_by(now);
        assert!(!health.is_ejected());
        assert_eq!((health.failures(), health.ejections.load(Ordering::Relaxed)), (0, 1));
    }
}
