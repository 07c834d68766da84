//! Guards what operators look at: the numbers are those of the traffic, the format is one that Prometheus reads, and the
//! documented metrics are the served ones.

mod support;

use std::collections::{BTreeMap, BTreeSet};

use moneta_server::ServerConfig;
use moneta_server::latency::SAMPLE;
use moneta_store::StoreStats;
use moneta_store::metric::{Metric, Reading};
use support::admin::{fetch, fetch_as, metrics, start, start_with};
use support::{TestServer, config, eventually, hit, set};

#[test]
fn metrics_count_the_traffic() {
    let server = start();
    let mut client = server.connect();
    client.ask(set("key", b"value"), "STORED\r\n");
    for _ in 0..3 {
        client.ask("get key\r\n", hit("key", b"value"));
    }
    client.ask("get none\r\n", "END\r\n");
    client.ask("delete none\r\n", "NOT_FOUND\r\n");
    client.ask("nonsense\r\n", "ERROR\r\n");

    let sent = set("key", b"value").len() + 3 * 9 + 10 + 13 + 10;
    let replies = 8 + 3 * hit("key", b"value").len() + 5 + 11 + 7;
    // What is sent is counted after the client may have it.
    eventually("all is sent", || metrics(&server).get("moneta_sent_bytes_total") == replies as f64);
    let seen = metrics(&server);
    assert_eq!(seen.get("moneta_commands_total{command=\"get\"}"), 4.0);
    assert_eq!(seen.get("moneta_commands_total{command=\"set\"}"), 1.0);
    assert_eq!(seen.get("moneta_commands_total{command=\"delete\"}"), 1.0);
    assert_eq!(seen.get("moneta_command_results_total{command=\"get\",result=\"hit\"}"), 3.0);
    assert_eq!(seen.get("moneta_command_results_total{command=\"get\",result=\"miss\"}"), 1.0);
    assert_eq!(seen.get("moneta_request_errors_total{reason=\"protocol\"}"), 1.0);
    assert_eq!(seen.get("moneta_received_bytes_total"), sent as f64);
    assert_eq!(seen.get("moneta_connections"), 1.0);
    assert_eq!(seen.get("moneta_items"), 1.0);
    assert_eq!(seen.get("moneta_ready"), 1.0);
    drop(client);
    eventually("the connection is gone", || metrics(&server).get("moneta_connections") == 0.0);
}

#[test]
fn one_key_is_told_and_left_as_it_is() {
    let server = start();
    let mut client = server.connect();
    client.ask("set a 7 0 5\r\nhello\r\n", "STORED\r\n");
    let told = |query: &str| {
        let (status, page) = fetch(&server, &format!("/key?{query}"));
        (status, serde_json::from_str::<serde_json::Value>(&page).unwrap_or_default())
    };
    let (status, page) = told("key=a");
    assert_eq!(status, 200);
    assert_eq!((&page["found"], &page["flags"], &page["bytes"]), (&true.into(), &7.into(), &5.into()), "{page}");
    assert_eq!((&page["expiry"], &page["fetched"]), (&serde_json::Value::Null, &false.into()), "{page}");
    assert!(page.get("value64").is_none());
    assert_eq!(told("key64=YQ%3D%3D&value=1").1["value64"], "aGVsbG8=");
    // Looking is no reading.
    assert_eq!(told("key=a").1["fetched"], false);
    assert_eq!(told("key=none").1["found"], false);
    for wrong in ["", "key=", "key=a&key64=YQ==", "key64=!", "key=a&other=1", &format!("key={}", "k".repeat(251))] {
        assert_eq!(told(wrong).0, 400, "{wrong}");
    }
}

