//! `moneta repair`: planted differences of every kind are found and repaired, and what was evicted is none.

use std::sync::LazyLock;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::common::{Node, file, moneta, output};

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
    let node = Node::start(&["--cluster", "--threads", "1", "-m", "64"]);
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
}
