//! A topology from text: what is taken, what is refused and how that is said, and that no text makes a parser panic. A node that
//! is read into another slot or with another weight than was written serves keys that clients look for elsewhere.

use moneta_cluster::{Node, Replica, Ring, RingKind, Topology};
use proptest::prelude::*;

const FILE: &str = r#"
epoch = 3
ring = "slots"

[[replica]]
name = "a1"
zone = "a"
nodes = ["a0=10.0.0.1:11211", { slot = "a1", address = "10.0.0.2:11211", weight = 2, admin = "10.0.0.2:11212" }]

[[replica]]
zone = "b"
write_only = true
nodes = ["10.0.1.1:11211", { address = "/run/b.sock" }]
"#;

fn node(slot: &str, address: &str) -> Node {
    Node { slot: slot.into(), address: address.parse().unwrap(), admin: None, weight: 1 }
}

#[test]
fn a_file_says_replicas_and_nodes() {
    let weighty = Node { weight: 2, admin: Some("10.0.0.2:11212".parse().unwrap()), ..node("a1", "10.0.0.2:11211") };
    let wanted = Topology {
        epoch: 3,
        ring: RingKind::Slots,
        replicas: vec![
            Replica {
                name: "a1".into(),
                zone: "a".into(),
                write_only: false,
                nodes: vec![node("a0", "10.0.0.1:11211"), weighty],
            },
            Replica {
                name: "b".into(),
                zone: "b".into(),
                write_only: true,
                nodes: vec![node("10.0.1.1:11211", "10.0.1.1:11211"), node("/run/b.sock", "/run/b.sock")],
            },
        ],
    };
    assert_eq!(Topology::from_toml(FILE), Ok(wanted));
}

