//! What happens between the tiers, counted, and what the numbers are called.

use moneta_store::Counter;
use moneta_store::metric::{Metric, Reading, Sample, Unit, by, samples};

use super::lanes::Reads;

/// What is counted where it is rare enough for threads to share the counter.
#[derive(Debug, Default)]
pub(super) struct TieredCounters {
    pub(super) promotions: Counter,
    pub(super) promotions_overtaken: Counter,
    pub(super) promotions_declined: Counter,
    pub(super) writes_withheld: Counter,
    pub(super) lower_failures: Counter,
    /// Reads and writes that the upper tier failed; the lower one answered instead.
    pub(super) upper_failures: Counter,
    pub(super) key_waits: Counter,
}

impl TieredCounters {
    /// All numbers, those of reads included.
    pub(super) fn with(&self, reads: &Reads) -> TierStats {
        let Reads { upper_hits, lower_hits, misses } = *reads;
        TierStats {
            upper_hits,
            lower_hits,
            misses,
            promotions: self.promotions.get(),
            promotions_overtaken: self.promotions_overtaken.get(),
            promotions_declined: self.promotions_declined.get(),
            writes_withheld: self.writes_withheld.get(),
            lower_failures: self.lower_failures.get(),
            upper_failures: self.upper_failures.get(),
            key_waits: self.key_waits.get(),
            ..TierStats::default()
        }
    }
}

/// What a store of two tiers counts, read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TierStats {
    /// What the upper tier is: `ram`, or `remote_l1`.
    pub upper: &'static str,
    /// What the lower tier is: `ssd`, `rocks`, `lmdb`, or `remote_l2`.
    pub lower: &'static str,
    /// Items in the upper tier.
    pub upper_items: u64,
    /// Live items that the upper tier evicted.
    pub upper_evictions: u64,
    /// Items in the lower tier, which has all of them.
    pub lower_items: u64,
    /// Reads answered by the upper tier.
    pub upper_hits: u64,
    /// Reads answered by the lower tier.
    pub lower_hits: u64,
    /// Reads answered by neither.
    pub misses: u64,
    /// Items brought from the lower into the upper tier.
    pub promotions: u64,
    /// Promotions given up because the key was written meanwhile.
    pub promotions_overtaken: u64,
    /// Promotions not begun because the policy was against it.
    pub promotions_declined: u64,
    /// Writes kept out of the lower tier to spare its device.
    pub writes_withheld: u64,
    /// Writes that the lower tier failed.
    pub lower_failures: u64,
    /// Reads and writes that the upper tier failed; the lower one answered instead.
    pub upper_failures: u64,
    /// Requests that waited for another one on the same key.
    pub key_waits: u64,
}

/// The metrics of a store of two tiers.
const METRICS: &[Reading<TierStats>] = &[
    Metric::gauge("tier_items", Unit::Count, "Items by tier; the lower tier has all of them.")
        .labels(&["tier"])
        .keys(&["{}_items"])
        .read(|tiers| by(&[(tiers.upper, tiers.upper_items), (tiers.lower, tiers.lower_items)])),
    Metric::only_stats("upper_evictions")
        .labels(&["tier"])
        .keys(&["{}_evictions"])
        .read(|tiers| by(&[(tiers.upper, tiers.upper_evictions)])),
    Metric::only_stats("get_extstore").read(|tiers| tiers.lower_hits.into()),
    Metric::counter("tier_reads_total", Unit::Count, "Reads of items, by the tier that answered.")
        .labels(&["tier"])
        .keys(&["tier_{}_hits", "tier_{}_hits", "tier_misses"])
        .read(|tiers| by(&[(tiers.upper, tiers.upper_hits), (tiers.lower, tiers.lower_hits), ("none", tiers.misses)])),
    Metric::counter(
        "tier_promotions_total",
        Unit::Count,
        "Hits in the lower tier by what became of bringing their item into the upper one.",
    )
    .labels(&["result"])
    .keys(&["recache_from_extstore", "tier_promotions_overtaken", "tier_promotions_declined"])
    .read(|tiers| {
        by(&[
            ("done", tiers.promotions),
            ("overtaken", tiers.promotions_overtaken),
            ("declined", tiers.promotions_declined),
        ])
    }),
    Metric::counter(
        "tier_writes_withheld_total",
        Unit::Count,
        "Writes kept in the upper tier only, to spare the device of the lower one.",
    )
    .keys(&["tier_writes_withheld"])
    .read(|tiers| tiers.writes_withheld.into()),
    Metric::counter("tier_write_failures_total", Unit::Count, "Writes that the lower tier failed.")
        .keys(&["tier_write_failures"])
        .read(|tiers| tiers.lower_failures.into()),
    Metric::counter(
        "tier_upper_failures_total",
        Unit::Count,
        "Reads and writes that the upper tier failed; the lower one answered instead.",
    )
    .read(|tiers| tiers.upper_failures.into()),
    Metric::counter("tier_key_waits_total", Unit::Count, "Requests that waited for another one on the same key.")
        .keys(&["tier_key_waits"])
        .read(|tiers| tiers.key_waits.into()),
];

/// The declarations of these metrics.
pub(crate) fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.iter().map(Reading::metric)
}

impl TierStats {
    /// The samples of the metrics of a store of two tiers.
    pub fn samples(&self) -> Vec<Sample> {
        samples(METRICS, self)
    }
}
