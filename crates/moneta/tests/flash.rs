//! Guards the node with an SSD tier as a process: that what it acknowledged is there after any end, that both tiers and both
//! policies are really in use, and that devices it cannot have are refused untouched.

mod common;

use std::fs;
use std::io::{Read, Write};

use common::{Node, connect, exchange, file, moneta, output, printed, refused};
use nix::sys::signal::Signal;

/// A small tier in a temporary folder, with the smallest RAM above it.
struct TierPlace {
    folder: tempfile::TempDir,
}

impl TierPlace {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    fn device(&self) -> String {
        format!("{}:24m", self.folder.path().display())
    }

    fn start(&self, more: &[&str]) -> Node {
        let device = self.device();
        let tier = ["--flash", &device, "--flash-region-size", "256k", "-I", "64k", "-m", "8", "-t", "2"];
        Node::start(&[&tier[..], more].concat())
    }
}

fn set(key: &str, value: &str) -> String {
    format!("set {key} 0 0 {}\r\n{value}\r\n", value.len())
}

/// The numbers that `stats` says.
fn stat(node: &Node, name: &str) -> u64 {
    let stats = node.exchange("stats\r\n");
    let line = stats.lines().find_map(|line| line.strip_prefix("STAT ")?.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("no {name} in {stats}"))
}

fn batch(node: &Node, requests: &str) -> String {
    let listening = node.listening();
    let address = listening.iter().find_map(|address| address.strip_suffix(" (batch)")).expect("a batch port");
    exchange(connect(address), requests)
}

fn end(mut node: Node, signal: Signal) {
    node.signal(signal);
    let status = node.wait();
    assert_eq!(status.success(), signal == Signal::SIGTERM, "{status:?}: {}", node.log());
}

/// Values of 1 KiB that differ from key to key.
fn value(number: usize) -> String {
    format!("{number:05}").repeat(205)
}

/// Reads the first `count` keys; how many are there. Each has its value or none.
fn get_all(node: &Node, count: usize) -> usize {
    let requests: String = (0..count).map(|number| format!("get key{number}\r\n")).collect();
    let replies = node.exchange(&requests);
    let mut rest = replies.as_str();
    let mut hits = 0;
    for number in 0..count {
        if let Some(behind) = rest.strip_prefix(&format!("VALUE key{number} 0 1025\r\n{}\r\n", value(number))) {
            (rest, hits) = (behind, hits + 1);
        }
        rest = rest.strip_prefix("END\r\n").unwrap_or_else(|| panic!("key{number} has a wrong value"));
    }
    hits
}

#[test]
fn what_does_not_fit_into_ram_is_read_from_ssd_and_is_there_after_a_clean_stop() {
    const COUNT: usize = 14_000;
    let place = TierPlace::new();
    let node = place.start(&[]);
    assert!(
        node.screen
            .iter()
            .any(|line| line.starts_with("flash ") && line.contains(&place.device().replace("24m", "24MiB")))
    );
    let sets: String = (0..COUNT).map(|number| set(&format!("key{number}"), &value(number))).collect();
    assert_eq!(node.exchange(&sets), "STORED\r\n".repeat(COUNT));
    assert_eq!(get_all(&node, COUNT), COUNT);
    assert_eq!((stat(&node, "curr_items"), stat(&node, "get_misses")), (COUNT as u64, 0));
    assert!(stat(&node, "ram_items") < COUNT as u64 * 2 / 3, "RAM is too small for all");
    assert!(stat(&node, "tier_ssd_hits") > 0);
    end(node, Signal::SIGTERM);
    let node = place.start(&[]);
    assert_eq!(stat(&node, "flash_recovery_from_snapshot"), 1, "{}", node.log());
    assert_eq!(get_all(&node, COUNT), COUNT);
}

#[test]
fn what_was_acknowledged_under_every_write_outlives_a_kill() {
    let place = TierPlace::new();
    let durable = ["--flash-durability", "every-write"];
    let node = place.start(&durable);
    assert!(node.screen.iter().any(|line| line.contains("before a write is acknowledged")));
    let sets: String = (0..100).map(|number| set(&format!("key{number}"), &value(number))).collect();
    assert_eq!(node.exchange(&(sets + "delete key99\r\n")), "STORED\r\n".repeat(100) + "DELETED\r\n");
    end(node, Signal::SIGKILL);
    let node = place.start(&durable);
    assert_eq!(get_all(&node, 100), 99);
    assert_eq!(node.exchange("get key99\r\n"), "END\r\n", "what was deleted stays so");
    assert_eq!(stat(&node, "flash_recovery_from_snapshot"), 0);
}

