//! The engine's metrics: what is counted, what each number is called, and where it is read.

use std::sync::atomic::Ordering;

use moneta_store::latency::Latency;
use moneta_store::metric::{Metric, Reading, Sample, Unit, Values, by, samples};
use moneta_store::{Report, StoreStats};

use crate::counters::read;
use crate::engine::Flash;
use crate::inner::Inner;
use crate::log::regions::RegionStage;
use moneta_device::format::stamp::second_of;

/// What the engine counts, read at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlashStats {
    /// Items that can be read now (dead ones not yet noticed included).
    pub items: u64,
    /// Items stored by clients since start.
    pub stored_items: u64,
    /// Bytes of memory: index.
    pub index_bytes: u64,
    /// Bytes of memory: region tables and buffers of regions being filled or written.
    pub buffer_bytes: u64,
    /// Bytes of the devices that regions take.
    pub device_bytes: u64,
    /// Bytes of a region.
    pub region_bytes: u64,
    /// Regions that hold nothing.
    pub regions_free: u64,
    /// Regions being filled.
    pub regions_open: u64,
    /// Regions full and being written.
    pub regions_sealed: u64,
    /// Regions written.
    pub regions_closed: u64,
    /// Regions being emptied.
    pub regions_reclaiming: u64,
    /// Regions in no use any more, because a device cannot read or write them.
    pub regions_retired: u64,
    /// Regions filled since start.
    pub regions_filled: u64,
    /// Regions emptied since start to make room.
    pub regions_emptied: u64,
    /// Unix second in which the oldest region that holds something was begun; 0 without one.
    pub oldest_second: u64,
    /// Seconds since then; 0 without one.
    pub oldest_age: u64,
    /// Lookups that found an entry in the index.
    pub lookups: u64,
    /// Of these, answered from the buffer of a region not yet written.
    pub buffer_reads: u64,
    /// Reads of a device for requests.
    pub device_reads: u64,
    /// Bytes read from devices for requests.
    pub device_read_bytes: u64,
    /// Reads for requests that wait for a device now.
    pub reads_in_flight: u64,
    /// Time from asking for a read to having it.
    pub read_latency: Latency,
    /// Bytes of keys and values stored by clients.
    pub item_bytes_written: u64,
    /// Bytes of keys and values carried forward out of regions that were emptied.
    pub carried_bytes: u64,
    /// Items carried forward.
    pub carried_items: u64,
    /// Bytes of tombstones written.
    pub tombstone_bytes: u64,
    /// Bytes written to devices, everything included.
    pub device_written_bytes: u64,
    /// Live items that went with their region, or for want of room in the index.
    pub evictions: u64,
    /// Items that went, or were not brought back by a recovery, for want of room in the index.
    pub index_evictions: u64,
    /// Bytes that the index may take; `u64::MAX` without a limit.
    pub index_limit_bytes: u64,
    /// Of these, never read since they were written.
    pub evicted_unfetched: u64,
    /// Items whose time was up when their region was emptied or a request asked for them.
    pub expired: u64,
    /// Entries of the index whose record turned out to be another key's.
    pub false_matches: u64,
    /// Records, footers and headers whose checksum did not fit.
    pub checksum_failures: u64,
    /// Reads and writes that a device failed.
    pub io_errors: u64,
    /// Whether devices are off after a failed write: what they hold unchanged is read as far as that goes, and nothing is
    /// written until they take writes again.
    pub off: bool,
    /// Files of devices that were removed or replaced while the node runs.
    pub devices_gone: u64,
    /// How long the last recovery took, in microseconds.
    pub recovery_microseconds: u64,
    /// Items found by it.
    pub recovered_items: u64,
    /// Regions it is through with.
    pub recovered_regions: u64,
    /// Bytes of device it read.
    pub recovery_read_bytes: u64,
    /// Whether it began from a snapshot of the index.
    pub from_snapshot: bool,
    /// When it was opened, Unix milliseconds: with another number it is another process that has it.
    pub opened: u64,
    /// Records that were given to the tier since then.
    pub appended: u64,
    /// Of these, in their order, so many are on the devices.
    pub durable: u64,
}

