//! Guards against numbers of the tiers that are shown under another's name, or not at all.

mod support;

use std::collections::BTreeMap;

use moneta_store::{Figure, FigureKind, FlashStats, Health, Latency, TierStats};
use support::TestServer;
use support::admin::{fetch, metrics, start};

/// Every number another one, so that none can pass for its neighbour.
fn flash(now: u64) -> FlashStats {
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
        oldest_second: now - 500,
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
    }
}

fn tiers() -> TierStats {
    TierStats {
        upper: "ram",
        lower: "ssd",
        lower_items: 1_000,
        lower_evictions: 122,
        lower_evicted_unfetched: 123,
        upper_hits: 201,
        lower_hits: 202,
        misses: 203,
        promotions: 204,
        promotions_overtaken: 205,
        promotions_declined: 206,
        writes_withheld: 207,
        lower_failures: 208,
        key_waits: 209,
    }
}

fn start_tiered() -> TestServer {
    let server = start();
    server.gate.set_tiers(flash(server.node.clock.now().into()), tiers());
    server
}

#[test]
fn metrics_tell_of_both_tiers() {
    let server = start_tiered();
    let seen = metrics(&server);
    let expected = [
        ("moneta_tier_reads_total{tier=\"ram\"}", 201.0),
        ("moneta_tier_reads_total{tier=\"ssd\"}", 202.0),
        ("moneta_tier_reads_total{tier=\"none\"}", 203.0),
        ("moneta_tier_items{tier=\"ram\"}", 0.0),
        ("moneta_tier_items{tier=\"ssd\"}", 1_000.0),
        ("moneta_tier_promotions_total{result=\"done\"}", 204.0),
        ("moneta_tier_promotions_total{result=\"overtaken\"}", 205.0),
        ("moneta_tier_promotions_total{result=\"declined\"}", 206.0),
        ("moneta_tier_writes_withheld_total", 207.0),
        ("moneta_tier_write_failures_total", 208.0),
        ("moneta_tier_key_waits_total", 209.0),
        ("moneta_flash_items", 1_000.0),
        ("moneta_flash_memory_bytes{part=\"index\"}", 10_000.0),
        ("moneta_flash_memory_bytes{part=\"buffers\"}", 103.0),
        ("moneta_flash_index_bytes_per_item", 10.0),
        ("moneta_flash_device_bytes", 104.0),
        ("moneta_flash_region_bytes", 105.0),
        ("moneta_flash_regions{state=\"free\"}", 106.0),
        ("moneta_flash_regions{state=\"open\"}", 107.0),
        ("moneta_flash_regions{state=\"sealed\"}", 108.0),
        ("moneta_flash_regions{state=\"closed\"}", 109.0),
        ("moneta_flash_regions{state=\"reclaiming\"}", 110.0),
        ("moneta_flash_lookups_total", 400.0),
        ("moneta_flash_buffer_reads_total", 113.0),
        ("moneta_flash_device_reads_total", 200.0),
        ("moneta_flash_device_read_bytes_total", 115.0),
        ("moneta_flash_reads_per_lookup", 0.5),
        ("moneta_flash_read_duration_seconds_sum", 3.0),
        ("moneta_flash_read_duration_seconds_count", 7.0),
        ("moneta_flash_read_duration_seconds_bucket{le=\"0.000064\"}", 0.0),
        ("moneta_flash_read_duration_seconds_bucket{le=\"0.000128\"}", 5.0),
        ("moneta_flash_read_duration_seconds_bucket{le=\"0.001024\"}", 7.0),
        ("moneta_flash_read_duration_seconds_bucket{le=\"+Inf\"}", 7.0),
        ("moneta_flash_stored_bytes_total{cause=\"item\"}", 2_000.0),
        ("moneta_flash_stored_bytes_total{cause=\"carried\"}", 300.0),
        ("moneta_flash_stored_bytes_total{cause=\"tombstone\"}", 40.0),
        ("moneta_flash_device_written_bytes_total", 2_500.0),
        ("moneta_flash_overhead_bytes", 160.0),
        ("moneta_flash_write_amplification", 1.25),
        ("moneta_flash_carried_items_total", 119.0),
        ("moneta_flash_drops_total{reason=\"room\"}", 122.0),
        ("moneta_flash_drops_total{reason=\"expired\"}", 124.0),
        ("moneta_flash_drops_unread_total", 123.0),
        ("moneta_flash_index_evictions_total", 140.0),
        ("moneta_flash_index_limit_bytes", 141.0),
        ("moneta_flash_false_matches_total", 126.0),
        ("moneta_flash_checksum_failures_total", 127.0),
        ("moneta_flash_io_errors_total", 128.0),
        ("moneta_flash_off", 1.0),
        ("moneta_flash_devices_gone", 129.0),
        ("moneta_flash_recovery_seconds", 1.5),
        ("moneta_flash_recovered_items", 130.0),
        ("moneta_flash_recovered_regions", 131.0),
        ("moneta_flash_recovery_read_bytes", 132.0),
        ("moneta_flash_recovery_from_snapshot", 1.0),
    ];
    for (sample, value) in expected {
        assert_eq!(seen.get(sample), value, "{sample}");
    }
    // The clock goes on while the test does.
    assert!((500.0..600.0).contains(&seen.get("moneta_flash_oldest_age_seconds")));
}

