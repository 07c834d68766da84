//! Guards what an operator looks at after a bad minute: the keys that were asked for most, the requests that waited, the values that
//! were large, and workers that were held up.

mod support;

use serde_json::Value;
use support::admin::{fetch, metrics, start};
use support::{TestServer, eventually, hit, set};

fn page(server: &TestServer, path: &str) -> Value {
    let (status, page) = fetch(server, path);
    assert_eq!(status, 200, "{page}");
    serde_json::from_str(&page).unwrap()
}

#[test]
fn a_request_that_waits_for_the_store_is_in_the_slow_log() {
    let server = start();
    server.node.slow_log.set_milliseconds(5);
    let mut client = server.connect();
    client.ask("set quick 0 0 1\r\nx\r\n", "STORED\r\n");
    client.send("get slow\r\n");
    eventually("it waits", || server.gate.waiting() > 0);
    std::thread::sleep(std::time::Duration::from_millis(30));
    server.gate.open();
    client.expect("END\r\n");
    let told = page(&server, "/slowlog");
    assert_eq!((&told["from_ms"], &told["waited"], &told["large"]), (&5.into(), &1.into(), &0.into()), "{told}");
    let entry = &told["entries"][0];
    let text = |name: &str| entry[name].as_str().unwrap_or_default();
    assert_eq!(
        (text("why"), text("command"), text("key"), text("tier")),
        ("waited", "get", "slow", "store"),
        "{entry}"
    );
    assert!(entry["waited_ms"].as_u64() >= Some(20), "{entry}");
    assert!(text("client").starts_with("127.0.0.1:"), "{entry}");
    assert_eq!(metrics(&server).get("moneta_slow_requests_total"), 1.0);
}

#[test]
fn large_values_are_in_the_slow_log_whichever_way_they_go() {
    let server = start();
    server.node.slow_log.set_bytes(1000);
    let mut client = server.connect();
    let value = vec![b'v'; 1000];
    client.ask(set("large", &value), "STORED\r\n");
    client.ask(set("small", &value[1..]), "STORED\r\n");
    client.ask("get large\r\n", hit("large", &value));
    client.ask("get small\r\n", hit("small", &value[1..]));
    client.ask("mg bGFyZ2U= b s\r\n", "HD s1000\r\n");
    let told = page(&server, "/slowlog");
    let entries: Vec<String> = told["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            format!("{} {} {} {}", entry["why"], entry["command"], entry["key"], entry["bytes"]).replace('"', "")
        })
        .collect();
    assert_eq!(entries, ["large get large 1000", "large get large 1000", "large set large 1000"]);
    assert_eq!(metrics(&server).get("moneta_large_values_total"), 3.0);
    server.node.live.set_dump(false);
    assert_eq!(fetch(&server, "/slowlog").0, 403);
    assert_eq!(fetch(&server, "/hotkeys").0, 403);
}

#[test]
fn a_worker_that_is_held_up_is_counted_while_it_is() {
    let server = start();
    let mut client = server.connect();
    client.send(set("heavy", b"x"));
    let seen = || {
        let seen = metrics(&server);
        (seen.get("moneta_worker_late_turns_total"), seen.get("moneta_worker_late_seconds_total"))
    };
    eventually("it is seen to be late", || seen().1 >= 0.1);
    assert!(seen().0 >= 1.0);
    server.gate.let_heavy(1);
    client.expect("STORED\r\n");
}

#[test]
fn the_hottest_keys_are_told_to_those_who_may_list() {
    let server = start();
    let (mut client, mut binary) = (server.connect(), server.connect());
    let value = vec![b'v'; 8000];
    client.ask(set("large", &value), "STORED\r\n");
    // 200 bytes that end lines, end words and are no UTF-8.
    let bytes: Vec<u8> = b"\r\n \0\xff\x1b[2J".iter().copied().cycle().take(200).collect();
    let quiet_gets = [&[0x80, 0x09, 0, 200, 0, 0, 0, 0, 0, 0, 0, 200][..], &[0; 12], &bytes].concat().repeat(1000);
    let noop = |magic: u8| [&[magic, 0x0a][..], &[0; 22]].concat();
    // In windows of ten seconds by the server's clock, as long as it takes for one to be over.
    eventually("a window with all of them is over", || {
        for round in 0..3000 {
            let key = if round % 3 == 0 { format!("rare:{round}") } else { "hot".to_owned() };
            client.ask(format!("get {key}\r\n"), "END\r\n");
        }
        // Each of the keys of a long line counts, though not each is looked at.
        for _ in 0..300 {
            client.ask(format!("get{}\r\n", " lined".repeat(64)), "END\r\n");
        }
        binary.ask([quiet_gets.clone(), noop(0x80)].concat(), noop(0x81));
        for _ in 0..150 {
            client.ask("get large\r\n", hit("large", &value));
        }
        let told = page(&server, "/hotkeys");
        let key = |of: &str, place: usize| told[of]["keys"][place]["key"].as_str().unwrap_or_default().to_owned();
        [key("by_requests", 0), key("by_requests", 1), key("by_bytes", 0)] == ["lined", "hot", "large"]
    });
    let told = page(&server, "/hotkeys");
    let is_it =
        |key: &Value| key["key64"].as_str().is_some_and(|key| key.len() == 268 && key.starts_with("DQogAP8bWzJK"));
    assert!(told["by_requests"]["keys"].as_array().unwrap().iter().any(is_it), "{told}");
    let share = told["by_requests"]["keys"][0]["share"].as_f64().unwrap();
    assert!((0.7..0.95).contains(&share), "{told}");
    assert!(metrics(&server).get("moneta_hot_key_ratio{of=\"requests\"}") > 0.3);
    client.send("stats hotkeys\r\n");
    let listed = client.receive_until("END\r\n");
    assert!(
        listed.contains("STAT requests:2:key hot\r\n") && listed.contains("STAT bytes:1:key large\r\n"),
        "{listed}"
    );
    let shown = "%0D%0A%20%00%FF%1B%5B2J".repeat(22) + "%0D%0A";
    assert!(listed.lines().any(|line| line.ends_with(&format!(":key {shown}"))), "one line: {listed}");

    server.node.find_hot_keys(false);
    assert_eq!(page(&server, "/hotkeys"), serde_json::json!({ "on": false }));
    client.ask("stats hotkeys\r\n", "STAT hotkeys_enabled no\r\nEND\r\n");
    server.node.live.set_dump(false);
    client.ask("stats hotkeys\r\n", "CLIENT_ERROR stats hotkeys not allowed\r\n");
}

