//! Topologies as the control plane writes them.

use moneta_cluster::sources::{Advice, Advised};
use moneta_cluster::{Node, Replica, RingKind, Topology};
use moneta_net::Address;
use serde::Deserialize;
use serde_json::Value;

use crate::items::Items;

/// A topology document.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Document {
    /// Grows with each change.
    pub epoch: u64,
    /// The ring of all replicas.
    #[serde(default)]
    pub ring: RingKind,
    /// The copies.
    pub replicas: Vec<ReplicaDocument>,
}

/// One copy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct ReplicaDocument {
    /// Its name.
    pub name: String,
    /// Where it stands.
    pub zone: String,
    /// It takes writes and answers no reads.
    #[serde(default)]
    pub write_only: bool,
    /// Its slots.
    pub slots: Vec<Slot>,
}

/// A place in a copy's ring, held by an instance or by none.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Slot {
    /// Its name.
    pub slot: String,
    /// Its share of the keys.
    #[serde(default = "one")]
    pub weight: u32,
    /// The instance that holds it.
    pub holder: Option<String>,
    /// Where that serves.
    pub address: Option<String>,
    /// Where its admin side serves.
    pub admin: Option<String>,
    /// It is about to leave.
    #[serde(default)]
    pub leaving: bool,
}

fn one() -> u32 {
    1
}

impl Document {
    /// Reads it.
    ///
    /// # Errors
    /// What is no such document.
    pub fn read(value: &Value) -> Result<Self, String> {
        Self::deserialize(value).map_err(|error| error.to_string())
    }

    /// The topology that it says. A slot that no instance holds keeps its keys, at an address that never answers.
    ///
    /// # Errors
    /// An address that is none, or what [`Topology::check`] refuses.
    pub fn topology(&self) -> Result<Topology, String> {
        let mut replicas = Vec::with_capacity(self.replicas.len());
        for replica in &self.replicas {
            let nodes = replica.slots.iter().map(Slot::node).collect::<Result<_, _>>()?;
            let (name, zone, write_only) = (replica.name.clone(), replica.zone.clone(), replica.write_only);
            replicas.push(Replica { name, zone, write_only, nodes });
        }
        let topology = Topology { epoch: self.epoch, ring: self.ring, replicas };
        topology.check().map_err(|error| error.to_string())?;
        Ok(topology)
    }

    /// What is said of the states of its nodes: by itself, and by what the feed tells of the instances of `app`.
    pub fn advice(&self, app: &str, items: &Items) -> Vec<Advised> {
        let mut advised = Vec::new();
        for replica in &self.replicas {
            for slot in &replica.slots {
                let Some(holder) = &slot.holder else { continue };
                let key = format!("{app}/{holder}");
                let is_away = items.get("away", &key).is_some();
                let status = items.get("instances", &key).and_then(|instance| status_of(&instance.value));
                let is_leaving = slot.leaving || status.is_some_and(|status| status == "OUT_OF_SERVICE");
                let advice = match (is_away, is_leaving) {
                    (true, _) => Advice::Away,
                    (false, true) => Advice::Leaving,
                    (false, false) => continue,
                };
                advised.push(Advised { replica: replica.name.clone(), slot: slot.slot.clone(), advice });
            }
        }
        advised
    }

    /// The slots that an instance holds, as `REPLICA/SLOT`.
    pub fn held_by(&self, instance: &str) -> Vec<String> {
        let slots = |replica: &ReplicaDocument| {
            let held = replica.slots.iter().filter(|slot| slot.holder.as_deref() == Some(instance));
            held.map(|slot| format!("{}/{}", replica.name, slot.slot)).collect::<Vec<_>>()
        };
        self.replicas.iter().flat_map(slots).collect()
    }
}

impl Slot {
    fn node(&self) -> Result<Node, String> {
        let read = |text: &String| text.parse::<Address>().map_err(|error| error.to_string());
        let address = self.address.as_ref().map(read).transpose()?.unwrap_or_else(Address::unheld);
        let admin = self.admin.as_ref().map(read).transpose()?;
        Ok(Node { slot: self.slot.clone(), address, admin, weight: self.weight })
    }
}

/// The state of an instance: an operator's word on it, or its own.
fn status_of(instance: &Value) -> Option<&str> {
    let word = |field: &str| match &instance[field] {
        Value::String(word) => Some(word.as_str()),
        object => object["status"].as_str(),
    };
    word("effective").or_else(|| word("override")).or_else(|| word("status"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::items::tests::items;

    fn document() -> Value {
        json!({"epoch": 42, "ring": "slots", "replicas": [
            {"name": "a1", "zone": "a", "write_only": false, "slots": [
                {"slot": "a0", "weight": 2, "holder": "i0", "address": "10.0.0.1:11211", "admin": null, "leaving": false},
                {"slot": "a1", "weight": 1, "holder": null, "address": null, "admin": null},
                {"slot": "a2", "holder": "i2", "address": "10.0.0.2:11211", "admin": "10.0.0.2:11280", "leaving": true},
                {"slot": "a3", "address": null}]}]})
    }

    #[test]
    fn a_slot_that_no_instance_holds_stays_in_the_ring() {
        let topology = Document::read(&document()).unwrap().topology().unwrap();
        let nodes: Vec<_> =
            topology.nodes().map(|node| (node.slot.as_str(), node.address.to_string(), node.weight)).collect();
        let unheld = || "unheld.invalid:11211".to_owned();
        assert_eq!(
            nodes,
            [
                ("a0", "10.0.0.1:11211".into(), 2),
                ("a1", unheld(), 1),
                ("a2", "10.0.0.2:11211".into(), 1),
                ("a3", unheld(), 1)
            ]
        );
        assert_eq!(topology.epoch, 42);
        for (field, wrong) in [("epoch", json!(-1)), ("replicas", json!([])), ("ring", json!("round"))] {
            let mut document = document();
            document[field] = wrong;
            assert!(Document::read(&document).and_then(|document| document.topology()).is_err(), "{field}");
        }
    }

    #[test]
    fn an_instance_that_leaves_or_is_away_is_told_of_by_its_slot() {
        let document = Document::read(&document()).unwrap();
        let of = |slot: &str, advice| Advised { replica: "a1".into(), slot: slot.into(), advice };
        assert_eq!(document.advice("app", &Items::default()), [of("a2", Advice::Leaving)]);
        let away = items(&[("away", "app/i0", json!({})), ("away", "other/i2", json!({}))]);
        assert_eq!(document.advice("app", &away), [of("a0", Advice::Away), of("a2", Advice::Leaving)]);
        for instance in [
            json!({"status": "OUT_OF_SERVICE"}),
            json!({"status": "UP", "override": "OUT_OF_SERVICE"}),
            json!({"status": "UP", "override": null, "effective": "OUT_OF_SERVICE"}),
            json!({"status": "UP", "override": {"status": "OUT_OF_SERVICE"}}),
        ] {
            let items = items(&[("instances", "app/i0", instance)]);
            assert_eq!(document.advice("app", &items)[0], of("a0", Advice::Leaving));
        }
        assert_eq!(document.held_by("i2"), ["a1/a2"]);
    }
}
