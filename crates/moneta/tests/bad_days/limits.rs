//! Keys and values at the limits.

use crate::fleet::{Fleet, ZONES};

#[test]
fn a_key_of_250_bytes() {
    let fleet = Fleet::start();
    let proxies = ZONES.map(|zone| fleet.proxy(zone, &[]));
    let mut clients = proxies.each_ref().map(|proxy| proxy.client());
    let [longest, over] = [250, 251].map(|length| "k".repeat(length));
    assert!(clients[0].set(&longest) && clients[0].check(&longest));
    let client = &mut clients[1];
    assert_eq!(client.ask(&format!("set {longest} 0 0 1\r\n7")), "STORED\r\n");
    assert_eq!(client.ask(&format!("incr {longest} 1")), "8\r\n");
    assert_eq!(client.ask(&format!("append {longest} 0 0 1\r\n1")), "STORED\r\n");
    assert_eq!(client.ask(&format!("mg {longest} v k")), format!("VA 2 k{longest}\r\n81\r\n"));
    assert_eq!(client.ask(&format!("touch {longest} 100")), "TOUCHED\r\n");
    assert!(client.ask(&format!("stats route {longest}")).contains("STAT copies 3"));
    // One more byte is refused before any node sees it, and disturbs nothing.
    assert!(client.ask(&format!("get {over}")).starts_with("CLIENT_ERROR"));
    assert!(client.ask(&format!("set {over} 0 0 1\r\n7")).starts_with("CLIENT_ERROR"));
    let client = &mut clients[2];
    assert_eq!(client.ask(&format!("get {longest} short")), format!("VALUE {longest} 0 2\r\n81\r\nEND\r\n"));
    assert_eq!(client.ask(&format!("delete {longest}")), "DELETED\r\n");
    assert_eq!(client.ask(&format!("get {longest}")), "END\r\n");
    for proxy in &proxies {
        assert_eq!(proxy.metric("remote_errors_total", ""), 0.0);
    }
}

#[test]
fn a_value_over_the_limit_of_one_node_only() {
    let fleet = Fleet::with([&["-I", "16k"], &[], &[]]);
    let proxies = ["a", "b"].map(|zone| fleet.proxy(zone, &[]));
    let [mut near, mut far] = proxies.each_ref().map(|proxy| proxy.client());
    let hit = |value: &str| format!("VALUE key 0 {}\r\n{value}\r\nEND\r\n", value.len());
    let [small, large, larger] = ["small".to_owned(), "x".repeat(100_000), "y".repeat(100_001)];
    for client in [&mut near, &mut far] {
        assert_eq!(client.ask(&format!("set key 0 0 5\r\n{small}")), "STORED\r\n");
    }
    // Two of three copies take it. Nothing older shows, also where the node that refused it is the near one.
    assert_eq!(far.ask(&format!("set key 0 0 {}\r\n{large}", large.len())), "STORED\r\n");
    for _ in 0..20 {
        assert_eq!(far.ask("get key"), hit(&large));
        assert_eq!(near.ask("get key"), hit(&large));
    }
    assert_eq!(near.ask(&format!("set key 0 0 {}\r\n{larger}", larger.len())), "STORED\r\n");
    for _ in 0..20 {
        assert_eq!(near.ask("get key"), hit(&larger));
        assert_eq!(far.ask("get key"), hit(&larger));
    }
    assert_eq!(fleet.node(0).exchange("get key\r\n"), "END\r\n", "what was there before is gone");
    assert_eq!(near.ask(&format!("set key 0 0 5\r\n{small}")), "STORED\r\n");
    assert_eq!(near.ask("get key"), hit(&small));
    for proxy in &proxies {
        proxy.wait_until_whole();
        assert_eq!(ZONES.map(|zone| proxy.ejections(zone)), [0.0; 3], "a node that refuses a value is well");
    }
}
