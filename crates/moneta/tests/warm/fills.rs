//! Nodes that come empty under their slot, with a control plane: each begins the job that fills it. Without one, see
//! `tests/moving/filling.rs`. What must not happen: that the node serves what was deleted, holds keys of other slots, or stays empty
//! and nobody hears of it.

use std::collections::BTreeMap;
use std::io::BufReader;

use serde_json::json;

use crate::common::plane::Plane;
use crate::common::{Node, moneta, printed, until};
use crate::fleet::{Client, KEYS, ask, get};

/// Of all keys, what a node answers to each that it has.
fn held(node: &Node) -> BTreeMap<String, String> {
    let stream = node.connect();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let keys = (0..KEYS).flat_map(|number| [format!("key{number}"), format!("old{number}")]);
    keys.filter_map(|key| Some((key.clone(), get(&stream, &mut reader, &key)?))).collect()
}

/// How many of every `step`th of the keys that no client changes are hits of a proxy's client.
fn seen(proxy: &Node, step: usize) -> usize {
    let stream = proxy.connect();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    (0..KEYS).step_by(step).filter(|number| get(&stream, &mut reader, &format!("old{number}")).is_some()).count()
}

/// Most keys are not read before the node is filled: what is read through a proxy, that fills the node with.
const SOME: usize = 20;

#[test]
fn a_node_that_comes_empty_under_its_slot_is_filled_by_a_job_that_it_begins() {
    let plane = Plane::start();
    let replica = |name: &str| json!({ "name": name, "zone": name, "slots": [format!("{name}0"), format!("{name}1")] });
    plane.change(&json!({ "create": { "replicas": [replica("a"), replica("b")] } }));
    let others = [("a", "a0"), ("a", "a1"), ("b", "b0")].map(|(replica, slot)| plane.node(replica, slot, &[]));
    let mut node = plane.node("b", "b1", &[]);
    let proxy = plane.proxy(&plane.folder.path().join("proxy"));
    let stream = proxy.connect();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    for number in 0..KEYS {
        for name in ["key", "old"] {
            let answer = ask(&stream, &mut reader, &format!("set {name}{number} 0 0 4\r\nfrom\r\n"));
            assert_eq!(answer, "STORED");
        }
    }
    let near = plane.proxy_in("b", &plane.folder.path().join("near"));
    let before = held(&node);
    assert_eq!(seen(&near, SOME), KEYS as usize / SOME);
    assert!(before.len() > KEYS as usize / 2, "it has about half of the keys: {}", before.len());
    let client = Client::start(&proxy, BTreeMap::new());
    node.signal(crate::common::Signal::SIGKILL);
    node.wait();
    // The client goes on meanwhile.
    let fill = ["--catch-up", "control:app", "--fill-from", "most-items", "--fill-rate", "4m"];
    let node = plane.node("b", "b1", &fill);
    client.goes_on();
    until("while it is filled the other copy has them", || seen(&near, SOME) == KEYS as usize / SOME);
    node.wait_for_log("the node is filled");
    let known = client.end();
    let after = held(&node);
    let hits = before.keys().filter(|key| after.contains_key(*key) || known.get(*key) == Some(&None)).count();
    assert!(hits * 100 >= before.len() * 99, "{hits} of {} hits", before.len());
    for (key, value) in &known {
        assert!(after.get(key).is_none_or(|held| Some(held) == value.as_ref()), "{key}");
    }
    assert!(after.keys().all(|key| before.contains_key(key) || known.contains_key(key)), "keys of another slot");
    let jobs = plane.get(&["jobs"]);
    let job = jobs["jobs"][0].clone();
    assert_eq!((&job["kind"], &job["state"], &job["tasks"]), (&json!("fill"), &json!("done"), &json!(3)), "{jobs:#}");
    let shown = printed(&mut moneta(&["job", "show", job["id"].as_str().unwrap(), "--control", &plane.url()]));
    assert!(shown.contains("copy-1") && shown.contains("keys compared"), "{shown}");
    // Without the other copy.
    let [first, second, _same_replica] = others;
    drop((first, second));
    until("the node alone has 99 of 100", || seen(&near, 1) * 100 >= KEYS as usize * 99);
}
