//! Rings from outside: where keys go as other clients place them, how even the shares are, and what moves when nodes come, go and
//! are replaced. A ring that places one key in a hundred elsewhere than the client it stands in for answers misses, and nothing
//! fails.

use std::collections::HashMap;

use moneta_cluster::{Node, Ring, RingKind};

const KINDS: [RingKind; 3] = [RingKind::Slots, RingKind::Evcache, RingKind::Libketama];

fn node(slot: &str, weight: u32) -> Node {
    Node { slot: slot.into(), address: "127.0.0.1:11211".parse().unwrap(), admin: None, weight }
}

fn named(count: usize) -> Vec<Node> {
    (0..count).map(|number| node(&format!("a{number}"), 1)).collect()
}

/// The slot of each of `count` keys.
fn placed(kind: RingKind, nodes: &[Node], count: usize) -> Vec<String> {
    let ring = Ring::new(kind, nodes).unwrap();
    (0..count).map(|key| nodes[ring.node(format!("user:{key}:profile").as_bytes())].slot.clone()).collect()
}

/// The keys of each slot.
fn shares(placed: &[String]) -> HashMap<&str, usize> {
    placed.iter().fold(HashMap::new(), |mut shares, slot| {
        *shares.entry(slot.as_str()).or_default() += 1;
        shares
    })
}

#[test]
fn libketama_places_keys_as_libmemcached_does() {
    let mut lines = include_str!("libmemcached.txt").lines();
    let mut cases = 0;
    while let (Some(nodes), Some(owners)) = (lines.next(), lines.next()) {
        let nodes: Vec<Node> = nodes
            .split(' ')
            .map(|text| {
                let (address, weight) = text.split_once('*').unwrap();
                let address = address.parse().unwrap();
                let slot = RingKind::Libketama.slot_of(&address).unwrap();
                Node { slot, address, admin: None, weight: weight.parse().unwrap() }
            })
            .collect();
        let ring = Ring::new(RingKind::Libketama, &nodes).unwrap();
        for (key, owner) in owners.split(' ').enumerate() {
            assert_eq!(ring.node(format!("key:{key}").as_bytes()).to_string(), owner, "key:{key} of {nodes:?}");
        }
        cases += 1;
    }
    assert_eq!(cases, 8);
}

#[test]
fn each_node_has_about_its_share() {
    const KEYS: usize = 200_000;
    // Four standard deviations of a share: 160 points a node, or the buckets of a node.
    for (kind, nodes, most) in [
        (RingKind::Slots, 6, 0.05),
        (RingKind::Slots, 100, 0.20),
        (RingKind::Evcache, 6, 0.32),
        (RingKind::Libketama, 6, 0.32),
    ] {
        let nodes = named(nodes);
        let placed = placed(kind, &nodes, KEYS);
        let even = KEYS as f64 / nodes.len() as f64;
        for (slot, keys) in shares(&placed) {
            assert!((keys as f64 / even - 1.0).abs() < most, "{kind:?}: {slot} of {} has {keys}", nodes.len());
        }
    }
}

#[test]
fn shares_follow_the_weights() {
    const KEYS: usize = 200_000;
    for (kind, most) in [(RingKind::Slots, 0.08), (RingKind::Libketama, 0.35)] {
        let nodes: Vec<Node> = (1..=5).map(|weight| node(&format!("w{weight}"), weight)).collect();
        let placed = placed(kind, &nodes, KEYS);
        let shares = shares(&placed);
        for node in &nodes {
            let wanted = KEYS as f64 * f64::from(node.weight) / 15.0;
            let has = shares[node.slot.as_str()] as f64;
            assert!((has / wanted - 1.0).abs() < most, "{kind:?}: {} has {has} of {wanted}", node.slot);
        }
    }
}

#[test]
fn a_node_that_comes_takes_its_share_and_moves_nothing_else() {
    const KEYS: usize = 100_000;
    for kind in KINDS {
        let before = placed(kind, &named(9), KEYS);
        let after = placed(kind, &named(10), KEYS);
        let moved = before.iter().zip(&after).filter(|(before, after)| before != after).count();
        assert!(before.iter().zip(&after).all(|(before, after)| before == after || after == "a9"), "{kind:?}");
        let share = moved as f64 / KEYS as f64;
        assert!((0.06..0.14).contains(&share), "{kind:?}: {share} of the keys moved for one node of ten");
    }
}

#[test]
fn a_node_that_goes_leaves_its_keys_to_all_others() {
    const KEYS: usize = 100_000;
    for kind in KINDS {
        let nodes = named(10);
        let left: Vec<Node> = nodes.iter().filter(|node| node.slot != "a3").cloned().collect();
        let (before, after) = (placed(kind, &nodes, KEYS), placed(kind, &left, KEYS));
        let moved: Vec<String> =
            before.iter().zip(&after).filter(|(before, after)| before != after).map(|pair| pair.1.clone()).collect();
        assert_eq!(moved.len(), shares(&before)["a3"], "{kind:?}");
        assert_eq!(shares(&moved).len(), 9, "{kind:?}: {:?}", shares(&moved));
    }
}

#[test]
fn a_weight_that_grows_takes_keys_and_moves_nothing_else() {
    let before = placed(RingKind::Slots, &named(6), 100_000);
    let mut nodes = named(6);
    nodes[2].weight = 3;
    let after = placed(RingKind::Slots, &nodes, 100_000);
    assert!(before.iter().zip(&after).all(|(before, after)| before == after || after == "a2"));
    let (before, after) = (shares(&before)["a2"] as f64 / 100_000.0, shares(&after)["a2"] as f64 / 100_000.0);
    assert!((before - 1.0 / 6.0).abs() < 0.02 && (after - 3.0 / 8.0).abs() < 0.02, "{before} {after}");
}

#[test]
fn neither_a_replacement_nor_the_order_of_the_list_moves_a_key() {
    for kind in KINDS {
        let nodes = named(12);
        let before = placed(kind, &nodes, 20_000);
        let mut replaced = nodes.clone();
        replaced[5].address = "192.0.2.7:4711".parse().unwrap();
        assert_eq!(placed(kind, &replaced, 20_000), before, "{kind:?}");
        replaced.reverse();
        assert_eq!(placed(kind, &replaced, 20_000), before, "{kind:?}");
    }
}

#[test]
fn any_bytes_are_a_key() {
    for kind in KINDS {
        let ring = Ring::new(kind, &named(3)).unwrap();
        for length in 0..300 {
            assert!(ring.node(&vec![0xff; length]) < 3);
            assert_eq!(ring.node(&vec![0; length]), ring.node_of_hash(kind.hash(&vec![0; length])));
        }
    }
}
