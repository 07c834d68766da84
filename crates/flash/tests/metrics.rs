//! Guards against numbers that are shown under another's name, or not at all.

use std::collections::BTreeMap;

use moneta_flash::FlashStats;
use moneta_store::latency::Latency;
use moneta_store::metric::{Sample, Value};

/// Every number another one, so that none can pass for its neighbour.
fn numbers() -> FlashStats {
    let mut read_latency = Latency { sum_microseconds: 3_000_000, ..Latency::default() };
    read_latency.buckets[7] = 5;
    read_latency.buckets[10] = 2;
    FlashStats {
        items: 1_000,
        stored_items: 1_100,
        index_bytes: 10_000,
        buffer_bytes: 103,
        device_bytes: 104,
        region_bytes: 105,
        regions_free: 106,
        regions_open: 107,
        regions_sealed: 108,
        regions_closed: 109,
        regions_reclaiming: 110,
        regions_retired: 111,
        regions_emptied: 211,
        oldest_second: 1_000_000,
        oldest_age: 500,
        lookups: 400,
        buffer_reads: 113,
        device_reads: 200,
        device_read_bytes: 115,
        reads_in_flight: 116,
        read_latency,
        item_bytes_written: 2_000,
        carried_bytes: 300,
        carried_items: 119,
        tombstone_bytes: 40,
        device_written_bytes: 2_500,
        evictions: 122,
        evicted_unfetched: 123,
        index_evictions: 140,
        index_limit_bytes: 141,
        expired: 124,
        false_matches: 126,
        checksum_failures: 127,
        io_errors: 128,
        off: true,
        devices_gone: 129,
        recovery_microseconds: 1_500_000,
        recovered_items: 130,
        recovered_regions: 131,
        recovery_read_bytes: 132,
        from_snapshot: true,
        opened: 150,
        appended: 151,
        durable: 152,
        ..FlashStats::default()
    }
}

/// The numbers as metrics, by name and labels.
fn shown(numbers: &FlashStats) -> BTreeMap<String, f64> {
    let name = |sample: &Sample| sample.to_string().rsplit_once(' ').expect("a name and a value").0.to_owned();
    let samples = numbers.samples();
    let shown = samples.iter().filter(|sample| sample.metric.is_in_metrics());
    shown.map(|sample| (name(sample), sample.value.number())).collect()
}

#[test]
fn each_number_is_a_metric_under_its_name() {
    let expected = [
        ("flash_items", 1_000.0),
        ("flash_memory_bytes{part=\"index\"}", 10_000.0),
        ("flash_memory_bytes{part=\"buffers\"}", 103.0),
        ("flash_index_bytes_per_item", 10.0),
        ("flash_device_bytes", 104.0),
        ("flash_region_bytes", 105.0),
        ("flash_regions{state=\"free\"}", 106.0),
        ("flash_regions{state=\"open\"}", 107.0),
        ("flash_regions{state=\"sealed\"}", 108.0),
        ("flash_regions{state=\"closed\"}", 109.0),
        ("flash_regions{state=\"reclaiming\"}", 110.0),
        ("flash_lookups_total", 400.0),
        ("flash_buffer_reads_total", 113.0),
        ("flash_device_reads_total", 200.0),
        ("flash_device_read_bytes_total", 115.0),
        ("flash_reads_per_lookup", 0.5),
        ("flash_stored_bytes_total{cause=\"item\"}", 2_000.0),
        ("flash_stored_bytes_total{cause=\"carried\"}", 300.0),
        ("flash_stored_bytes_total{cause=\"tombstone\"}", 40.0),
        ("flash_device_written_bytes_total", 2_500.0),
        ("flash_overhead_bytes", 160.0),
        ("flash_write_amplification", 1.25),
        ("flash_carried_items_total", 119.0),
        ("flash_drops_total{reason=\"room\"}", 122.0),
        ("flash_drops_total{reason=\"expired\"}", 124.0),
        ("flash_drops_unread_total", 123.0),
        ("flash_index_evictions_total", 140.0),
        ("flash_index_limit_bytes", 141.0),
        ("flash_false_matches_total", 126.0),
        ("flash_checksum_failures_total", 127.0),
        ("flash_io_errors_total", 128.0),
        ("flash_off", 1.0),
        ("flash_devices_gone", 129.0),
        ("flash_recovery_seconds", 1.5),
        ("flash_recovered_items", 130.0),
        ("flash_recovered_regions", 131.0),
        ("flash_recovery_read_bytes", 132.0),
        ("flash_recovery_from_snapshot", 1.0),
        ("flash_regions{state=\"retired\"}", 111.0),
        ("flash_oldest_age_seconds", 500.0),
        ("flash_read_duration_seconds", 7.0),
    ];
    let shown = shown(&numbers());
    for (name, value) in expected {
        assert_eq!(shown.get(name), Some(&value), "{name}");
    }
    let listed = |name: &str| expected.iter().any(|(expected, _)| *expected == name);
    let others: Vec<_> = shown.iter().filter(|(name, value)| !listed(name) && **value != 0.0).collect();
    assert!(others.is_empty(), "shown under a second name: {others:?}");
}

