//! Guards against what a store and its tiers say of themselves being shown wrong, or not at all. What each of them says is
//! tested beside it.

mod support;

use std::collections::BTreeMap;

use moneta_store::metric::{Histogram, Metric, Unit};
use moneta_store::{Below, Health, StoreStats};
use support::TestServer;
use support::admin::{fetch, metrics, start};

/// What the `stats` command says.
fn stats(server: &TestServer) -> BTreeMap<String, u64> {
    let (_, page) = fetch(server, "/stats");
    let page: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&page).unwrap();
    page.into_iter().filter_map(|(name, value)| Some((name, value.as_u64()?))).collect()
}

/// What `stats` says of a group.
fn group(server: &TestServer, name: &str) -> BTreeMap<String, u64> {
    let mut client = server.connect();
    client.send(format!("stats {name}\r\n"));
    let mut text = Vec::new();
    while !text.ends_with(b"END\r\n") {
        text.extend(client.receive(1));
    }
    let text = String::from_utf8(text).unwrap();
    let told = text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split_once(' '));
    told.filter_map(|(key, value)| Some((key.to_owned(), value.parse().ok()?))).collect()
}

#[test]
fn stats_count_the_items_of_the_lower_tier_where_there_are_two() {
    let server = start();
    let mut client = server.connect();
    client.ask("set key 0 0 1\r\nv\r\n", "STORED\r\n");
    assert_eq!(stats(&server)["curr_items"], 1);
    server.gate.set_stats(|stats| StoreStats {
        evictions: 3,
        below: Some(Below { items: 1_000, evictions: 122, evicted_unfetched: 123 }),
        device_bytes: 5 << 20,
        ..stats
    });
    let seen = stats(&server);
    for (key, value) in [("curr_items", 1_000), ("evictions", 122), ("evicted_unfetched", 123)] {
        assert_eq!(seen.get(key), Some(&value), "{key}");
    }
    let seen = metrics(&server);
    assert_eq!((seen.get("moneta_items"), seen.get("moneta_evictions_total")), (1.0, 3.0));
    let seen = group(&server, "items");
    assert_eq!((seen["items:1:number"], seen["items:1:evicted"], seen["items:1:evicted_unfetched"]), (1_000, 122, 123));
    let seen = group(&server, "slabs");
    assert_eq!((seen["1:total_pages"], seen["1:used_chunks"]), (5, 1_000));
}

#[test]
fn where_items_leave_in_the_order_they_came_their_age_is_that_of_the_oldest() {
    let server = start();
    let mut client = server.connect();
    client.ask("set key 0 0 1\r\nv\r\n", "STORED\r\n");
    // The second after 1970 began: longer ago than any test takes.
    const LONG: u64 = 1_000_000_000;
    let ages = || (group(&server, "items")["items:1:age"], group(&server, "items")["items:1:evicted_time"]);
    server.gate.set_stats(|stats| StoreStats { oldest_second: Some(1), tail_idle: 7, ..stats });
    assert!(ages().0 > LONG && ages().1 == 0, "nothing was evicted");
    server.gate.set_stats(|stats| StoreStats { oldest_second: Some(1), evictions: 1, ..stats });
    assert!(ages().1 > LONG);
    server.gate.set_stats(|stats| StoreStats { oldest_second: Some(0), evictions: 1, ..stats });
    assert_eq!(ages(), (0, 0), "without a region there is no age since 1970");
    server.gate.set_stats(|stats| StoreStats { tail_idle: 7, evicted_idle: 9, ..stats });
    assert_eq!(ages(), (7, 9));
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
fn what_a_store_declares_is_shown_in_metrics_and_stats() {
    let server = start();
    const ERRORS: Metric =
        Metric::counter("peer_errors_total", Unit::Count, "What it counts.").labels(&["server", "kind"]);
    const UP: Metric = Metric::gauge("peer_up", Unit::Count, "What it counts.");
    const REQUESTS: Metric = Metric::counter("peer_requests_total", Unit::Count, "What it counts.").keys(&["asked"]);
    const LIMIT: Metric = Metric::only_stats("peer_limit");
    const TIMES: Metric = Metric::histogram("peer_seconds", Unit::Seconds, "How long it took.");
    server.gate.set_metrics(vec![
        ERRORS.labelled(["a b", "timeout"], 3),
        UP.sample(0.5),
        ERRORS.labelled(["c", "timeout"], 4),
        REQUESTS.sample(7.0),
        LIMIT.sample(8),
        TIMES.sample(Histogram { buckets: vec![(0.5, 2), (f64::INFINITY, 1)], sum: 3.5 }),
    ]);
    let seen = metrics(&server);
    assert_eq!(seen.get("moneta_peer_errors_total{server=\"a b\",kind=\"timeout\"}"), 3.0);
    assert_eq!(seen.get("moneta_peer_errors_total{server=\"c\",kind=\"timeout\"}"), 4.0);
    assert_eq!(seen.get("moneta_peer_up"), 0.5);
    assert_eq!(seen.get("moneta_peer_requests_total"), 7.0);
    for (sample, value) in [("bucket{le=\"0.5\"}", 2.0), ("bucket{le=\"+Inf\"}", 3.0), ("count", 3.0), ("sum", 3.5)] {
        assert_eq!(seen.get(&format!("moneta_peer_seconds_{sample}")), value, "{sample}");
    }
    assert!(seen.samples.keys().all(|name| !name.contains("peer_limit")));
    let seen = stats(&server);
    assert_eq!(seen.get("peer_errors_total:ab:timeout"), Some(&3), "a name in stats has no blanks");
    assert_eq!((seen.get("asked"), seen.get("peer_limit")), (Some(&7), Some(&8)));
    assert!(!seen.contains_key("peer_seconds") && !seen.contains_key("peer_requests_total"));
}
