//! The tables of metrics of a store that keeps items on SSD. A node without such a tier serves none of them.

use moneta_store::{FlashStats, Latency, TierStats};

use super::collector::Snapshot;
use super::metrics::{Labels, Metric, by, counter, gauge, one};

/// A metric with a fractional value.
pub(super) struct Real {
    /// Its name.
    pub(super) name: &'static str,
    /// What it says.
    pub(super) help: &'static str,
    /// Its value, if there is one.
    pub(super) read: fn(&Snapshot) -> Option<f64>,
}

/// The samples `read` makes of the lower tier's statistics; none without such a tier.
fn flash(now: &Snapshot, read: impl Fn(&FlashStats) -> Vec<(Labels, u64)>) -> Vec<(Labels, u64)> {
    now.store.flash.as_ref().map_or_else(Vec::new, read)
}

/// The samples `read` makes of the statistics of moves between the tiers.
fn between(now: &Snapshot, read: impl Fn(&TierStats) -> Vec<(Labels, u64)>) -> Vec<(Labels, u64)> {
    now.store.tiers.as_ref().map_or_else(Vec::new, read)
}

/// Metrics with whole values.
pub(super) const TABLE: &[Metric] = &[
    counter("moneta_tier_reads", "Reads of items, by the tier that answered.", |now| {
        between(now, |tiers| {
            by("tier", &[(tiers.upper, tiers.upper_hits), (tiers.lower, tiers.lower_hits), ("none", tiers.misses)])
        })
    }),
    gauge("moneta_tier_items", "Items by tier; the lower tier has all of them.", |now| {
        between(now, |tiers| by("tier", &[(tiers.upper, now.store.items), (tiers.lower, tiers.lower_items)]))
    }),
    counter(
        "moneta_tier_promotions",
        "Hits in the lower tier by what became of bringing their item into the upper one.",
        |now| {
            between(now, |tiers| {
                by(
                    "result",
                    &[
                        ("done", tiers.promotions),
                        ("overtaken", tiers.promotions_overtaken),
                        ("declined", tiers.promotions_declined),
                    ],
                )
            })
        },
    ),
    counter(
        "moneta_tier_writes_withheld",
        "Writes kept in the upper tier only, to spare the device of the lower one.",
        |now| between(now, |tiers| one(tiers.writes_withheld)),
    ),
    counter("moneta_tier_write_failures", "Writes that the lower tier failed.", |now| {
        between(now, |tiers| one(tiers.lower_failures))
    }),
    counter("moneta_tier_key_waits", "Requests that waited for another one on the same key.", |now| {
        between(now, |tiers| one(tiers.key_waits))
    }),
    gauge("moneta_flash_items", "Items on SSD.", |now| flash(now, |flash| one(flash.items))),
    gauge("moneta_flash_memory_bytes", "Memory that the SSD tier takes beside the limit on RAM, by part.", |now| {
        flash(now, |flash| by("part", &[("index", flash.index_bytes), ("buffers", flash.buffer_bytes)]))
    }),
    gauge("moneta_flash_device_bytes", "Bytes of the devices that regions take.", |now| {
        flash(now, |flash| one(flash.device_bytes))
    }),
    gauge("moneta_flash_region_bytes", "Bytes of a region.", |now| flash(now, |flash| one(flash.region_bytes))),
    gauge("moneta_flash_regions", "Regions by what is done with them.", |now| {
        flash(now, |flash| {
            by(
                "state",
                &[
                    ("free", flash.regions_free),
                    ("open", flash.regions_open),
                    ("sealed", flash.regions_sealed),
                    ("closed", flash.regions_closed),
                    ("reclaiming", flash.regions_reclaiming),
                    ("retired", flash.regions_retired),
                ],
            )
        })
    }),
    gauge("moneta_flash_oldest_age_seconds", "Age of the oldest region that holds items.", |now| {
        let age = |flash: &FlashStats| match flash.oldest_second {
            0 => one(0),
            second => one(now.second.saturating_sub(second)),
        };
        flash(now, age)
    }),
    counter("moneta_flash_lookups", "Lookups that found an entry in the index of the SSD tier.", |now| {
        flash(now, |flash| one(flash.lookups))
    }),
    counter("moneta_flash_buffer_reads", "Of these, answered from a region that was still in RAM.", |now| {
        flash(now, |flash| one(flash.buffer_reads))
    }),
    counter("moneta_flash_device_reads", "Reads of a device for requests.", |now| {
        flash(now, |flash| one(flash.device_reads))
    }),
    counter("moneta_flash_device_read_bytes", "Bytes read from devices for requests.", |now| {
        flash(now, |flash| one(flash.device_read_bytes))
    }),
    counter("moneta_flash_stored_bytes", "Bytes given to the SSD tier to be written, by cause.", |now| {
        flash(now, |flash| {
            by(
                "cause",
                &[
                    ("item", flash.item_bytes_written),
                    ("carried", flash.carried_bytes),
                    ("tombstone", flash.tombstone_bytes),
                ],
            )
        })
    }),
    counter("moneta_flash_device_written_bytes", "Bytes written to devices, everything included.", |now| {
        flash(now, |flash| one(flash.device_written_bytes))
    }),
    gauge(
        "moneta_flash_overhead_bytes",
        "Bytes written to devices beyond what was stored: headers, footers, padding. What is stored and not yet written counts against it.",
        |now| {
            flash(now, |flash| {
                let stored = flash.item_bytes_written + flash.carried_bytes + flash.tombstone_bytes;
                one(flash.device_written_bytes.saturating_sub(stored))
            })
        },
    ),
    counter("moneta_flash_carried_items", "Items carried forward out of regions that were emptied.", |now| {
        flash(now, |flash| one(flash.carried_items))
    }),
    counter("moneta_flash_drops", "Items that left the SSD tier by themselves.", |now| {
        flash(now, |flash| by("reason", &[("room", flash.evictions), ("expired", flash.expired)]))
    }),
    counter("moneta_flash_drops_unread", "Of those that left for want of room, never read since written.", |now| {
        flash(now, |flash| one(flash.evicted_unfetched))
    }),
    counter(
        "moneta_flash_index_evictions",
        "Items that left the SSD tier, or were not brought back at the start, for want of room in its index.",
        |now| flash(now, |flash| one(flash.index_evictions)),
    ),
    gauge("moneta_flash_index_limit_bytes", "Bytes of memory that the index of the SSD tier may take.", |now| {
        flash(now, |flash| one(flash.index_limit_bytes))
    }),
    counter("moneta_flash_false_matches", "Index entries whose record turned out to be another key's.", |now| {
        flash(now, |flash| one(flash.false_matches))
    }),
    counter("moneta_flash_checksum_failures", "Records, footers and headers whose checksum did not fit.", |now| {
        flash(now, |flash| one(flash.checksum_failures))
    }),
    counter("moneta_flash_io_errors", "Reads and writes that a device failed.", |now| {
        flash(now, |flash| one(flash.io_errors))
    }),
    gauge("moneta_flash_off", "1 while the SSD tier is off after an error, and RAM alone serves.", |now| {
        flash(now, |flash| one(flash.off.into()))
    }),
    gauge(
        "moneta_flash_devices_gone",
        "Files of the SSD tier that were removed or replaced while the node runs.",
        |now| flash(now, |flash| one(flash.devices_gone)),
    ),
    gauge("moneta_flash_recovered_items", "Items found by the recovery at the start.", |now| {
        flash(now, |flash| one(flash.recovered_items))
    }),
    gauge("moneta_flash_recovered_regions", "Regions whose footers the recovery at the start read.", |now| {
        flash(now, |flash| one(flash.recovered_regions))
    }),
    gauge("moneta_flash_recovery_read_bytes", "Bytes of device that the recovery at the start read.", |now| {
        flash(now, |flash| one(flash.recovery_read_bytes))
    }),
    gauge("moneta_flash_recovery_from_snapshot", "1 if the index came from the snapshot of a clean stop.", |now| {
        flash(now, |flash| one(flash.from_snapshot.into()))
    }),
];