#[test]
fn a_node_without_a_slot_is_named_as_its_ring_names_nodes() {
    let slots = |ring: &str, nodes: &str| {
        let text = format!("ring = \"{ring}\"\n[[replica]]\nzone = \"a\"\nnodes = {nodes}");
        let topology = Topology::from_toml(&text).unwrap();
        topology.nodes().map(|node| node.slot.clone()).collect::<Vec<_>>()
    };
    let nodes = r#"["10.0.0.1:11211", "10.0.0.2:11212", "[::1]:11211"]"#;
    assert_eq!(slots("slots", nodes), ["10.0.0.1:11211", "10.0.0.2:11212", "[::1]:11211"]);
    assert_eq!(slots("libketama", nodes), ["10.0.0.1", "10.0.0.2:11212", "[::1]"]);
    assert_eq!(slots("libketama", r#"["/run/a.sock"]"#), ["/run/a.sock:0"]);
    assert_eq!(slots("evcache", nodes), ["10.0.0.1/10.0.0.1", "10.0.0.2/10.0.0.2", "::1/::1"]);
}

#[test]
fn what_is_no_topology_is_refused_by_name() {
    let replica = |name: &str, nodes: &str| format!("[[replica]]\nname = \"{name}\"\nzone = \"z\"\nnodes = {nodes}\n");
    let one = replica("a", r#"["h1:1"]"#);
    for (text, said) in [
        ("epoch = ".to_owned(), "line 1"),
        ("epochs = 3".to_owned(), "unknown field `epochs`"),
        ("ring = \"round\"".to_owned(), "unknown variant `round`, expected one of `slots`, `evcache`, `libketama`"),
        ("epoch = -1".to_owned(), "invalid value: integer `-1`"),
        ("epoch = 3".to_owned(), "the topology has no replicas"),
        ("[[replica]]\nnodes = [\"h:1\"]".to_owned(), "missing field `zone`"),
        ("[[replica]]\nzone = \"a\"".to_owned(), "missing field `nodes`"),
        (format!("{one}writeonly = true"), "unknown field `writeonly`"),
        (replica("a", "[]"), "replica \"a\": a replica has no nodes"),
        (replica("a", "[7]"), "a node: \"SLOT=ADDRESS\", \"ADDRESS\" or a table with an address"),
        (replica("a", r#"["h1"]"#), "\"h1\" is neither HOST:PORT nor the path of a Unix socket"),
        (replica("a", r#"["h1:99999"]"#), "\"h1:99999\" has the port 99999: ports are 1 to 65535"),
        ("[replica]\nzone = \"a\"\nnodes = [\"h:1\"]".to_owned(), "a replica begins with [[replica]], in two brackets"),
        ("[[replica]]\nzone = \"\"\nnodes = [\"h:1\"]".to_owned(), "the zone \"\" must be a text"),
        ("[[replica]]\nzone = \"a\\tb\"\nnodes = [\"h:1\"]".to_owned(), "without control characters"),
        (replica("a", r#"["=h1:1"]"#), "replica \"a\": a node has an empty slot name"),
        (replica("a", r#"[{ slot = "s" }]"#), "missing field `address`"),
        (replica("a", r#"[{ address = "h:1", slots = "s" }]"#), "unknown field `slots`"),
        (replica("a", r#"[{ address = "h:1", admin = "h" }]"#), "\"h\" is neither HOST:PORT"),
        (replica("a", r#"[{ address = "h:1", weight = 0 }]"#), "node \"h:1\" has weight 0: the least is 1"),
        (replica("a", r#"["s=h1:1", "s=h2:1"]"#), "replica \"a\": two nodes of a replica have the slot \"s\""),
        (replica("a", r#"["s=h1:1", "t=h1:1"]"#), "two nodes have the address h1:1"),
        (format!("{one}{}", replica("b", r#"["s=h1:1"]"#)), "two nodes have the address h1:1"),
        (format!("{one}{}", replica("a", r#"["h2:1"]"#)), "two replicas have the name \"a\""),
        (format!("{one}write_only = true"), "no replica that answers reads"),
        (
            format!("ring = \"evcache\"\n{one}"),
            "replica \"a\": the ring \"evcache\" places nodes by host name and number",
        ),
        (
            format!("ring = \"evcache\"\n{}", replica("a", r#"[{ slot = "s", address = "h:1", weight = 2 }]"#)),
            "node \"s\" has weight 2: the ring \"evcache\" has no weights",
        ),
    ] {
        let error = Topology::from_toml(&text).expect_err(&text).to_string();
        assert!(error.contains(said), "{text:?} says {error:?}, not {said:?}");
    }
}

#[test]
fn a_bad_line_is_named_by_its_number() {
    let error = Topology::from_toml("epoch = 3\n\n[[replica]]\nzone = \"a\"\nnodes = [\"h1:1\", \"h2\"]").unwrap_err();
    assert!(error.to_string().contains("line 5"), "{error}");
}

#[test]
fn the_node_list_of_evcache_is_replicas_in_its_ring() {
    let property =
        "SG1=n1/127.0.0.1:11211,n2/127.0.0.2:11311; SG2 = 10.0.0.1:11211, cache.example:11211,v6/::1:11211 ;";
    let topology = Topology::from_evcache(property, |name| {
        assert_eq!(name, "cache.example");
        Some([192, 0, 2, 1].into())
    })
    .unwrap();
    let replica =
        |name: &str, nodes: Vec<Node>| Replica { name: name.into(), zone: name.into(), write_only: false, nodes };
    let wanted = [
        replica("SG1", vec![node("n1/127.0.0.1", "127.0.0.1:11211"), node("n2/127.0.0.2", "127.0.0.2:11311")]),
        replica(
            "SG2",
            vec![
                node("10.0.0.1/10.0.0.1", "10.0.0.1:11211"),
                node("cache.example/192.0.2.1", "192.0.2.1:11211"),
                node("v6/::1", "[::1]:11211"),
            ],
        ),
    ];
    assert_eq!((topology.epoch, topology.ring, &topology.replicas[..]), (0, RingKind::Evcache, &wanted[..]));
    // What EVCache's own client does with these nodes' names.
    let ring = Ring::new(topology.ring, &topology.replicas[0].nodes).unwrap();
    assert!(ring.node(b"pfx:key0") < 2);
}

#[test]
fn what_is_no_node_list_is_refused_by_name() {
    for (property, said) in [
        ("", "the topology has no replicas"),
        (" ; ;", "the topology has no replicas"),
        ("SG1", "\"SG1\" is not GROUP=NODES"),
        ("=h:1", "the group of \"h:1\" has no name"),
        ("SG1=", "replica \"SG1\": a replica has no nodes"),
        ("SG1=10.0.0.1", "replica \"SG1\": \"10.0.0.1\" is neither HOST:PORT nor NAME/IP:PORT"),
        ("SG1=10.0.0.1:0", "\"10.0.0.1:0\" has the port 0: ports are 1 to 65535"),
        ("evcache_app.node.list=SG1=10.0.0.1:1,10.0.0.2:1;SG2=10.0.0.3:1", "evcache:FILE#evcache_app.node.list"),
        ("APP-NODES: SG1=10.0.0.1:1;SG2=10.0.0.3:1", "evcache:FILE#APP-NODES"),
        ("# nodes\nAPP-NODES = SG1=10.0.0.1:1", "evcache:FILE#APP-NODES"),
        (
            "use=true\nAPP-NODES=SG1=10.0.0.1:1\nb=c",
            "looks like a property's name: of a properties file, name the property, as evcache:FILE#APP-NODES",
        ),
        ("SG1=n/host:11211", "\"n/host:11211\" is neither"),
        ("SG1=/10.0.0.1:11211", "\"/10.0.0.1:11211\" is neither"),
        ("SG1=gone:11211", "replica \"SG1\": the host \"gone\" is not known"),
        ("SG1=10.0.0.1:1,10.0.0.1:2", "replica \"SG1\": two nodes of a replica have the slot \"10.0.0.1/10.0.0.1\""),
        ("SG1=10.0.0.1:1;SG1=10.0.0.2:1", "two replicas have the name \"SG1\""),
    ] {
        let error = Topology::from_evcache(property, |_| None).expect_err(property).to_string();
        assert!(error.contains(said), "{property:?} says {error:?}, not {said:?}");
    }
}

/// A topology with names and addresses that are hard to write down.
fn any_topology() -> impl Strategy<Value = Topology> {
    let address = prop_oneof!["[a-z0-9.-]{1,9}:[1-9][0-9]{0,3}", "/[ -~]{1,9}", "unix:[a-z=]{1,5}"];
    let node = ("[^\u{0}]{1,9}", address, proptest::option::of("[a-z]{1,3}:[1-9]"), 1u32..9);
    let replica = ("[ -~]{0,9}", "\\PC{0,5}", any::<bool>(), proptest::collection::vec(node, 1..4));
    (0..=i64::MAX as u64, proptest::collection::vec(replica, 1..4), any::<bool>()).prop_map(
        |(epoch, replicas, slots)| {
            let replicas = replicas.into_iter().map(|(name, zone, write_only, nodes)| Replica {
                name,
                zone,
                write_only,
                nodes: nodes
                    .into_iter()
                    .map(|(slot, address, admin, weight)| Node {
                        slot,
                        address: address.parse().unwrap(),
                        admin: admin.map(|admin| admin.parse().unwrap()),
                        weight,
                    })
                    .collect(),
            });
            let ring = if slots { RingKind::Slots } else { RingKind::Libketama };
            Topology { epoch, ring, replicas: replicas.collect() }
        },
    )
}

proptest! {
    #[test]
    fn a_topology_that_is_written_is_read_as_the_same(topology in any_topology()) {
        prop_assume!(topology.check().is_ok());
        let text = topology.to_toml();
        prop_assert_eq!(Topology::from_toml(&text), Ok(topology), "{}", text);
    }

    #[test]
    fn no_text_makes_a_parser_panic(text in "\\PC{0,200}") {
        let _ = Topology::from_toml(&text);
        let _ = Topology::from_evcache(&text, |_| None);
    }

    /// Much more of this gets past the first character.
    #[test]
    fn no_text_that_is_nearly_right_makes_a_parser_panic(
        edits in proptest::collection::vec((any::<prop::sample::Index>(), "[\\]\\[{}=,;:/.\"'\n a-c0-9\u{e9}-]{0,3}"), 1..8)
    ) {
        let property = "SG1=n1/127.0.0.1:11211,[::1]:11311;SG2=cache.example:11211";
        for (text, toml) in [(FILE, true), (property, false)] {
            let mut text: Vec<char> = text.chars().collect();
            for (index, with) in &edits {
                let at = index.index(text.len());
                text.splice(at..(at + with.len() / 2).min(text.len()), with.chars());
            }
            let text: String = text.into_iter().collect();
            let read = if toml { Topology::from_toml(&text) } else { Topology::from_evcache(&text, |_| Some([1; 4].into())) };
            if let Ok(topology) = read {
                prop_assert_eq!(topology.check(), Ok(()));
                for replica in &topology.replicas {
                    prop_assert!(Ring::new(topology.ring, &replica.nodes).is_ok());
                }
            }
        }
    }
}