/// The engine's metrics. Where memcached's extstore has a counterpart, `stats` has its key, with regions for its pages.
const METRICS: &[Reading<FlashStats>] = &[
    Metric::gauge("flash_items", Unit::Count, "Items on SSD.")
        .keys(&["extstore_objects_used"])
        .read(|flash| flash.items.into()),
    Metric::gauge(
        "flash_memory_bytes",
        Unit::Bytes,
        "Memory that the SSD tier takes beside the limit on RAM, by part.",
    )
    .labels(&["part"])
    .keys(&["flash_index_bytes", "flash_buffer_bytes"])
    .read(|flash| by(&[("index", flash.index_bytes), ("buffers", flash.buffer_bytes)])),
    Metric::gauge("flash_index_bytes_per_item", Unit::Bytes, "Memory of the index for each item on SSD.")
        .keys(&[])
        .read(|flash| ratio(flash.index_bytes, flash.items)),
    Metric::gauge("flash_device_bytes", Unit::Bytes, "Bytes of the devices that regions take.")
        .keys(&["extstore_limit_maxbytes"])
        .read(|flash| flash.device_bytes.into()),
    Metric::gauge("flash_region_bytes", Unit::Bytes, "Bytes of a region.").read(|flash| flash.region_bytes.into()),
    Metric::gauge("flash_regions", Unit::Count, "Regions by what is done with them.")
        .labels(&["state"])
        .keys(&[
            "extstore_pages_free",
            "flash_regions_open",
            "flash_regions_sealed",
            "flash_regions_closed",
            "flash_regions_reclaiming",
            "flash_regions_retired",
        ])
        .read(|flash| {
            by(&[
                ("free", flash.regions_free),
                ("open", flash.regions_open),
                ("sealed", flash.regions_sealed),
                ("closed", flash.regions_closed),
                ("reclaiming", flash.regions_reclaiming),
                ("retired", flash.regions_retired),
            ])
        }),
    Metric::counter("flash_regions_filled_total", Unit::Count, "Regions filled.")
        .keys(&["flash_regions_filled"])
        .read(|flash| flash.regions_filled.into()),
    Metric::only_stats("extstore_pages_used").read(|flash| flash.regions_used().into()),
    Metric::only_stats("extstore_bytes_used")
        .read(|flash| (flash.regions_used() * flash.region_bytes).into()),
    Metric::only_stats("extstore_page_evictions").read(|flash| flash.regions_emptied.into()),
    Metric::gauge("flash_oldest_age_seconds", Unit::Seconds, "Age of the oldest region that holds items.")
        .keys(&[])
        .read(|flash| flash.oldest_age.into()),
    Metric::only_stats("flash_oldest_second").read(|flash| flash.oldest_second.into()),
    Metric::counter(
        "flash_lookups_total",
        Unit::Count,
        "Lookups that found an entry in the index of the SSD tier.",
    )
    .keys(&["flash_lookups"])
    .read(|flash| flash.lookups.into()),
    Metric::counter("flash_buffer_reads_total", Unit::Count, "Of these, answered from a region that was still in RAM.")
        .keys(&["flash_buffer_reads"])
        .read(|flash| flash.buffer_reads.into()),
    Metric::counter("flash_device_reads_total", Unit::Count, "Reads of a device for requests.")
        .keys(&["extstore_objects_read"])
        .read(|flash| flash.device_reads.into()),
    Metric::counter("flash_device_read_bytes_total", Unit::Bytes, "Bytes read from devices for requests.")
        .keys(&["extstore_bytes_read"])
        .read(|flash| flash.device_read_bytes.into()),
    Metric::gauge(
        "flash_reads_per_lookup",
        Unit::Ratio,
        "Reads of a device for each lookup that found an entry, since the start.",
    )
    .keys(&[])
    .read(|flash| ratio(flash.device_reads, flash.lookups)),
    Metric::only_stats("extstore_io_queue").read(|flash| flash.reads_in_flight.into()),
    Metric::histogram(
        "flash_read_duration_seconds",
        Unit::Seconds,
        "Time from asking a device for a read to having it.",
    )
    .read(|flash| flash.read_latency.histogram().into()),
    Metric::only_stats("flash_read_microseconds")
        .read(|flash| flash.read_latency.sum_microseconds.into()),
    Metric::counter("flash_stored_bytes_total", Unit::Bytes, "Bytes given to the SSD tier to be written, by cause.")
        .labels(&["cause"])
        .keys(&["flash_item_bytes_written", "flash_carried_bytes", "flash_tombstone_bytes"])
        .read(|flash| {
            by(&[
                ("item", flash.item_bytes_written),
                ("carried", flash.carried_bytes),
                ("tombstone", flash.tombstone_bytes),
            ])
        }),
    Metric::only_stats("extstore_objects_written")
        .read(|flash| (flash.stored_items + flash.carried_items).into()),
    Metric::counter(
        "flash_device_written_bytes_total",
        Unit::Bytes,
        "Bytes written to devices, everything included.",
    )
    .keys(&["extstore_bytes_written"])
    .read(|flash| flash.device_written_bytes.into()),
    Metric::gauge(
        "flash_overhead_bytes",
        Unit::Bytes,
        "Bytes written to devices beyond what was stored: headers, footers, padding. What is stored and not yet written counts against it.",
    )
    .keys(&[])
    .read(|flash| {
        let stored = flash.item_bytes_written + flash.carried_bytes + flash.tombstone_bytes;
        flash.device_written_bytes.saturating_sub(stored).into()
    }),
    Metric::gauge(
        "flash_write_amplification",
        Unit::Ratio,
        "Bytes written to devices for each byte of keys and values that clients stored, since the start.",
    )
    .keys(&[])
    .read(|flash| ratio(flash.device_written_bytes, flash.item_bytes_written)),
    Metric::counter(
        "flash_carried_items_total",
        Unit::Count,
        "Items carried forward out of regions that were emptied.",
    )
    .keys(&["extstore_compact_rescues"])
    .read(|flash| flash.carried_items.into()),
    Metric::counter("flash_drops_total", Unit::Count, "Items that left the SSD tier by themselves.")
        .labels(&["reason"])
        .keys(&["extstore_objects_evicted", "flash_expired"])
        .read(|flash| by(&[("room", flash.evictions), ("expired", flash.expired)])),
    Metric::counter(
        "flash_drops_unread_total",
        Unit::Count,
        "Of those that left for want of room, never read since written.",
    )
    .keys(&[])
    .read(|flash| flash.evicted_unfetched.into()),
    Metric::counter(
        "flash_index_evictions_total",
        Unit::Count,
        "Items that left the SSD tier, or were not brought back at the start, for want of room in its index.",
    )
    .keys(&[])
    .read(|flash| flash.index_evictions.into()),
    Metric::gauge(
        "flash_index_limit_bytes",
        Unit::Bytes,
        "Bytes of memory that the index of the SSD tier may take.",
    )
    .keys(&[])
    .read(|flash| flash.index_limit_bytes.into()),
    Metric::counter(
        "flash_false_matches_total",
        Unit::Count,
        "Index entries whose record turned out to be another key's.",
    )
    .keys(&["miss_from_extstore"])
    .read(|flash| flash.false_matches.into()),
    Metric::counter(
        "flash_checksum_failures_total",
        Unit::Count,
        "Records, footers and headers whose checksum did not fit.",
    )
    .keys(&["badcrc_from_extstore"])
    .read(|flash| flash.checksum_failures.into()),
    Metric::counter("flash_io_errors_total", Unit::Count, "Reads and writes that a device failed.")
        .keys(&["flash_io_errors"])
        .read(|flash| flash.io_errors.into()),
    Metric::gauge("flash_off", Unit::Count, "1 while the SSD tier is off after an error, and RAM alone serves.")
        .read(|flash| flash.off.into()),
    Metric::gauge(
        "flash_devices_gone",
        Unit::Count,
        "Files of the SSD tier that were removed or replaced while the node runs.",
    )
    .read(|flash| flash.devices_gone.into()),
    Metric::gauge("flash_recovery_seconds", Unit::Seconds, "How long the recovery at the start took.")
        .keys(&[])
        .read(|flash| (flash.recovery_microseconds as f64 / 1e6).into()),
    Metric::only_stats("flash_recovery_microseconds").read(|flash| flash.recovery_microseconds.into()),
    Metric::gauge("flash_recovered_items", Unit::Count, "Items found by the recovery at the start.")
        .read(|flash| flash.recovered_items.into()),
    Metric::gauge(
        "flash_recovered_regions",
        Unit::Count,
        "Regions whose footers the recovery at the start read.",
    )
    .read(|flash| flash.recovered_regions.into()),
    Metric::gauge(
        "flash_recovery_read_bytes",
        Unit::Bytes,
        "Bytes of device that the recovery at the start read.",
    )
    .read(|flash| flash.recovery_read_bytes.into()),
    Metric::gauge(
        "flash_recovery_from_snapshot",
        Unit::Count,
        "1 if the index came from the snapshot of a clean stop.",
    )
    .read(|flash| flash.from_snapshot.into()),
    Metric::only_stats("flash_opened").read(|flash| flash.opened.into()),
    Metric::only_stats("flash_appended").read(|flash| flash.appended.into()),
    Metric::only_stats("flash_durable").read(|flash| flash.durable.into()),
];

