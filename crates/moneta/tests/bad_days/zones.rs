//! Whole zones are gone, and a topology that changes under load.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fleet::{Fleet, ZONES};

const KEYS: std::ops::Range<usize> = 0..40;

#[test]
fn all_of_a_zone_is_gone() {
    let mut fleet = Fleet::start();
    let proxies = ["a", "b"].map(|zone| fleet.proxy(zone, &[]));
    let mut client = proxies[0].client();
    assert_eq!(client.round(KEYS), (KEYS.len(), KEYS.len()));
    // The zone of one proxy, and another one for the other.
    fleet.kill(0);
    for turn in 0..6 {
        client.move_to(proxies[turn % 2].process.address());
        assert_eq!(client.round(KEYS), (KEYS.len(), KEYS.len()), "a quorum is left");
    }
    assert!(proxies.iter().all(|proxy| !proxy.is_up("a") && proxy.metric("cluster_hints", "zone=\"a\"") >= 1.0));
    fleet.restart(0);
    proxies.iter().for_each(|proxy| proxy.wait_until_whole());
    assert!((0..ZONES.len()).all(|node| fleet.holds_all(node, &client)));
}

#[test]
fn all_zones_but_one_are_gone() {
    let mut fleet = Fleet::start();
    let strict = fleet.proxy("a", &[]);
    let mut client = strict.client();
    assert_eq!(client.round(KEYS), (KEYS.len(), KEYS.len()));
    fleet.kill(1);
    fleet.kill(2);
    // Reads go on, and what they show is right; writes have no quorum, and say so.
    for _ in 0..3 {
        assert_eq!(client.round(KEYS), (0, KEYS.len()));
    }
    let answer = client.ask("set key0 0 0 1\r\nx");
    assert!(answer.starts_with("SERVER_ERROR 1 of 3 copies took it"), "{answer}");
    assert!(strict.is_up("a") && !strict.is_up("b") && !strict.is_up("c"));
    // An app for which one copy is enough goes on with writes, too.
    let lenient = fleet.proxy("a", &["--ack", "one", "--app", "lenient"]);
    let mut other = lenient.client();
    for key in 0..40 {
        assert!(other.set(&format!("other{key}")) && other.check(&format!("other{key}")));
    }
    fleet.restart(1);
    fleet.restart(2);
    strict.wait_until_whole();
    lenient.wait_until_whole();
    assert!((0..ZONES.len()).all(|node| fleet.holds_all(node, &other)), "all copies have what one took");
    assert_eq!(other.round(KEYS), (KEYS.len(), KEYS.len()));
}

#[test]
fn a_topology_changes_under_load() {
    let fleet = Fleet::start();
    let proxy = fleet.proxy("a", &[]);
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = |number: usize| {
            let (proxy, over) = (&proxy, &over);
            scope.spawn(move || {
                let mut client = proxy.client();
                let keys = number * 100..number * 100 + 10;
                let mut rounds = 0;
                while !over.load(Ordering::SeqCst) || rounds < 3 {
                    assert_eq!(client.round(keys.clone()), (10, 10), "no request is dropped");
                    rounds += 1;
                }
                client
            })
        };
        let loads: Vec<_> = (0..3).map(load).collect();
        for (epoch, zones) in (2..).zip([&ZONES[..2], &ZONES, &["a", "c"], &ZONES, &["b", "a"], &ZONES]) {
            fleet.write_topology(epoch, zones);
            proxy.process.wait_for(
                || proxy.metric("cluster_epoch", "") == f64::from(epoch) || loads.iter().any(|load| load.is_finished()),
                "the topology is taken",
            );
            std::thread::sleep(Duration::from_millis(100));
        }
        over.store(true, Ordering::SeqCst);
        let clients: Vec<_> = loads.into_iter().map(|load| load.join().expect("all is well")).collect();
        assert!(clients.iter().all(|client| fleet.holds_all(0, client)), "this zone was in all topologies");
    });
    assert_eq!(proxy.metric("cluster_topologies_total", ""), 7.0);
    assert_eq!(ZONES.map(|zone| proxy.ejections(zone)), [0.0; 3], "no node was unwell");
}