#[test]
fn what_was_stored_is_on_the_device_within_the_flush_interval() {
    let place = TierPlace::new();
    let node = place.start(&["--flash-flush-interval", "10ms"]);
    assert_eq!(node.exchange(&set("key0", &value(0))), "STORED\r\n");
    let start = std::time::Instant::now();
    while stat(&node, "extstore_bytes_written") < 1_025 {
        assert!(start.elapsed().as_secs() < 60, "it is never written");
    }
    end(node, Signal::SIGKILL);
    assert_eq!(get_all(&place.start(&[]), 1), 1);
}

#[test]
fn the_batch_port_leaves_ram_as_it_is_and_replaces_what_is_hot() {
    let place = TierPlace::new();
    let node = place.start(&["--batch-port", "0"]);
    assert_eq!(batch(&node, &set("cold", "1")), "STORED\r\n");
    assert_eq!(batch(&node, "get cold\r\n"), "VALUE cold 0 1\r\n1\r\nEND\r\n");
    assert_eq!((stat(&node, "curr_items"), stat(&node, "ram_items")), (1, 0));
    // Interactive reads bring it up, and from then on bulk writes keep it true.
    assert_eq!(node.exchange("get cold\r\n"), "VALUE cold 0 1\r\n1\r\nEND\r\n");
    assert_eq!(stat(&node, "ram_items"), 1);
    assert_eq!(batch(&node, &set("cold", "2")), "STORED\r\n");
    assert_eq!(node.exchange("get cold\r\n"), "VALUE cold 0 1\r\n2\r\nEND\r\n");
    assert_eq!((stat(&node, "tier_ram_hits"), stat(&node, "ram_items")), (1, 1));
}

#[test]
fn an_item_that_is_only_on_ssd_can_be_changed_in_every_way() {
    let place = TierPlace::new();
    let node = place.start(&["--batch-port", "0", "--promote", "0%"]);
    for key in ["text", "number", "short"] {
        assert_eq!(batch(&node, &set(key, "5")), "STORED\r\n");
    }
    let requests = "append text 0 0 1\r\n6\r\nprepend text 0 0 1\r\n4\r\nget text\r\nincr number 37\r\ntouch short -1\r\nget short\r\n";
    let replies = "STORED\r\nSTORED\r\nVALUE text 0 3\r\n456\r\nEND\r\n42\r\nTOUCHED\r\nEND\r\n";
    assert_eq!(batch(&node, requests), replies);
}

#[test]
fn the_promotion_policy_is_obeyed() {
    let place = TierPlace::new();
    let node = place.start(&["--batch-port", "0", "--promote", "second"]);
    assert_eq!(batch(&node, &set("key", "1")), "STORED\r\n");
    let ram_items_after_a_get = || {
        assert_eq!(node.exchange("get key\r\n"), "VALUE key 0 1\r\n1\r\nEND\r\n");
        stat(&node, "ram_items")
    };
    assert_eq!([ram_items_after_a_get(), ram_items_after_a_get()], [0, 1]);
}

/// RAM tells the SSD of few of its hits. Without the rest, what was read from RAM alone would be counted as unread.
#[test]
fn what_expires_unread_is_counted_by_prefix() {
    let place = TierPlace::new();
    let node = place.start(&[]);
    node.exchange("stats detail on\r\n");
    let mut sets = String::new();
    for number in 0..20 {
        sets += &format!("set read:{number} 0 1 1\r\nx\r\nget read:{number}\r\nset unread:{number} 0 1 1\r\nx\r\n");
    }
    node.exchange(&sets);
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let gets: String = (0..20).map(|number| format!("get read:{number} unread:{number}\r\n")).collect();
    assert_eq!(node.exchange(&gets), "END\r\n".repeat(20));
    let counted = "PREFIX read expired 20 unread 0 evicted 0 unread 0\r\nPREFIX unread expired 20 unread 20 evicted 0 unread 0\r\n";
    assert_eq!(node.exchange("stats detail unread\r\n"), format!("{counted}END\r\n"));
    end(node, Signal::SIGTERM);
}

#[test]
fn the_write_budget_is_obeyed() {
    let place = TierPlace::new();
    let node = place.start(&["--flash-write-budget", "100k"]);
    let sets: String = (0..1_000).map(|number| set(&format!("key{number}"), &value(number))).collect();
    assert_eq!(node.exchange(&sets), "STORED\r\n".repeat(1_000));
    assert!(stat(&node, "tier_writes_withheld") > 500);
    assert!(stat(&node, "flash_item_bytes_written") < 500_000);
    assert_eq!(get_all(&node, 1_000), 1_000, "RAM has them");
}

