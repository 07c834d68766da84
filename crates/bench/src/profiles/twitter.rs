//! Clusters of Twitter's in-memory caches.
//!
//! Source: the table of workload statistics, March 2020, in <https://github.com/twitter/cache-trace>, published with Yang, Yue,
//! Rashmi: "A large scale analysis of hundreds of in-memory cache clusters at Twitter", OSDI 2020. The constants below are the
//! table's columns key size, value size, operation, common TTL, Zipf alpha and compulsory miss ratio.
//!
//! What the table does not hold is assumed here. It gives the mean value size only: sizes are drawn from an exponential
//! distribution with that mean, fixed for each key. The compulsory miss ratio becomes the share of requests to keys that are
//! asked for once. `gets` and `cas` count as `get` and `set`. The number of keys is a size a test can hold, not the cluster's.

use super::Profile;
use crate::operation::Operation::{self, Add, Delete, Get, Incr, Set};
use crate::popularity::Popularity;
use crate::weighted::Weighted;

/// Keys of a profile unless `--keys` says otherwise.
const KEYS: u64 = 1_000_000;
/// Values of equal probability that stand for the exponential distribution.
const QUANTILES: u32 = 64;

/// One line of the table.
#[derive(Debug)]
pub(super) struct Cluster {
    pub(super) name: &'static str,
    pub(super) about: &'static str,
    key_size: usize,
    /// Mean, in bytes.
    value_size: u32,
    mix: &'static [(Operation, f64)],
    /// Seconds and their share of the writes.
    ttl: &'static [(u32, f64)],
    zipf_alpha: f64,
    compulsory_miss_ratio: f64,
}

const HOUR: u32 = 3600;
const DAY: u32 = 24 * HOUR;

/// The clusters chosen: of each kind of load the table shows, at least one.
pub(super) const CLUSTERS: [Cluster; 9] = [
    Cluster {
        name: "twitter-4",
        about: "read-heavy, 2.4 KB values, TTLs from a minute to a day (Twitter cluster 4)",
        key_size: 67,
        value_size: 2439,
        mix: &[(Get, 0.93), (Set, 0.07)],
        ttl: &[(60, 0.39), (300, 0.24), (HOUR, 0.13), (600, 0.12), (4 * HOUR, 0.09), (DAY, 0.03)],
        zipf_alpha: 1.1004,
        compulsory_miss_ratio: 0.0377,
    },
    Cluster {
        name: "twitter-7",
        about: "read-heavy with 18 % writes, 1.9 KB values, TTLs just under two hours (Twitter cluster 7)",
        key_size: 17,
        value_size: 1936,
        mix: &[(Get, 0.82), (Set, 0.18)],
        ttl: &[(6480, 0.28), (6120, 0.24), (6840, 0.23), (5760, 0.13), (7200, 0.12)],
        zipf_alpha: 1.0666,
        compulsory_miss_ratio: 0.0137,
    },
    Cluster {
        name: "twitter-12",
        about: "write-heavy, most objects never read again, TTL five minutes (Twitter cluster 12)",
        key_size: 44,
        value_size: 1030,
        mix: &[(Set, 0.80), (Get, 0.20)],
        ttl: &[(300, 0.98), (299, 0.02)],
        zipf_alpha: 0.3048,
        compulsory_miss_ratio: 0.7945,
    },
    Cluster {
        name: "twitter-19",
        about: "little skew, 101 B values, TTL about seven hours (Twitter cluster 19)",
        key_size: 42,
        value_size: 101,
        mix: &[(Get, 0.75), (Set, 0.25)],
        ttl: &[
            (27_000, 0.08),
            (26_640, 0.07),
            (23_760, 0.07),
            (25_920, 0.07),
            (24_120, 0.07),
            (25_200, 0.07),
            (25_560, 0.07),
            (24_480, 0.07),
            (24_840, 0.07),
            (26_280, 0.06),
        ],
        zipf_alpha: 0.735,
        compulsory_miss_ratio: 0.212,
    },
    Cluster {
        name: "twitter-22",
        about: "counters: 4 B values under 54 B keys, 18 % incr, TTL a day (Twitter cluster 22)",
        key_size: 54,
        value_size: 4,
        mix: &[(Get, 0.72), (Incr, 0.18), (Set, 0.10)],
        ttl: &[(DAY, 0.85), (HOUR, 0.11), (1800, 0.03)],
        zipf_alpha: 0.7624,
        compulsory_miss_ratio: 0.2343,
    },
    Cluster {
        name: "twitter-26",
        about: "29 % writes, 1.7 KB values, TTLs of one to eleven minutes (Twitter cluster 26)",
        key_size: 122,
        value_size: 1745,
        mix: &[(Get, 0.71), (Set, 0.29)],
        ttl: &[(60, 0.67), (120, 0.10), (360, 0.09), (600, 0.06), (660, 0.03), (180, 0.02)],
        zipf_alpha: 0.6299,
        compulsory_miss_ratio: 0.0772,
    },
    Cluster {
        name: "twitter-37",
        about: "large values of 20 KB, TTL mostly 20 seconds (Twitter cluster 37)",
        key_size: 72,
        value_size: 20_134,
        mix: &[(Set, 0.37), (Get, 0.63)],
        ttl: &[(20, 0.91), (300, 0.06), (2 * HOUR, 0.02), (600, 0.01)],
        zipf_alpha: 0.4251,
        compulsory_miss_ratio: 0.2635,
    },
    Cluster {
        name: "twitter-14",
        about: "storage cache with 22 % deletes, 414 B values, TTL a day (Twitter cluster 14)",
        key_size: 96,
        value_size: 414,
        mix: &[(Get, 0.65), (Delete, 0.22), (Set, 0.13)],
        ttl: &[(DAY, 1.0)],
        zipf_alpha: 1.2959,
        compulsory_miss_ratio: 0.0282,
    },
    Cluster {
        name: "twitter-52",
        about: "storage cache, skewed, 273 B values, TTLs of half a day to two weeks (Twitter cluster 52)",
        key_size: 20,
        value_size: 273,
        mix: &[(Get, 0.93), (Add, 0.04), (Set, 0.02)],
        ttl: &[(DAY, 0.65), (14 * DAY, 0.27), (12 * HOUR, 0.07)],
        zipf_alpha: 1.2117,
        compulsory_miss_ratio: 0.0307,
    },
];

