//! Any text as a topology: in TOML, or as EVCache's list of nodes. Nothing panics, what is taken is sound, and a topology in TOML comes
//! back as it was. The first byte says which form it is in.
#![no_main]

use std::net::{IpAddr, Ipv4Addr};

use libfuzzer_sys::fuzz_target;
use moneta_cluster::{Ring, Topology};

/// Knows hosts with an odd number of letters.
fn resolve(host: &str) -> Option<IpAddr> {
    let length = u8::try_from(host.len()).ok()?;
    (length % 2 == 1).then_some(IpAddr::V4(Ipv4Addr::new(10, 0, 0, length)))
}

fuzz_target!(|input: &[u8]| {
    let Some((form, text)) = input.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let read = match form % 2 {
        0 => Topology::from_toml(text),
        _ => Topology::from_evcache(text, resolve),
    };
    let topology = match read {
        Ok(topology) => topology,
        Err(error) => {
            assert!(!error.to_string().is_empty(), "an error says what is wrong");
            return;
        }
    };
    topology.check().expect("what is read was checked");
    assert!(topology.replicas.iter().all(|replica| !replica.nodes.is_empty()), "a copy has nodes");
    let again = Topology::from_toml(&topology.to_toml()).expect("what is written can be read");
    assert_eq!(again, topology);
    // Of so many slots a ring takes time, not memory.
    if let Some(replica) = topology.replicas.iter().find(|replica| replica.nodes.len() <= 4) {
        let ring = Ring::new(topology.ring, &replica.nodes).expect("its nodes were checked");
        assert!(ring.node(b"key") < replica.nodes.len());
    }
});
