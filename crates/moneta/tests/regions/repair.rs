//! `moneta repair`: planted differences of every kind are found and repaired, and what was evicted is none.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{Node, file, moneta, output};
use crate::world::page;

/// The milliseconds of 2020-01-01, where versions begin.
const BEGIN: u64 = 1_577_836_800_000;
const SAME: usize = 300;
const OF_EACH: usize = 10;

/// A version of so many seconds before the first one was made, so that what is told to two nodes is one.
fn version(ago: u64, count: usize) -> u64 {
    static FIRST: LazyLock<u64> = LazyLock::new(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
        u64::try_from(since.as_millis()).expect("it fits")
    });
    let now = *FIRST;
    (now - BEGIN - ago * 1000) << 22 | (count as u64) << 8
}

fn node() -> (Node, String) {
    node_of("64")
}

fn node_of(memory: &str) -> (Node, String) {
    node_with(&["--cluster", "--threads", "1", "-m", memory])
}

fn node_with(options: &[&str]) -> (Node, String) {
    let node = Node::start(options);
    node.wait_for_log("admin HTTP listening");
    let log = node.log();
    let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
    let admin = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
    (node, admin.to_owned())
}

/// What both nodes are told.
#[derive(Default)]
struct Told([String; 2]);

impl Told {
    fn set(&mut self, at: usize, key: &str, version: u64, end: u32) {
        let value = format!("{key}@{version}");
        let end = if end == 0 { String::new() } else { format!(" D{end}") };
        self.0[at].push_str(&format!("ms {key} {} V{version}{end}\r\n{value}\r\n", value.len()));
    }

    fn delete(&mut self, at: usize, key: &str, version: u64) {
        self.0[at].push_str(&format!("md {key} V{version}\r\n"));
    }
}

fn repair(a: &str, b: &str, more: &[&str]) -> serde_json::Value {
    let ran = output(moneta(&["repair", a, b, "--lag", "0", "--json"]).args(more));
    assert!(ran.status.success(), "{ran:?}");
    let text = String::from_utf8(ran.stdout).expect("text");
    serde_json::from_str(text.lines().last().expect("a line")).expect("JSON")
}

fn counts(report: &serde_json::Value) -> [u64; 6] {
    ["older", "life", "deleted", "evicted", "flushed", "changed"].map(|name| report[name].as_u64().expect("a count"))
}

#[test]
fn every_planted_difference_is_repaired_and_what_is_evicted_is_none() {
    let ((a, admin_a), (b, admin_b)) = (node(), node());
    let (old, new) = (|count| version(120, count), |count| version(60, count));
    let mut told = Told::default();
    let end = u32::try_from(SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs())
        .expect("it fits")
        + 10_000;
    for number in 0..SAME {
        [0, 1].iter().for_each(|at| told.set(*at, &format!("same{number}"), old(number), 0));
    }
    for number in 0..OF_EACH {
        for (behind, ahead) in [(0, 1), (1, 0)] {
            let key = |what: &str| format!("{what}{behind}.{number}");
            told.set(behind, &key("older"), old(number), 0);
            told.set(ahead, &key("older"), new(number), 0);
            told.set(behind, &key("life"), new(number), end);
            told.set(ahead, &key("life"), new(number), if number % 2 == 0 { 0 } else { end + 100 });
            told.set(behind, &key("deleted"), old(number), 0);
            told.delete(ahead, &key("deleted"), new(number));
            // Each of three times as many is on one node alone.
            (0..3).for_each(|copy| told.set(ahead, &format!("evicted{behind}.{number}.{copy}"), old(number), 0));
        }
    }
    [&a, &b].iter().zip(&told.0).for_each(|(node, text)| {
        let answers = node.exchange(text);
        assert!(answers.lines().all(|line| line == "HD" || line == "NF"), "{answers}");
    });
    let each = 2 * OF_EACH as u64;
    let planted = [each, each, each, 3 * each, 0, 0];
    // At first nothing is written.
    for _ in 0..2 {
        assert_eq!(counts(&repair(&admin_a, &admin_b, &["--full", "--dry-run"])), planted);
    }
    assert_eq!(counts(&repair(&admin_a, &admin_b, &["--since", "30s"])), [0; 6], "all is older than that");
    let report = repair(&admin_a, &admin_b, &["--full"]);
    assert_eq!(counts(&report), planted, "{report}");
    assert_eq!((report["to_a"].as_u64(), report["to_b"].as_u64()), (Some(30), Some(30)), "{report}");
    let again = repair(&admin_a, &admin_b, &["--full"]);
    assert_eq!(counts(&again), [0, 0, 0, 3 * each, 0, 0], "{again}");
    for number in 0..OF_EACH {
        for behind in 0..2 {
            let key = |what: &str| format!("{what}{behind}.{number}");
            let shown = |node: &Node, key: &str| node.exchange(&format!("mg {key} v V D\r\n"));
            for what in ["older", "life"] {
                assert_eq!(shown(&a, &key(what)), shown(&b, &key(what)), "{}", key(what));
            }
            assert!(shown(&a, &key("older")).contains(&format!("V{}", version_of(&shown(&b, &key("older"))))));
            assert_eq!([&a, &b].map(|node| shown(node, &key("deleted"))), ["EN\r\n"; 2], "{}", key("deleted"));
        }
    }
}