/// The declarations of the engine's metrics.
pub fn metrics() -> impl Iterator<Item = Metric> {
    METRICS.iter().map(Reading::metric)
}

/// A ratio; 0 of nothing.
fn ratio(part: u64, whole: u64) -> Values {
    if whole > 0 { (part as f64 / whole as f64).into() } else { 0.0.into() }
}

impl FlashStats {
    /// The samples of the engine's metrics.
    pub fn samples(&self) -> Vec<Sample> {
        samples(METRICS, self)
    }

    /// Regions that hold something.
    fn regions_used(&self) -> u64 {
        self.regions_open + self.regions_sealed + self.regions_closed + self.regions_reclaiming
    }
}

impl Flash {
    /// What the engine counts now.
    pub fn numbers(&self) -> FlashStats {
        self.inner.numbers()
    }
}

impl Inner {
    fn numbers(&self) -> FlashStats {
        let mut flash = FlashStats {
            region_bytes: self.devices.region_bytes() as u64,
            device_bytes: self.regions.len() as u64 * self.devices.region_bytes() as u64,
            buffer_bytes: (self.log.buffers.memory() + self.regions.memory()) as u64,
            index_limit_bytes: self.config.index_bytes,
            ..FlashStats::default()
        };
        for shard in self.shards() {
            let mut shard = shard.lock();
            shard.note_floor(self.log.floor());
            flash.items += shard.items();
            flash.index_bytes += shard.memory();
        }
        self.count_regions(&mut flash);
        self.add_counters(&mut flash);
        flash
    }