#[test]
fn a_compare_and_swap_counts_once() {
    let server = start();
    let mut client = server.connect();
    client.ask(set("key", b"value"), "STORED\r\n");
    client.ask("cas key 0 0 1 99999\r\nx\r\n", "EXISTS\r\n");
    let seen = metrics(&server);
    assert_eq!(seen.get("moneta_commands_total{command=\"set\"}"), 1.0);
    assert_eq!(seen.get("moneta_commands_total{command=\"cas\"}"), 1.0);
}

#[test]
fn each_listeners_connections_are_told() {
    let server = start();
    let _client = server.connect();
    eventually("it is accepted", || metrics(&server).get("moneta_connections") == 1.0);
    let address = &server.running.listen_addresses()[0];
    let seen = metrics(&server);
    assert_eq!(seen.get(&format!("moneta_listener_connections{{listener=\"{address}\"}}")), 1.0);
    assert_eq!(seen.get(&format!("moneta_listener_connections_opened_total{{listener=\"{address}\"}}")), 1.0);
    assert_eq!(seen.get(&format!("moneta_listener_connections_rejected_total{{listener=\"{address}\"}}")), 0.0);
}

#[test]
fn the_process_is_told_of_under_the_names_that_dashboards_know() {
    let seen = metrics(&start());
    assert!(seen.get("process_resident_memory_bytes") > 1e6);
    assert!(seen.get("process_virtual_memory_bytes") >= seen.get("process_resident_memory_bytes"));
    let (open, most) = (seen.get("process_open_fds"), seen.get("process_max_fds"));
    assert!(open > 3.0 && open < most, "{open} of {most}");
    assert!(seen.get("process_cpu_seconds_total") > 0.0 && seen.get("process_threads") > 1.0);
}