#[test]
fn both_ways_of_reading_devices_serve_the_same() {
    let place = TierPlace::new();
    end(
        {
            let node = place.start(&["--batch-port", "0"]);
            assert_eq!(batch(&node, &set("key0", &value(0))), "STORED\r\n");
            node
        },
        Signal::SIGTERM,
    );
    for more in [&["--flash-io", "threads", "--flash-io-threads", "1"][..], &["--flash-direct=false"], &[]] {
        let node = place.start(more);
        assert_eq!(get_all(&node, 1), 1, "{more:?}");
        assert_eq!(stat(&node, "tier_ssd_hits"), 1);
        node.wait_for_log("the SSD tier is open");
        let says = |part: &str| node.log().contains(part);
        assert_eq!(says("io=\"threads\""), more.contains(&"threads"), "{}", node.log());
        assert!(!more.contains(&"--flash-direct=false") || says("io=\"buffered\""), "{}", node.log());
        end(node, Signal::SIGTERM);
    }
}

#[test]
fn metrics_and_readiness_tell_of_the_tier() {
    let place = TierPlace::new();
    let node = place.start(&[]);
    let line = node.screen.iter().find(|line| line.starts_with("admin on")).expect("an admin side");
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(' ').next()).expect("an address");
    let page = |path: &str| {
        let mut stream = connect(address);
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        reply
    };
    assert!(page("/readyz").starts_with("HTTP/1.1 200"));
    let metrics = page("/metrics");
    assert!(metrics.contains("\nmoneta_flash_off 0\n") && metrics.contains("\nmoneta_flash_region_bytes 262144\n"));
}

#[test]
fn two_nodes_cannot_have_one_place() {
    let place = TierPlace::new();
    let node = place.start(&[]);
    let device = place.device();
    let tier = ["serve", "-p", "0", "--admin", "off", "--flash", &device, "--flash-region-size", "256k", "-I", "64k"];
    let message = refused(&mut moneta(&tier), 1);
    assert!(message.contains("another process"), "{message}");
    assert_eq!(node.exchange(&set("key", "1")), "STORED\r\n", "the first one does not notice");
}

#[test]
fn what_cannot_be_a_tier_is_refused_with_what_to_do_and_left_as_it_is() {
    let place = TierPlace::new();
    let at = |name: &str| place.folder.path().join(name).display().to_string();
    let precious = file(place.folder.path(), "precious", "data");
    end(place.start(&[]), Signal::SIGTERM);
    let cases: &[(&str, &[&str])] = &[
        (&format!("{precious}:64m"), &[&precious, "not Moneta's", "name another place"]),
        (&format!("{}:1m", at("small")), &[&at("small"), "at least", "5 MiB"]),
        (&format!("{}:64m", at("no/such")), &[&at("no/such"), "does not exist", "make the directory"]),
        (&format!("{}:1024t", at("huge")), &[&at("huge"), "make room"]),
        ("/dev/null:64m", &["/dev/null", "neither a file, a directory nor a block device"]),
    ];
    for (device, parts) in cases {
        let tier =
            ["serve", "-p", "0", "--admin", "off", "--flash", device, "--flash-region-size", "256k", "-I", "64k"];
        let message = refused(&mut moneta(&tier), 1);
        for part in *parts {
            assert!(message.contains(part), "`{part}` is missing in: {message}");
        }
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "data");
    let message = refused(&mut moneta(&["serve", "-p", "0", "--admin", "off", "--flash", &place.device()]), 1);
    assert!(message.contains("256 KiB") && message.contains("region"), "the size it was made with is named: {message}");
}

#[test]
fn a_tier_may_grow_and_keeps_what_it_has() {
    let place = TierPlace::new();
    let node = place.start(&[]);
    assert_eq!(node.exchange(&set("key0", &value(0))), "STORED\r\n");
    end(node, Signal::SIGTERM);
    let larger = place.device().replace("24m", "40m");
    let tier = ["--flash", &larger, "--flash-region-size", "256k", "-I", "64k", "-m", "8"];
    let node = Node::start(&tier);
    assert_eq!(get_all(&node, 1), 1);
    end(node, Signal::SIGTERM);
    // Smaller than before it is refused, or starts empty and says so.
    let device = place.device();
    let tier = ["serve", "-p", "0", "--admin", "off", "--flash", &device, "--flash-region-size", "256k", "-I", "64k"];
    let message = refused(&mut moneta(&tier), 1);
    assert!(message.contains("become smaller (40 MiB before)") && message.contains("flash_start_empty"), "{message}");
    let node = place.start(&["--flash-start-empty"]);
    assert_eq!(get_all(&node, 1), 0);
    node.wait_for_log("starts empty");
}