#[test]
fn ratios_of_nothing_are_zero() {
    let server = start();
    server.gate.set_tiers(FlashStats::default(), TierStats { upper: "ram", lower: "ssd", ..TierStats::default() });
    let seen = metrics(&server);
    for ratio in ["reads_per_lookup", "index_bytes_per_item", "write_amplification"] {
        assert_eq!(seen.get(&format!("moneta_flash_{ratio}")), 0.0, "{ratio}");
    }
    assert_eq!(seen.get("moneta_flash_oldest_age_seconds"), 0.0, "without a region there is no age since 1970");
}

/// What the `stats` command says.
fn stats(server: &TestServer) -> BTreeMap<String, u64> {
    let (_, page) = fetch(server, "/stats");
    let page: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&page).unwrap();
    page.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

#[test]
fn stats_tell_of_both_tiers_in_memcacheds_words_where_it_has_them() {
    let server = start();
    let mut client = server.connect();
    client.ask("set key 0 0 1\r\nv\r\n", "STORED\r\n");
    assert!(stats(&server).keys().all(|name| !name.contains("extstore") && !name.starts_with("flash_")));
    server.gate.set_tiers(flash(server.node.clock.now().into()), tiers());
    let seen = stats(&server);
    let expected = [
        ("curr_items", 1_000),
        ("ram_items", 1),
        ("evictions", 122),
        ("ram_evictions", 0),
        ("evicted_unfetched", 123),
        ("get_extstore", 202),
        ("recache_from_extstore", 204),
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
        ("tier_ram_hits", 201),
        ("tier_ssd_hits", 202),
        ("tier_misses", 203),
        ("tier_promotions_overtaken", 205),
        ("tier_promotions_declined", 206),
        ("tier_writes_withheld", 207),
        ("tier_write_failures", 208),
        ("tier_key_waits", 209),
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
    ];
    for (name, value) in expected {
        assert_eq!(seen.get(name), Some(&value), "{name}");
    }
    client.send("stats items\r\n");
    client.expect("STAT items:1:number 1000\r\n");
}

#[test]
fn a_store_that_is_not_fit_makes_the_node_unready_and_says_why() {
    let server = start();
    let note = "the SSD tier is being recovered".to_owned();
    server.gate.set_health(Health { unready: true, notes: vec![note.clone()] });
    let (status, page) = fetch(&server, "/readyz");
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!((status, &page["notes"][0]), (503, &note.into()));
    assert_eq!(metrics(&server).get("moneta_ready"), 0.0);
    assert_eq!(fetch(&server, "/healthz").0, 200);
}

#[test]
fn a_store_that_is_only_worse_off_leaves_the_node_ready_and_says_so() {
    let server = start();
    let page = |(status, page): (u16, String)| (status, serde_json::from_str::<serde_json::Value>(&page).unwrap());
    let (status, detail) = page(fetch(&server, "/readyz"));
    assert_eq!((status, &detail["degraded"]), (200, &false.into()));
    server.gate.set_health(Health { unready: false, notes: vec!["L1 is gone".into()] });
    let (status, detail) = page(fetch(&server, "/readyz"));
    assert_eq!((status, &detail["ready"], &detail["degraded"]), (200, &true.into(), &true.into()));
    assert_eq!(detail["notes"][0], "L1 is gone");
    assert_eq!(metrics(&server).get("moneta_ready"), 1.0);
}

#[test]
fn what_a_store_counts_under_names_of_its_own_is_shown_in_metrics_and_stats() {
    let server = start();
    let figure = |name, kind, labels: &[(&'static str, &str)], value| Figure {
        name,
        help: "What it counts.",
        kind,
        labels: labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect(),
        value,
    };
    server.gate.set_figures(vec![
        figure("peer_errors_total", FigureKind::Counter, &[("server", "a b"), ("kind", "timeout")], 3.0),
        figure("peer_up", FigureKind::Gauge, &[], 0.5),
        figure("peer_errors_total", FigureKind::Counter, &[("server", "c"), ("kind", "timeout")], 4.0),
        figure("peer_requests_total", FigureKind::Counter, &[], 7.0),
    ]);
    let seen = metrics(&server);
    assert_eq!(seen.get("moneta_peer_errors_total{server=\"a b\",kind=\"timeout\"}"), 3.0);
    assert_eq!(seen.get("moneta_peer_errors_total{server=\"c\",kind=\"timeout\"}"), 4.0);
    assert_eq!(seen.get("moneta_peer_up"), 0.5);
    assert_eq!(seen.get("moneta_peer_requests_total"), 7.0);
    let seen = stats(&server);
    assert_eq!(seen.get("peer_errors_total:ab:timeout"), Some(&3), "a name in stats has no blanks");
    assert_eq!(seen.get("peer_requests_total"), Some(&7));
}

#[test]
fn tiers_are_named_by_what_they_are_and_all_items_are_the_lower_ones() {
    let server = start();
    let tiers = TierStats { upper: "remote_l1", lower: "rocks", lower_items: 70, lower_evictions: 5, ..tiers() };
    server.gate.set_only_tiers(tiers);
    let seen = metrics(&server);
    assert_eq!(seen.get("moneta_tier_reads_total{tier=\"remote_l1\"}"), 201.0);
    assert_eq!(seen.get("moneta_tier_reads_total{tier=\"rocks\"}"), 202.0);
    assert_eq!(seen.get("moneta_tier_items{tier=\"rocks\"}"), 70.0);
    let seen = stats(&server);
    for (name, value) in [("curr_items", 70), ("evictions", 5), ("tier_remote_l1_hits", 201), ("tier_rocks_hits", 202)]
    {
        assert_eq!(seen.get(name), Some(&value), "{name}");
    }
}