    /// The same as every store tells it, and as metrics.
    pub(crate) fn report(&self) -> Report {
        let flash = self.numbers();
        let (tombstones, tombstone_bytes, horizon) = self.deletes.census();
        let stats = StoreStats {
            kind: "ssd",
            items: flash.items,
            total_items: flash.stored_items,
            evictions: flash.evictions,
            evicted_unfetched: flash.evicted_unfetched,
            reclaimed: flash.expired,
            expired_unfetched: read(&self.counters.expired_unfetched),
            device_bytes: flash.device_bytes,
            oldest_second: Some(flash.oldest_second),
            tombstones,
            tombstone_bytes,
            horizon,
            ..StoreStats::default()
        };
        Report { stats, metrics: flash.samples() }
    }

    fn count_regions(&self, flash: &mut FlashStats) {
        let mut oldest = None;
        for (_, region) in self.regions.iter() {
            match region.state() {
                RegionStage::Free => flash.regions_free += 1,
                RegionStage::Open => flash.regions_open += 1,
                RegionStage::Sealed => flash.regions_sealed += 1,
                RegionStage::Written | RegionStage::Closed => flash.regions_closed += 1,
                RegionStage::Reclaiming => flash.regions_reclaiming += 1,
                RegionStage::Retired => flash.regions_retired += 1,
            }
            let (base, begun) = (region.base(), region.span().begun / 1000);
            if region.sequence() != 0 && oldest.is_none_or(|(least, _)| base < least) {
                oldest = Some((base, begun));
            }
        }
        // Counted stamps tell no time; regions of format 1 have no other.
        flash.oldest_second = oldest.map_or(0, |(base, begun)| begun.max(second_of(base).into()));
        if flash.oldest_second > 0 {
            flash.oldest_age = u64::from(self.clock.now()).saturating_sub(flash.oldest_second);
        }
    }

    fn add_counters(&self, flash: &mut FlashStats) {
        let (counters, reads) = (&self.counters, &self.reads);
        flash.stored_items = read(&counters.total_items);
        flash.regions_filled = read(&counters.regions_filled);
        flash.regions_emptied = read(&counters.regions_emptied);
        flash.reads_in_flight = read(&reads.in_flight);
        flash.lookups = read(&counters.lookups);
        flash.buffer_reads = read(&counters.buffer_reads);
        flash.device_reads = read(&reads.reads);
        flash.device_read_bytes = read(&reads.bytes);
        flash.read_latency = reads.latency.latency();
        flash.item_bytes_written = read(&counters.item_bytes);
        flash.carried_bytes = read(&counters.carried_bytes);
        flash.carried_items = read(&counters.carried_items);
        flash.tombstone_bytes = read(&counters.tombstone_bytes);
        flash.device_written_bytes = read(&counters.device_bytes);
        flash.evictions = read(&counters.evictions);
        flash.evicted_unfetched = read(&counters.evicted_unfetched);
        flash.index_evictions = read(&counters.index_evictions);
        flash.expired = read(&counters.expired);
        flash.false_matches = read(&counters.false_matches);
        flash.checksum_failures = read(&counters.checksum_failures);
        flash.io_errors = read(&counters.io_errors) + read(&reads.errors);
        flash.off = self.log.queue.is_off();
        flash.devices_gone = self.presence.gone() as u64;
        flash.recovery_microseconds = read(&counters.recovery_microseconds);
        flash.recovered_items = read(&counters.recovered_items);
        flash.recovered_regions = read(&counters.recovered_regions);
        flash.recovery_read_bytes = read(&counters.recovery_bytes);
        flash.from_snapshot = self.from_snapshot.load(Ordering::Relaxed);
        flash.opened = self.opened;
        flash.durable = self.log.queue.durable();
        flash.appended = self.log.appended();
    }
}