impl Cluster {
    pub(super) fn profile(&self) -> Profile {
        let usable = "the table's numbers are positive";
        Profile {
            name: self.name.to_owned(),
            about: self.about.to_owned(),
            keys: KEYS,
            key_length: self.key_size,
            sizes: Weighted::new(exponential(self.value_size)).expect(usable),
            ttls: Weighted::new(self.ttl.iter().copied()).expect(usable),
            mix: Weighted::new(self.mix.iter().copied()).expect(usable),
            popularity: Popularity::Zipf { theta: self.zipf_alpha },
            once_share: self.compulsory_miss_ratio,
        }
    }
}

/// Sizes of equal weight at the middles of the exponential distribution's quantiles, scaled to the exact mean.
fn exponential(mean: u32) -> impl Iterator<Item = (u32, f64)> {
    let middle = |index: u32| -(1.0 - (f64::from(index) + 0.5) / f64::from(QUANTILES)).ln();
    let sum: f64 = (0..QUANTILES).map(middle).sum();
    let scale = f64::from(mean) * f64::from(QUANTILES) / sum;
    (0..QUANTILES).map(move |index| (((middle(index) * scale).round() as u32).max(1), 1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drawn_sizes_have_the_mean_of_the_table() {
        for cluster in &CLUSTERS {
            let profile = cluster.profile();
            let mean: f64 = profile.sizes.shares().map(|(size, share)| f64::from(*size) * share).sum();
            let wanted = f64::from(cluster.value_size);
            assert!((mean - wanted).abs() <= (0.01 * wanted).max(0.5), "{}: {mean}", cluster.name);
        }
    }

    #[test]
    fn mixes_and_ttls_cover_nearly_all_requests() {
        for cluster in &CLUSTERS {
            for sum in [cluster.mix.iter().map(|part| part.1).sum::<f64>(), cluster.ttl.iter().map(|part| part.1).sum()]
            {
                assert!((0.69..=1.001).contains(&sum), "{}: {sum}", cluster.name);
            }
        }
    }
}
