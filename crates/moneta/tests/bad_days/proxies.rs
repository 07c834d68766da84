//! A proxy is killed in the middle of writes.

use std::sync::mpsc;

use crate::fleet::{Fleet, ZONES};

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
