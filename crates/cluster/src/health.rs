//! Whether a node is asked: failures in a row eject it, and a probe that it answers takes it back.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// What is known of a node's health. All threads share it.
#[derive(Debug, Default)]
pub(crate) struct NodeHealth {
    /// Failures since the last answer.
    failures: AtomicU32,
    /// When it is probed next, in milliseconds since the Unix epoch; 0: it is not ejected.
    probe_at: AtomicU64,
    /// Probes in a row that failed.
    probes: AtomicU32,
    /// When it was ejected last, in milliseconds since the Unix epoch.
    ejected_at: AtomicU64,
    /// Times that it was ejected.
    pub(crate) ejections: AtomicU64,
    /// Until when it is asked last, since it said that it catches up with other copies; in milliseconds since the Unix epoch.
    behind_until: AtomicU64,
}

/// How long a node that catches up is not asked again first, in milliseconds.
const BEHIND: u64 = 500;

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

    /// It said at `now` that what it holds may be old.
    pub(crate) fn note_behind(&self, now: u64) {
        self.behind_until.store(now + BEHIND, Ordering::Relaxed);
    }

    /// Whether what it holds may be old at `now`, as far as it has said lately.
    #[inline]
    pub(crate) fn is_behind(&self, now: u64) -> bool {
        self.behind_until.load(Ordering::Relaxed) > now
    }

    /// It failed; tells how often in a row.
    pub(crate) fn note_failure(&self) -> u32 {
        self.failures.fetch_add(1, Ordering::Relaxed).saturating_add(1)
    }

    /// Since when it is ejected.
    pub(crate) fn ejected_since(&self) -> Option<u64> {
        self.is_ejected().then(|| self.ejected_at.load(Ordering::Relaxed))
    }

    /// Ejects it at `now`, with the first probe at `probe_at`. False if it is ejected already.
    pub(crate) fn eject(&self, now: u64, probe_at: u64) -> bool {
        let ejected = self.probe_at.compare_exchange(0, probe_at.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok();
        if ejected {
            self.ejected_at.store(now, Ordering::Relaxed);
            self.probes.store(0, Ordering::Relaxed);
            self.ejections.fetch_add(1, Ordering::Relaxed);
        }
        ejected
    }

    /// Whether it is to be probed at `now`.
    pub(crate) fn wants_probe(&self, now: u64) -> bool {
        let probe_at = self.probe_at.load(Ordering::Relaxed);
        probe_at != 0 && probe_at <= now
    }

    /// If it is ejected, it is probed at `now`, unless that is to be earlier.
    pub(crate) fn probe_by(&self, now: u64) {
        let earlier = |probe_at: u64| (probe_at > now).then_some(now.max(1));
        let _ = self.probe_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, earlier);
    }

    /// A probe failed at `now`: the next one comes after half as long again, from `min` up to `max` milliseconds.
    pub(crate) fn note_failed_probe(&self, now: u64, min: u64, max: u64) {
        let probes = self.probes.fetch_add(1, Ordering::Relaxed).saturating_add(1).min(64);
        let pause = (min as f64 * 1.5f64.powi(probes.cast_signed())).min(max as f64) as u64;
        self.probe_at.store(now + pause.max(1), Ordering::Relaxed);
    }

    /// A probe was answered: it is asked again.
    pub(crate) fn reinstate(&self) {
        self.failures.store(0, Ordering::Relaxed);
        self.probe_at.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probes_come_at_growing_pauses_until_one_is_answered() {
        let health = NodeHealth::default();
        assert!(!health.is_ejected() && !health.wants_probe(u64::MAX));
        assert_eq!((health.note_failure(), health.note_failure()), (1, 2));
        assert!(health.eject(0, 1000) && !health.eject(0, 9));
        let mut now = 1000;
        let mut pauses = Vec::new();
        for _ in 0..20 {
            assert!(health.is_ejected() && !health.wants_probe(now - 1) && health.wants_probe(now));
            health.note_failed_probe(now, 1000, 60_000);
            let next = health.probe_at.load(Ordering::Relaxed);
            pauses.push(next - now);
            now = next;
        }
        assert_eq!(&pauses[..3], &[1500, 2250, 3375]);
        assert_eq!(pauses.last(), Some(&60_000));
        health.probe_by(now - 1);
        assert!(health.wants_probe(now - 1), "another node is back: this one may be, too");
        health.reinstate();
        health.probe_by(now);
        assert!(!health.is_ejected());
        assert_eq!((health.failures(), health.ejections.load(Ordering::Relaxed)), (0, 1));
    }
}