/// Asks `/mrc` for the share of gets that miss with room for so many items.
fn misses(page: &Value, items: f64) -> f64 {
    let points = page["curve"]["by_objects"].as_array().unwrap();
    let point = |place: usize| (points[place][0].as_f64().unwrap(), points[place][1].as_f64().unwrap());
    (0..points.len()).map(point).take_while(|(room, _)| *room <= items).last().unwrap().1
}

#[test]
fn the_curve_of_misses_is_told_by_items_and_by_bytes() {
    const KEYS: usize = 9600;
    let server = start();
    let mut client = server.connect();
    let key = |number: usize| format!("key:{number:05}");
    let value = [b'v'; 100];
    for number in 0..KEYS {
        client.ask(set(&key(number), &value), "STORED\r\n");
    }
    // A loop in single gets, and one in gets of many keys: what lies between two uses of a key is all the others.
    for number in 0..KEYS {
        client.ask(format!("get {}\r\n", key(number)), hit(&key(number), &value));
    }
    for first in (0..KEYS).step_by(64) {
        let keys: Vec<String> = (first..first + 64).map(key).collect();
        client.send(format!("get {}\r\n", keys.join(" ")));
        client.receive_until("END\r\n");
    }
    let told = page(&server, "/mrc");
    let near = |number: &Value, wanted: f64| (number.as_f64().unwrap() / wanted - 1.0).abs() < 0.45;
    assert!(near(&told["items"], KEYS as f64), "{told}");
    assert!(near(&told["item_bytes"], (KEYS * (9 + 100 + 24)) as f64), "{told}");
    assert_eq!(told["curve"]["gets"].as_f64(), Some(2.0 * KEYS as f64), "{told}");
    assert_eq!(told["curve"]["cold"].as_f64(), Some(0.0), "{told}");
    assert!(misses(&told, 0.5 * KEYS as f64) > 0.6 && misses(&told, 1.5 * KEYS as f64) < 0.05, "{told}");
    assert!(told["memory_bytes"].as_u64().unwrap() < 1 << 20, "{told}");

    // Deleted items, and such that were never there, miss whatever the room.
    for number in 0..KEYS {
        client.ask(format!("delete {}\r\n", key(number)), "DELETED\r\n");
        client.ask(format!("get {}\r\n", key(number)), "END\r\n");
    }
    let told = page(&server, "/mrc");
    assert!((told["curve"]["cold"].as_f64().unwrap() - 1.0 / 3.0).abs() < 0.15, "{told}");
    assert_eq!(told["items"], 0, "{told}");
    client.send("stats mrc\r\n");
    let listed = client.receive_until("END\r\n");
    assert!(listed.contains("STAT mrc_enabled yes\r\n") && listed.contains("STAT sampled_one_in 32\r\n"), "{listed}");
    assert!(listed.contains("STAT bytes:") && listed.contains("STAT items:"), "{listed}");
    assert!(metrics(&server).get("moneta_working_set_bytes{above=\"0.01\"}") > 0.0);

    // It names no key, so those who may not list keys see it; off is off, with nothing kept.
    server.node.live.set_dump(false);
    assert_eq!(page(&server, "/mrc")["on"], true);
    server.node.keep_miss_curve(false);
    client.ask(set("key:00000", b"v"), "STORED\r\n");
    client.ask("stats mrc\r\n", "STAT mrc_enabled no\r\nEND\r\n");
    assert_eq!(page(&server, "/mrc"), serde_json::json!({ "on": false }));
    server.node.keep_miss_curve(true);
    assert_eq!(page(&server, "/mrc"), serde_json::json!({ "on": true }));
}