#[test]
fn times_of_reads_are_told_in_seconds() {
    let samples = numbers().samples();
    let times = samples.iter().find_map(|sample| match &sample.value {
        Value::Histogram(histogram) => Some(histogram),
        _ => None,
    });
    let times = times.expect("a histogram");
    let slow: Vec<_> = times.buckets.iter().filter(|(_, count)| *count > 0).collect();
    assert_eq!((slow, times.sum), (vec![&(0.000128, 5), &(0.001024, 2)], 3.0));
}

#[test]
fn ratios_of_nothing_are_zero() {
    let shown = shown(&FlashStats::default());
    for ratio in ["reads_per_lookup", "index_bytes_per_item", "write_amplification", "oldest_age_seconds"] {
        assert_eq!(shown[&format!("flash_{ratio}")], 0.0, "{ratio}");
    }
}

#[test]
fn stats_tell_the_numbers_in_memcacheds_words_where_it_has_them() {
    let expected = [
        ("miss_from_extstore", 126),
        ("badcrc_from_extstore", 127),
        ("extstore_compact_rescues", 119),
        ("extstore_pages_free", 106),
        ("extstore_pages_used", 107 + 108 + 109 + 110),
        ("extstore_objects_evicted", 122),
        ("extstore_objects_read", 200),
        ("extstore_objects_used", 1_000),
        ("extstore_objects_written", 1_100 + 119),
        ("extstore_page_evictions", 211),
        ("extstore_bytes_used", (107 + 108 + 109 + 110) * 105),
        ("extstore_io_queue", 116),
        ("extstore_bytes_written", 2_500),
        ("extstore_bytes_read", 115),
        ("extstore_limit_maxbytes", 104),
        ("flash_index_bytes", 10_000),
        ("flash_buffer_bytes", 103),
        ("flash_region_bytes", 105),
        ("flash_regions_open", 107),
        ("flash_regions_sealed", 108),
        ("flash_regions_closed", 109),
        ("flash_regions_reclaiming", 110),
        ("flash_regions_retired", 111),
        ("flash_lookups", 400),
        ("flash_buffer_reads", 113),
        ("flash_read_microseconds", 3_000_000),
        ("flash_item_bytes_written", 2_000),
        ("flash_carried_bytes", 300),
        ("flash_tombstone_bytes", 40),
        ("flash_expired", 124),
        ("flash_io_errors", 128),
        ("flash_off", 1),
        ("flash_devices_gone", 129),
        ("flash_recovery_microseconds", 1_500_000),
        ("flash_recovered_items", 130),
        ("flash_recovered_regions", 131),
        ("flash_recovery_read_bytes", 132),
        ("flash_recovery_from_snapshot", 1),
        ("flash_oldest_second", 1_000_000),
        ("flash_opened", 150),
        ("flash_appended", 151),
        ("flash_durable", 152),
    ];
    let samples = numbers().samples();
    let told: BTreeMap<String, &Value> =
        samples.iter().filter_map(|sample| Some((sample.key()?, &sample.value))).collect();
    for (key, value) in expected {
        assert_eq!(told.get(key), Some(&&Value::Whole(value)), "{key}");
    }
    let listed = |key: &str| expected.iter().any(|(expected, _)| *expected == key);
    let others: Vec<_> = told.iter().filter(|(key, value)| !listed(key) && ***value != Value::Whole(0)).collect();
    assert!(others.is_empty(), "told under a second key: {others:?}");
}