/// A ratio; none if `whole` is 0.
fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Metrics with fractional values.
pub(super) const REALS: &[Real] = &[
    Real {
        name: "moneta_flash_reads_per_lookup",
        help: "Reads of a device for each lookup that found an entry, since the start.",
        read: |now| now.store.flash.as_ref().map(|flash| ratio(flash.device_reads, flash.lookups).unwrap_or(0.0)),
    },
    Real {
        name: "moneta_flash_index_bytes_per_item",
        help: "Memory of the index for each item on SSD.",
        read: |now| now.store.flash.as_ref().map(|flash| ratio(flash.index_bytes, flash.items).unwrap_or(0.0)),
    },
    Real {
        name: "moneta_flash_write_amplification",
        help: "Bytes written to devices for each byte of keys and values that clients stored, since the start.",
        read: |now| {
            let written = |flash: &FlashStats| ratio(flash.device_written_bytes, flash.item_bytes_written);
            now.store.flash.as_ref().map(|flash| written(flash).unwrap_or(0.0))
        },
    },
    Real {
        name: "moneta_flash_recovery_seconds",
        help: "How long the recovery at the start took.",
        read: |now| now.store.flash.as_ref().map(|flash| flash.recovery_microseconds as f64 / 1e6),
    },
];

/// Name of the histogram.
pub(super) const HISTOGRAM_NAME: &str = "moneta_flash_read_duration_seconds";
/// What the histogram says.
pub(super) const HISTOGRAM_HELP: &str = "Time from asking a device for a read to having it.";

/// Pairs of an upper bound in seconds and the reads between it and the bound before.
pub(super) fn histogram(latency: &Latency) -> Vec<(f64, u64)> {
    let bound = |bits: usize| if bits + 1 == Latency::BUCKETS { f64::INFINITY } else { (1u64 << bits) as f64 / 1e6 };
    latency.buckets.iter().enumerate().map(|(bits, &count)| (bound(bits), count)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_counted_under_the_first_bound_above_it() {
        let mut latency = Latency::default();
        for microseconds in [0, 1, 100, 127, 128, 1 << 22, u64::MAX] {
            latency.buckets[Latency::bucket(microseconds)] += 1;
        }
        let shown: Vec<_> = histogram(&latency).into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(shown, [(1e-6, 1), (2e-6, 1), (128e-6, 2), (256e-6, 1), (f64::INFINITY, 2)]);
    }
}