fn inspect(place: &TierPlace, more: &[&str]) -> std::process::Command {
    let path = place.folder.path().display().to_string();
    moneta(&[&["flash", "inspect", &path], more].concat())
}

#[test]
fn a_tier_can_be_looked_at_while_no_node_has_it() {
    let place = TierPlace::new();
    let node = place.start(&[]);
    assert!(refused(&mut inspect(&place, &[]), 1).contains("in use by a running node"));
    let sets: String = (0..1_000).map(|number| set(&format!("key{number}"), &value(number))).collect();
    assert_eq!(node.exchange(&sets), "STORED\r\n".repeat(1_000));
    assert_eq!(node.exchange("delete key0\r\nset key1 0 0 1\r\nx\r\n"), "DELETED\r\nSTORED\r\n");
    end(node, Signal::SIGTERM);

    let page: serde_json::Value =
        serde_json::from_str(&printed(&mut inspect(&place, &["--verify", "--json"]))).unwrap();
    let number = |name: &str| page[name].as_u64().unwrap_or_else(|| panic!("no number {name} in {page:#}"));
    assert_eq!((number("records"), number("tombstones"), number("live"), number("damaged")), (1_002, 1, 999, 0));
    assert_eq!((number("devices"), number("region_bytes")), (1, 256 << 10));
    assert_eq!((&page["clean_stop"], &page["whole"], &page["verified"]), (&true.into(), &true.into(), &true.into()));
    let regions = page["regions"].as_array().unwrap();
    assert_eq!(regions.iter().map(|region| region["live"].as_u64().unwrap()).sum::<u64>(), 999);
    let summary = printed(&mut inspect(&place, &[]));
    assert!(summary.contains("records      1002,") && summary.contains("tombstones   1\n"), "{summary}");
    let table = printed(&mut inspect(&place, &["--regions"]));
    let listed = table.lines().filter(|line| line.split_whitespace().nth(3) == Some("free")).count();
    assert_eq!(Some(listed as u64), page["states"]["free"].as_u64(), "{table}");

    // What was looked at is as it was.
    let node = place.start(&[]);
    assert_eq!(stat(&node, "flash_recovery_from_snapshot"), 1);
    assert_eq!(node.exchange("get key0 key1\r\n"), "VALUE key1 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn damage_is_found_named_and_served_as_misses() {
    let place = TierPlace::new();
    let node = place.start(&[]);
    let sets: String = (0..1_000).map(|number| set(&format!("key{number}"), &value(number))).collect();
    assert_eq!(node.exchange(&sets), "STORED\r\n".repeat(1_000));
    end(node, Signal::SIGTERM);
    let device = place.folder.path().join("moneta.flash");
    let mut bytes = fs::read(&device).unwrap();
    let middle = value(500);
    let at = bytes.windows(middle.len()).position(|window| window == middle.as_bytes()).expect("it is there");
    bytes[at + 7] ^= 1;
    fs::write(&device, bytes).unwrap();

    printed(&mut inspect(&place, &[]));
    let inspected = output(&mut inspect(&place, &["--verify"]));
    assert_eq!(inspected.status.code(), Some(1), "damage ends in a status for scripts");
    let text = String::from_utf8(inspected.stdout).unwrap();
    assert!(text.contains("damaged      1 (every record was checked)"), "{text}");
    assert_eq!(
        text.lines().filter(|line| line.contains(" full ") && !line.starts_with("regions")).count(),
        1,
        "{text}"
    );

    let node = place.start(&[]);
    assert_eq!(get_all(&node, 1_000), 999);
    assert_eq!(stat(&node, "badcrc_from_extstore"), 1);
}

#[test]
fn what_is_no_tier_cannot_be_looked_at() {
    let place = TierPlace::new();
    let precious = file(place.folder.path(), "precious", "data");
    assert!(refused(&mut moneta(&["flash", "inspect", &precious]), 1).contains("not a device of Moneta's"));
    assert!(refused(&mut moneta(&["flash", "inspect", "/nonexistent"]), 1).contains("/nonexistent"));
}
