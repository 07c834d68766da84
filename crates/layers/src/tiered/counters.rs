//! Counters of what happens between the tiers.

use std::sync::atomic::{AtomicU64, Ordering};

use moneta_store::{Figure, FigureKind, TierStats};

use super::lanes::Reads;

/// What is counted where it is rare enough for threads to share the counter.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) promotions: AtomicU64,
    pub(super) promotions_overtaken: AtomicU64,
    pub(super) promotions_declined: AtomicU64,
    pub(super) writes_withheld: AtomicU64,
    pub(super) lower_failures: AtomicU64,
    /// Reads and writes that the upper tier failed; the lower one answered instead.
    pub(super) upper_failures: AtomicU64,
    pub(super) key_waits: AtomicU64,
}

/// Counts one more.
pub(super) fn bump(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

impl Counters {
    /// The failures of the upper tier, which only some kinds of tier have.
    pub(super) fn upper_failures_figure(&self) -> Figure {
        Figure {
            name: "tier_upper_failures_total",
            help: "Reads and writes that the upper tier failed; the lower one answered instead.",
            kind: FigureKind::Counter,
            labels: Vec::new(),
            value: self.upper_failures.load(Ordering::Relaxed) as f64,
        }
    }

    /// All numbers, those of reads included.
    pub(super) fn with(&self, reads: &Reads) -> TierStats {
        let Reads { upper_hits, lower_hits, misses } = *reads;
        TierStats {
            upper_hits,
            lower_hits,
            misses,
            promotions: self.promotions.load(Ordering::Relaxed),
            promotions_overtaken: self.promotions_overtaken.load(Ordering::Relaxed),
            promotions_declined: self.promotions_declined.load(Ordering::Relaxed),
            writes_withheld: self.writes_withheld.load(Ordering::Relaxed),
            lower_failures: self.lower_failures.load(Ordering::Relaxed),
            key_waits: self.key_waits.load(Ordering::Relaxed),
            ..TierStats::default()
        }
    }
}
