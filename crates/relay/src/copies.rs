//! The copies of the other region that can be read, one after the other.

use moneta_cluster::{Replica, Topology};

/// The copies that can be read.
fn readable(topology: &Topology) -> impl Iterator<Item = &Replica> {
    topology.replicas.iter().filter(|replica| !replica.write_only && !replica.nodes.is_empty())
}

/// The copy of this name; else the first.
pub(crate) fn choose<'t>(topology: &'t Topology, name: &str) -> Option<&'t Replica> {
    readable(topology).find(|replica| replica.name == name).or_else(|| readable(topology).next())
}

/// The copy to read after this one failed; `None`: there is no other.
pub(crate) fn next_after<'t>(topology: &'t Topology, name: &str) -> Option<&'t Replica> {
    let copies: Vec<&Replica> = readable(topology).collect();
    let at = copies.iter().position(|replica| replica.name == name);
    let next = copies.get(at.map_or(0, |at| (at + 1) % copies.len()))?;
    (next.name != name).then_some(next)
}
#[cfg(test)]
mod tests {
    use moneta_cluster::Node;

    use super::*;

    fn topology(replicas: &[(&str, bool)]) -> Topology {
        let node = |name: &str| Node {
            slot: name.to_owned(),
            address: "127.0.0.1:1".parse().unwrap(),
            admin: None,
            weight: 1,
        };
        let replica = |(name, write_only): &(&str, bool)| Replica {
            name: (*name).to_owned(),
            zone: (*name).to_owned(),
            write_only: *write_only,
            nodes: vec![node(name)],
        };
        Topology { epoch: 1, ring: moneta_cluster::RingKind::Slots, replicas: replicas.iter().map(replica).collect() }
    }

    #[test]
    fn copies_that_answer_reads_are_read_one_after_the_other() {
        let all = topology(&[("w", true), ("a", false), ("b", false)]);
        let chosen = |name| choose(&all, name).map(|replica| replica.name.as_str());
        assert_eq!([chosen(""), chosen("b"), chosen("w"), chosen("gone")], ["a", "b", "a", "a"].map(Some));
        let next = |name| next_after(&all, name).map(|replica| replica.name.as_str());
        assert_eq!([next("a"), next("b"), next("gone")], ["b", "a", "a"].map(Some));
        assert!(next_after(&topology(&[("a", false), ("w", true)]), "a").is_none());
        assert!(choose(&topology(&[("w", true)]), "w").is_none());
    }
}