/// The version in an answer.
fn version_of(answer: &str) -> &str {
    answer
        .split([' ', '\r'])
        .find_map(|word| word.strip_prefix('V').filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit())))
        .expect("a version")
}

#[test]
fn a_flush_of_one_side_is_no_delete_and_copies_are_repaired_by_their_topology() {
    let ((a, admin_a), (b, admin_b)) = (node(), node());
    let mut told = Told::default();
    for number in 0..50 {
        told.set(1, &format!("k{number}"), version(60, number), 0);
    }
    b.exchange(&told.0[1]);
    // A flush that A alone has heard of.
    assert_eq!(a.exchange("flush_all\r\n"), "OK\r\n");
    let folder = tempfile::tempdir().expect("a folder");
    let replica = |name: &str, node: &Node, admin: &str| {
        format!(
            "[[replica]]\nname = \"{name}\"\nzone = \"{name}\"\n[[replica.nodes]]\nslot = \"0\"\naddress = \"{}\"\nadmin = \"{admin}\"\n",
            node.address()
        )
    };
    let text = format!("epoch = 1\n{}{}", replica("a", &a, &admin_a), replica("b", &b, &admin_b));
    let topology = file(folder.path(), "topology.toml", &text);
    let state = folder.path().join("state.json");
    let more = ["--full", "--topology", &topology, "--state-file", state.to_str().expect("plain")];
    let report = repair("a", "b", &more);
    assert_eq!(counts(&report), [0, 0, 0, 0, 50, 0], "{report}");
    assert!(!state.exists(), "the next one begins anew");
    assert!(b.exchange("mg k7 v\r\n").starts_with("VA "), "it lives where it was not flushed");
    // Between regions, what is newer is written to all copies.
    b.exchange(&format!("ms new 1 V{}\r\nx\r\n", version(30, 1)));
    a.exchange("ms new 1\r\ny\r\n");
    let report = repair("a", "b", &["--full", "--topology", &topology, "--to-topology", &topology]);
    assert_eq!(counts(&report)[0], 1, "{report}");
    assert_eq!(b.exchange("mg new v\r\n"), "VA 1\r\ny\r\n");
    // No proxy takes that for another app, whose keys a flush would empty.
    let arguments = ["proxy", "-p", "0", "--admin", "off", "--threads", "1", "--topology", &topology];
    assert_eq!(Node::run(&mut moneta(&arguments)).exchange("flush_all\r\n"), "OK\r\n");
}

/// Without this each one of a time begins anew, since the time is another one.
#[test]
fn a_repair_of_a_time_that_was_cut_short_goes_on_and_then_looks_at_what_came_since() {
    let ((a, admin_a), (b, admin_b)) = (node(), node());
    let mut told = Told::default();
    for (key, ago) in [("older", 2000), ("newer", 30)] {
        told.set(0, key, version(4000, 0), 0);
        told.set(1, key, version(ago, 1), 0);
    }
    [&a, &b].iter().zip(&told.0).for_each(|(node, text)| drop(node.exchange(text)));
    let folder = tempfile::tempdir().expect("a folder");
    let millis = |ago: u64| (version(ago, 0) >> 22) + BEGIN;
    // As one of an hour left it half an hour ago, which was done with a bucket.
    let kept = serde_json::json!({
        "sides": [admin_a, admin_b], "below": 1,
        "span": { "since": millis(5400), "until": millis(1800), "buckets": 4096, "prefix": "" },
    });
    let state = file(folder.path(), "state.json", &kept.to_string());
    let report = repair(&admin_a, &admin_b, &["--since", "1000s", "--state-file", &state]);
    assert_eq!(counts(&report)[0], 2, "{report}");
    for key in ["older", "newer"] {
        assert_eq!(a.exchange(&format!("mg {key} v V\r\n")), b.exchange(&format!("mg {key} v V\r\n")));
    }
    assert!(!std::path::Path::new(&state).exists(), "the next one begins anew");
}

