//! A topology as TOML. `docs/topology.md` has the format.

use std::fmt;

use moneta_net::Address;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Error, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::error::TopologyError;
use super::replicas::{Node, Replica, RingKind, Topology};

impl Topology {
    /// The topology that `text` says, as TOML. Its epoch is 0 where the text names none.
    ///
    /// # Errors
    /// Text that is no TOML, has unknown keys or addresses that are none, or whose topology [`Topology::check`] refuses.
    pub fn from_toml(text: &str) -> Result<Self, TopologyError> {
        let file: File = toml::from_str(text).map_err(|error| TopologyError::Text(explained(text, &error)))?;
        let mut replicas = Vec::with_capacity(file.replica.len());
        for replica in file.replica {
            let name = replica.name.unwrap_or_else(|| replica.zone.clone());
            let nodes =
                replica.nodes.into_iter().map(|node| node.in_ring(file.ring)).collect::<Result<_, _>>().map_err(
                    |error| TopologyError::Replica {
                        replica: name.clone(),
                        error: Box::new(TopologyError::Text(error)),
                    },
                )?;
            replicas.push(Replica { name, zone: replica.zone, write_only: replica.write_only, nodes });
        }
        let topology = Self { epoch: file.epoch, ring: file.ring, replicas };
        topology.check()?;
        Ok(topology)
    }

    /// The text that [`Topology::from_toml`] reads as this topology. An epoch above 2⁶³ - 1 is written as that.
    pub fn to_toml(&self) -> String {
        let replica = |replica: &Replica| FileReplica {
            name: Some(replica.name.clone()),
            zone: replica.zone.clone(),
            write_only: replica.write_only,
            nodes: replica.nodes.iter().map(FileNode::of).collect(),
        };
        let replicas = self.replicas.iter().map(replica).collect();
        // TOML has no greater number.
        let epoch = self.epoch.min(i64::MAX as u64);
        let file = File { epoch, ring: self.ring, replica: replicas };
        toml::to_string(&file).expect("strings, numbers and tables with names are TOML")
    }
}

/// What is wrong with `text`, and how it is written where that is known.
fn explained(text: &str, error: &toml::de::Error) -> String {
    // The parser says "expected a sequence", at the line after it.
    if text.lines().any(|line| line.split('#').next().is_some_and(|line| line.trim() == "[replica]")) {
        return "a replica begins with [[replica]], in two brackets: there may be several; here it is [replica]"
            .to_owned();
    }
    error.to_string()
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    epoch: u64,
    #[serde(default)]
    ring: RingKind,
    #[serde(default)]
    replica: Vec<FileReplica>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileReplica {
    name: Option<String>,
    zone: String,
    #[serde(default)]
    write_only: bool,
    nodes: Vec<FileNode>,
}

/// A node as a table, which may also be written `SLOT=ADDRESS` or `ADDRESS`.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Self", deny_unknown_fields)]
struct FileNode {
    slot: Option<String>,
    #[serde(with = "address")]
    address: Address,
    #[serde(default = "one")]
    weight: u32,
    #[serde(default, with = "optional_address", skip_serializing_if = "Option::is_none")]
    admin: Option<Address>,
}

fn one() -> u32 {
    1
}

impl FileNode {
    fn of(node: &Node) -> Self {
        Self {
            slot: Some(node.slot.clone()),
            address: node.address.clone(),
            weight: node.weight,
            admin: node.admin.clone(),
        }
    }

    fn in_ring(self, ring: RingKind) -> Result<Node, String> {
        let slot = match self.slot {
            Some(slot) => slot,
            None => ring.slot_of(&self.address).ok_or_else(|| {
                let address = &self.address;
                format!("the ring \"evcache\" places nodes by host name and number: write \"NAME/IP={address}\"")
            })?,
        };
        Ok(Node { slot, address: self.address, admin: self.admin, weight: self.weight })
    }
}

impl Serialize for FileNode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.slot {
            Some(slot) if self.weight == 1 && self.admin.is_none() && !slot.contains('=') => {
                serializer.collect_str(&format_args!("{slot}={}", self.address))
            }
            _ => Self::serialize(self, serializer),
        }
    }
}

impl<'de> Deserialize<'de> for FileNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrTable;

        impl<'de> Visitor<'de> for TextOrTable {
            type Value = FileNode;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a node: \"SLOT=ADDRESS\", \"ADDRESS\" or a table with an address")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<FileNode, E> {
                let (slot, address) = match text.split_once('=') {
                    Some((slot, address)) => (Some(slot.to_owned()), address),
                    None => (None, text),
                };
                Ok(FileNode { slot, address: address.parse().map_err(E::custom)?, weight: 1, admin: None })
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<FileNode, A::Error> {
                FileNode::deserialize(MapAccessDeserializer::new(map))
            }
        }
        deserializer.deserialize_any(TextOrTable)
    }
}

mod address {
    use super::{Address, Deserialize, Deserializer, Error, Serializer};

    pub(super) fn serialize<S: Serializer>(address: &Address, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(address)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Address, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

mod optional_address {
    use super::{Address, Deserializer, Serializer, address};

    pub(super) fn serialize<S: Serializer>(value: &Option<Address>, serializer: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => address::serialize(value, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Address>, D::Error> {
        address::deserialize(deserializer).map(Some)
    }
}
