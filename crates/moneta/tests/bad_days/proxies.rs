//! A proxy is killed in the middle of writes.

use std::io::Write;
use std::sync::mpsc;

use crate::common::{connect, moneta, output};
use crate::fleet::{Fleet, Proxy, ZONES};
use crate::forwarder::Forwarder;

#[test]
fn a_proxy_killed_in_the_middle_of_writes_loses_none_that_it_acknowledged() {
    let fleet = Fleet::start();
    let other = fleet.proxy("b", &[]);
    for round in 0..3 {
        let proxy = fleet.proxy("a", &[]);
        let mut client = proxy.client();
        let (sender, begun) = mpsc::channel();
        let writer = std::thread::spawn(move || {
            let mut stored = 0;
            // Until the proxy is gone: then the outcome of one write is unknown.
            for key in 0.. {
                let key = format!("r{round}k{}", key % 200);
                if !client.set(&key) {
                    break;
                }
                stored += 1;
                if stored == 100 {
                    sender.send(()).expect("the test waits");
                }
            }
            (client, stored)
        });
        begun.recv().expect("it writes");
        drop(proxy);
        let (mut client, stored) = writer.join().expect("it ends with its connection");
        assert!(stored >= 100);
        // Two copies have each of them, and the third one may still be about to take its last ones.
        for key in client.keys() {
            let copies = (0..ZONES.len())
                .filter(|&node| client.fits(&key, &fleet.node(node).exchange(&format!("get {key}\r\n"))))
                .count();
            assert!(copies >= 2 || client.is_unknown(&key), "{copies} copies have {key}");
        }
        client.move_to(other.process.address());
        for key in client.keys() {
            // Of a key that was new, the write without an answer may not have come to pass.
            assert!(client.is_unknown(&key) || client.check(&key), "{key} is there by another proxy");
            assert!(client.set(&key) && client.check(&key), "{key} can be written by another proxy");
        }
    }
    assert_eq!(ZONES.map(|zone| other.ejections(zone)), [0.0; 3]);
    assert_eq!(other.metric("cluster_hints", ""), 0.0);
}

/// What one copy alone has taken was not answered, and no other process knows of it: until the key is written again or a repair
/// runs, a read shows what its zone's copy has.
#[test]
fn what_a_killed_proxy_had_given_to_one_copy_alone_is_repaired() {
    const KEYS: usize = 20;
    let node = |number: usize| {
        let writer = (number + 1).to_string();
        let arguments = ["serve", "-p", "0", "--admin", "127.0.0.1:0", "--cluster", "--threads", "1", "-m", "64"];
        Proxy::run(moneta(&arguments).args(["--writer-id", &writer]))
    };
    let nodes: Vec<Proxy> = (0..3).map(node).collect();
    let admins: Vec<String> = nodes.iter().map(|node| node.admin().to_owned()).collect();
    let fleet = Fleet::of(nodes.into_iter().map(|node| Some(node.process)).collect());
    // It gives no node up before it is killed.
    let proxy = fleet.patient_proxy("a", "60s", &[]);
    let mut client = proxy.client();
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key{number}")).collect();
    keys.iter().for_each(|key| assert!(client.set(key)));
    proxy.process.wait_for(|| (0..3).all(|number| fleet.holds_all(number, &client)), "all copies have them");
    fleet.forwarders[1..].iter().for_each(Forwarder::half_open);
    let request = |(number, key): (usize, &String)| match number % 2 {
        0 => format!("set {key} 0 0 3\r\nnew\r\n"),
        _ => format!("delete {key}\r\n"),
    };
    let begin = |request: String| {
        let mut stream = connect(proxy.process.address());
        stream.write_all(request.as_bytes()).expect("it reads");
        stream
    };
    let waiting: Vec<_> = keys.iter().enumerate().map(request).map(begin).collect();
    let is_new = |number: usize, answer: &str| match number % 2 {
        0 => answer.contains("\r\nnew\r\n"),
        _ => answer == "END\r\n",
    };
    let ask = |node: usize, key: &str| fleet.node(node).exchange(&format!("get {key}\r\n"));
    let new = |node: usize| (0..KEYS).filter(|number| is_new(*number, &ask(node, &keys[*number]))).count();
    proxy.process.wait_for(|| new(0) == KEYS, "the near copy has taken them");
    drop((proxy, waiting));
    assert_eq!([1, 2].map(new), [0, 0]);
    let other = fleet.proxy("b", &[]);
    let mut reader = other.client();
    assert!(keys.iter().all(|key| client.fits(key, &reader.ask(&format!("get {key}")))), "its zone's copy has the old");
    for admin in &admins[1..] {
        let ran = output(&mut moneta(&["repair", &admins[0], admin, "--full", "--lag", "0", "--json"]));
        let text = String::from_utf8_lossy(&ran.stdout);
        let report: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        let of = |name: &str| report[name].as_u64();
        assert_eq!([of("older"), of("deleted")], [Some(KEYS as u64 / 2); 2], "{report}");
    }
    assert_eq!([0, 1, 2].map(new), [KEYS; 3]);
    assert!((0..KEYS).all(|number| is_new(number, &reader.ask(&format!("get {}", keys[number])))));
}