/// Without this each repair of a night reads all that is on SSD.
#[test]
fn what_was_not_written_since_is_not_read() {
    const OLD: usize = 40_000;
    let folder = tempfile::tempdir().expect("a folder");
    let nodes = ["a", "b"].map(|name| {
        let tier = format!("{}:160m", folder.path().join(name).display());
        node_with(&["--cluster", "--threads", "1", "-m", "64", "--flash", &tier])
    });
    let value = "v".repeat(1000);
    for (at, (node, _)) in nodes.iter().enumerate() {
        for first in (0..OLD).step_by(5000) {
            let set = |key: usize| format!("ms key{key} 1000 V{}\r\n{value}\r\n", version(7200, key % 16_000));
            let text: String = (first..first + 5000).map(set).collect();
            assert!(node.exchange(&text).lines().all(|line| line == "HD"), "a node does not take it");
        }
        let text: String = (0..20).map(|key| format!("ms key{key} 1 V{}\r\n{at}\r\n", version(60, at))).collect();
        assert!(node.exchange(&text).lines().all(|line| line == "HD"), "a node does not take it");
    }
    let [(_, admin_a), (_, admin_b)] = &nodes;
    let read = || {
        let text = [admin_a, admin_b].map(|admin| page(admin, "/metrics")).concat();
        let lines = text.lines().filter_map(|line| line.strip_prefix("moneta_flash_device_read_bytes_total "));
        lines.map(|bytes| bytes.parse::<f64>().expect("a number")).sum::<f64>()
    };
    let begun = read();
    let report = repair(admin_a, admin_b, &["--since", "30m"]);
    let of_since = read() - begun;
    assert_eq!(counts(&report)[0], 20, "{report}");
    repair(admin_a, admin_b, &["--full"]);
    let of_all = read() - begun - of_since;
    println!("{of_since} bytes read for the last half hour, {of_all} for all");
    assert!(of_all > 1000.0 * OLD as f64 && of_since < of_all / 3.0, "{of_since} of {of_all} bytes are read");
}

/// Two nodes that hold the same keys, but for those that `lacks` says.
fn alike(memory: &str, keys: usize, lacks: impl Fn(usize, usize) -> bool) -> [(Node, String); 2] {
    let nodes = [node_of(memory), node_of(memory)];
    let value = "v".repeat(1000);
    for first in (0..keys).step_by(5000) {
        for (at, (node, _)) in nodes.iter().enumerate() {
            let set = |key: usize| format!("ms key{key} 1000 V{}\r\n{value}\r\n", version(120, key % 16_000));
            let text: String = (first..(first + 5000).min(keys)).filter(|key| !lacks(at, *key)).map(set).collect();
            assert!(node.exchange(&text).lines().all(|line| line == "HD"), "a node does not take it");
        }
    }
    nodes
}

/// `REPAIR_KEYS`: how many, a million where it is not set.
#[test]
#[ignore = "it takes minutes and 3 GiB: `make measure-repair` runs it"]
fn among_a_million_keys_a_thousand_differences_are_found_and_no_eviction_is_repaired() {
    const KINDS: usize = 6;
    const PLANTED: usize = 167 * KINDS;
    let keys = std::env::var("REPAIR_KEYS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_000_000);
    let [(a, admin_a), (b, admin_b)] = alike("1600", keys, |_, _| false);
    let mut told = Told::default();
    let newer = |count: usize| version(60, count % 16_000);
    let value = "w".repeat(1000);
    for number in 0..PLANTED {
        let (key, at, kind) = (number * (keys / PLANTED), number % 2, number % KINDS / 2);
        let text = match kind {
            0 => format!("ms key{key} 1000 V{}\r\n{value}\r\n", newer(number)),
            // The other way round: what is there lives for ever, and what is told to both ends, on one of them later.
            1 => format!("ms life{key} 1000 V{}\r\n{value}\r\n", newer(number)),
            _ => format!("md key{key} V{}\r\n", newer(number)),
        };
        told.0[at].push_str(&text);
        if kind == 1 {
            let end = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs() + 10_000;
            told.0[1 - at].push_str(&text.replace("\r\nw", &format!(" D{end}\r\nw")));
        }
    }
    [&a, &b].iter().zip(&told.0).for_each(|(node, text)| {
        assert!(node.exchange(text).lines().all(|line| line == "HD"), "a node does not take it");
    });
    let began = std::time::Instant::now();
    let report = repair(&admin_a, &admin_b, &["--full", "--buckets", "65536"]);
    let took = began.elapsed();
    let each = (PLANTED / 3) as u64;
    assert_eq!(counts(&report), [each, each, each, 0, 0, 0], "{report}");
    let bytes = |name: &str| report[name].as_u64().expect("a count");
    let least = bytes("copied_bytes") + (PLANTED * "key1000000 1790000000000000000".len()) as u64;
    let moved = bytes("list_bytes") + bytes("copied_bytes");
    println!(
        "{keys} keys, {PLANTED} differences: found in {:.1} s; digests {} B; listed and copied {moved} B, {:.2} of the least (wanted: 3)",
        took.as_secs_f64(),
        bytes("digest_bytes"),
        moved as f64 / least as f64
    );
    assert_eq!(counts(&repair(&admin_a, &admin_b, &["--full"])), [0; 6], "all is alike");
    drop((a, b));
    // A tenth of the keys is gone on each side, another one on each.
    let keys = keys / 5;
    let [(_a, admin_a), (_b, admin_b)] = alike("400", keys, |at, key| key % 10 == at);
    let report = repair(&admin_a, &admin_b, &["--full"]);
    assert_eq!(counts(&report), [0, 0, 0, keys as u64 / 5, 0, 0], "{report}");
    assert_eq!((bytes_of(&report, "to_a"), bytes_of(&report, "to_b")), (0, 0));
}

fn bytes_of(report: &serde_json::Value, name: &str) -> u64 {
    report[name].as_u64().expect("a count")
}
