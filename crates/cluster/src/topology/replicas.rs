//! The copies of an app's data, their nodes, and how keys are divided among these.

use std::net::IpAddr;

use moneta_net::{Address, HostPort};
use serde::{Deserialize, Serialize};

/// The copies of an app's data, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Grows with every change, so that proxies with different topologies can be told apart. A source that has no epochs counts
    /// the changes it sees.
    pub epoch: u64,
    /// How the keys of a copy are divided among its nodes.
    pub ring: RingKind,
    /// The copies.
    pub replicas: Vec<Replica>,
}

/// One full copy of the data, in one zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replica {
    /// Its name, which no other replica has.
    pub name: String,
    /// Where it stands.
    pub zone: String,
    /// It takes writes and answers no reads, as while it is filled.
    pub write_only: bool,
    /// Its nodes. Each has a slot that no other node of the replica has.
    pub nodes: Vec<Node>,
}

/// A node, in a slot of its replica's ring.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The name by which the ring places it. A replacement under the same name takes over the same keys.
    pub slot: String,
    /// Where it serves.
    pub address: Address,
    /// Where its admin side serves; `None`: it is not known.
    pub admin: Option<Address>,
    /// Its share of the keys, relative to the other nodes'. At least 1.
    pub weight: u32,
}

/// How a ring places slots and keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RingKind {
    /// By slot name and weight.
    #[default]
    Slots,
    /// As EVCache's client does.
    Evcache,
    /// As libketama, libmemcached and spymemcached do.
    Libketama,
}

impl Topology {
    /// The nodes of all replicas.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.replicas.iter().flat_map(|replica| &replica.nodes)
    }

    /// Whether both are the same but for their epochs.
    pub fn same_but_for_epoch(&self, other: &Self) -> bool {
        self.ring == other.ring && self.replicas == other.replicas
    }
}

impl RingKind {
    /// The slot of a node that was given none, for an address that was written as `address`: the name by which the clients of this
    /// ring place it. [`RingKind::Slots`]: the address. [`RingKind::Libketama`]: as libmemcached, the host, and its port unless
    /// that is 11211 (0 for a Unix socket). [`RingKind::Evcache`]: `host/ip`, so `None` for a host by name, whose number is not
    /// known here.
    pub fn slot_of(self, address: &Address) -> Option<String> {
        let text = address.place().to_string();
        match (self, address) {
            (Self::Slots, Address::Tcp(_)) => Some(text),
            (Self::Slots, Address::Unix(path)) => Some(path.display().to_string()),
            (Self::Libketama, Address::Tcp(_)) => Some(text.strip_suffix(":11211").unwrap_or(&text).to_owned()),
            (Self::Libketama, Address::Unix(path)) => Some(format!("{}:0", path.display())),
            (Self::Evcache, Address::Tcp(HostPort { host, .. })) => {
                host.parse::<IpAddr>().is_ok().then(|| format!("{host}/{host}"))
            }
            (Self::Evcache, Address::Unix(_)) => None,
        }
    }
}