#[test]
fn a_scrape_gets_the_format_it_asks_for() {
    let server = start();
    let (_, head, body) = fetch_as(&server, "/metrics", "application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
    assert!(head.contains("content-type: application/openmetrics-text; version=1.0.0"), "{head}");
    assert!(body.contains("# TYPE moneta_sent_bytes counter\n") && body.ends_with("# EOF\n"));
    for accept in ["*/*", "text/plain;version=0.0.4"] {
        let (_, head, body) = fetch_as(&server, "/metrics", accept);
        assert!(head.contains("content-type: text/plain; version=0.0.4"), "{head}");
        assert!(body.contains("# TYPE moneta_sent_bytes_total counter\n") && !body.contains("# EOF"));
    }
}

#[test]
fn histograms_are_cumulative_and_complete() {
    let server = start_with(ServerConfig { workers: 1, ..config() });
    let mut client = server.connect();
    // One command in a sample is timed and stands for all.
    let count = 20 * SAMPLE;
    for _ in 0..count {
        client.ask("get none\r\n", "END\r\n");
    }
    let count = count as f64;
    let seen = metrics(&server);
    let buckets = |command: &str| -> Vec<(f64, f64)> {
        let prefix = "moneta_command_duration_seconds_bucket{";
        let mut found: Vec<(f64, f64)> = seen
            .samples
            .iter()
            .filter(|(name, _)| {
                name.starts_with(prefix) && name.contains(&format!("command=\"{command}\",policy=\"online\""))
            })
            .map(|(name, &count)| {
                let bound = name.split("le=\"").nth(1).unwrap().split('"').next().unwrap();
                (bound.parse().unwrap_or(f64::INFINITY), count)
            })
            .collect();
        found.sort_by(|one, other| one.0.total_cmp(&other.0));
        found
    };
    let gets = buckets("get");
    assert!(gets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{gets:?}");
    assert_eq!(gets.last(), Some(&(f64::INFINITY, count)));
    assert_eq!(seen.get("moneta_command_duration_seconds_count{command=\"get\",policy=\"online\"}"), count);
    assert!(seen.get("moneta_command_duration_seconds_sum{command=\"get\",policy=\"online\"}") > 0.0);
    assert_eq!(buckets("set").last(), Some(&(f64::INFINITY, 0.0)));
}

/// Names, as samples have them, with their types.
fn served(server: &TestServer) -> BTreeMap<String, String> {
    let with_suffix = |(name, sort)| (if sort == "counter" { format!("{name}_total") } else { name }, sort);
    metrics(server).types.into_iter().map(with_suffix).collect()
}

/// The same as the page has them.
fn documented() -> BTreeMap<String, String> {
    let page = std::fs::read_to_string("../../docs/metrics.md").unwrap();
    let row = |line: &str| {
        let (series, meaning) = line.strip_prefix("| `")?.split_once("` | ")?;
        let name = series.split('{').next()?;
        let kind = match () {
            () if name.ends_with("_total") => "counter",
            () if meaning.starts_with("Histogram: ") => "histogram",
            () => "gauge",
        };
        let is_metric = name.starts_with("moneta_") || name.starts_with("process_");
        is_metric.then(|| (name.to_owned(), kind.to_owned()))
    };
    page.lines().filter_map(row).collect()
}

#[test]
fn the_documented_metrics_are_the_served_ones() {
    let server = start();
    let of_every_node: BTreeSet<_> = moneta_server::metrics()
        .chain(moneta_process::desk::metrics())
        .chain(StoreStats::METRICS.iter().map(Reading::metric).filter(Metric::is_in_metrics))
        .map(|metric| format!("moneta_{}", metric.name))
        .collect();
    // Of readers of a feed, apps with limits, users, an audit log, a certificate, and gets that were counted: this node has none.
    let of_others = |name: &str| {
        let starts = |with: &[&str]| with.iter().any(|with| name.starts_with(with));
        (name.starts_with("moneta_feed_") && name != "moneta_feed_gaps_total")
            || starts(&[
                "moneta_app_",
                "moneta_user",
                "moneta_working_set",
                "moneta_audit_",
                "moneta_tls_reloads",
                "moneta_tls_certificate",
            ])
    };
    let of_a_node = |(name, _): &(String, String)| {
        (of_every_node.contains(name) || name.starts_with("process_")) && !of_others(name)
    };
    assert_eq!(served(&server), documented().into_iter().filter(of_a_node).collect());
}

#[test]
fn statistics_as_json_have_the_keys_of_the_stats_command() {
    let server = start();
    let mut client = server.connect();
    client.ask(set("key", b"value"), "STORED\r\n");
    client.send("stats\r\n");
    let mut text = Vec::new();
    while !text.ends_with(b"END\r\n") {
        text.extend(client.receive(1));
    }
    let text = String::from_utf8(text).unwrap();
    let commanded: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("STAT ")?.split(' ').next()).collect();
    let (status, page) = fetch(&server, "/stats");
    assert_eq!(status, 200);
    let page: serde_json::Map<String, serde_json::Value> = serde_json::from_str(&page).unwrap();
    assert_eq!(page.keys().map(String::as_str).collect::<BTreeSet<_>>(), commanded);
    assert_eq!(page["cmd_set"], 1);
}

#[test]
fn a_draining_node_lives_but_is_not_ready() {
    let server = start();
    let mut waiting = server.connect();
    waiting.send("get slow\r\n");
    eventually("it waits", || server.gate.waiting() == 1);
    let (status, page) = fetch(&server, "/readyz");
    assert_eq!(status, 200);
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!((&page["ready"], &page["connections"]), (&true.into(), &1.into()));

    server.running.shutdown(true);
    let (status, page) = fetch(&server, "/readyz");
    let page: serde_json::Value = serde_json::from_str(&page).unwrap();
    assert_eq!((status, &page["phase"]), (503, &"draining".into()));
    assert_eq!(fetch(&server, "/healthz").0, 200);
    assert_eq!(metrics(&server).get("moneta_ready"), 0.0);
    server.gate.open();
    waiting.expect("END\r\n");
    server.running.join().unwrap();
}

#[test]
fn an_unknown_page_is_not_found() {
    assert_eq!(fetch(&start(), "/nothing").0, 404);
}
