//! What differs between what an app is to be and what it is, and which change of the topology would mend that.

use serde_json::{Value, json};

use super::wanted::{Wanted, WantedReplica};

/// One difference.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    /// In words.
    pub words: String,
    /// What mends it; `None`: nothing that can be changed here.
    pub change: Option<Value>,
    /// Whether that moves keys, or takes a copy away.
    pub moves: bool,
    /// Which replica it is about.
    pub replica: String,
}

impl Difference {
    fn of(replica: &str, words: String) -> Self {
        Self { words, change: None, moves: false, replica: replica.to_owned() }
    }

    fn mended(self, change: Value, moves: bool) -> Self {
        Self { change: Some(change), moves, ..self }
    }
}

/// All differences: first what the topology lacks, then what moves keys, then what nodes are to do.
pub fn differences(wanted: &Wanted, topology: Option<&Value>, instances: &[Value]) -> Vec<Difference> {
    let Some(topology) = topology else {
        let replicas: Vec<Value> = wanted
            .replicas
            .iter()
            .map(|replica| json!({ "name": replica.name, "zone": replica.zone, "slots": slots(replica) }))
            .collect();
        let words = format!("{} has no topology", wanted.app);
        return vec![Difference::of("", words).mended(json!({ "create": { "replicas": replicas } }), false)];
    };
    let there: Vec<&Value> = topology["replicas"].as_array().into_iter().flatten().collect();
    let mut all = Vec::new();
    for replica in &wanted.replicas {
        match there.iter().find(|known| known["name"] == replica.name.as_str()) {
            None => {
                let change = json!({ "name": replica.name, "zone": replica.zone, "slots": slots(replica) });
                let words = format!("the replica {} is missing", replica.name);
                all.push(Difference::of(&replica.name, words).mended(json!({ "add_replica": change }), false));
            }
            Some(known) => compare(&mut all, replica, known, there.len() > 1),
        }
    }
    for known in &there {
        let name = known["name"].as_str().unwrap_or_default();
        if !wanted.replicas.iter().any(|replica| replica.name == name) {
            let words = format!("the replica {name} is not to be");
            all.push(Difference::of(name, words).mended(json!({ "remove_replica": { "name": name } }), true));
        }
    }
    all.sort_by_key(|difference| (difference.change.is_none(), difference.moves));
    for known in &there {
        nodes(&mut all, wanted, known, instances);
    }
    spares(&mut all, &there, instances);
    all
}

/// With all fields that a slot of a document has.
fn slots(replica: &WantedReplica) -> Value {
    replica.slots()
}

fn compare(all: &mut Vec<Difference>, wanted: &WantedReplica, known: &Value, has_others: bool) {
    let name = wanted.name.as_str();
    let zone = known["zone"].as_str().unwrap_or_default();
    if zone != wanted.zone {
        let words = format!(
            "the replica {name} is in the zone {zone}, and is to be in {}: make another one there",
            wanted.zone
        );
        all.push(Difference::of(name, words));
    }
    let there: Vec<(&str, u64)> = known["slots"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|slot| (slot["slot"].as_str().unwrap_or_default(), slot["weight"].as_u64().unwrap_or(1)))
        .collect();
    let mut words = Vec::new();
    for (slot, weight) in wanted.slots.iter().map(|slot| slot.parts()) {
        match there.iter().find(|(known, _)| *known == slot) {
            None => words.push(format!("lacks the slot {slot}")),
            Some((_, known)) if *known != u64::from(weight) => {
                words.push(format!("has the slot {slot} with the weight {known}, and not {weight}"));
            }
            Some(_) => {}
        }
    }
    let is_wanted = |slot: &str| wanted.slots.iter().any(|wanted| wanted.parts().0 == slot);
    words.extend(
        there.iter().filter(|(slot, _)| !is_wanted(slot)).map(|(slot, _)| format!("has the slot {slot} too many")),
    );
    if !words.is_empty() {
        // A replica alone goes on answering: what it does not find is a miss.
        let change = json!({ "slots": { "replica": name, "slots": slots(wanted), "write_only": has_others } });
        let words = format!("the replica {name} {}", words.join(", "));
        all.push(Difference::of(name, words).mended(change, true));
    }
}

/// Slots without a node that serves, and nodes that are not as they are to be.
fn nodes(all: &mut Vec<Difference>, wanted: &Wanted, known: &Value, instances: &[Value]) {
    let (replica, zone) = (known["name"].as_str().unwrap_or_default(), known["zone"].as_str().unwrap_or_default());
    for slot in known["slots"].as_array().into_iter().flatten() {
        let name = format!("{replica}/{}", slot["slot"].as_str().unwrap_or_default());
        let mut tell = |words: String| all.push(Difference::of(replica, words));
        let Some(id) = slot["holder"].as_str() else {
            // One of no registration is not looked after.
            if slot["address"].is_null() {
                tell(format!("the slot {name} has no node"));
            }
            continue;
        };
        let Some(holder) = instances.iter().find(|instance| instance["id"] == id) else {
            tell(format!("the slot {name} has no node: {id} has left"));
            continue;
        };
        if holder["state"] == "away" {
            tell(format!("the slot {name} has no node: {id} is away"));
        }
        let record = &holder["value"];
        if let Some(other) = record["zone"].as_str().filter(|other| *other != zone) {
            tell(format!("{id} in the slot {name} is in the zone {other}, and not in {zone}"));
        }
        if let (Some(version), Some(runs)) = (&wanted.version, record["version"].as_str())
            && version != runs
        {
            tell(format!("{id} in the slot {name} runs {runs}, and not {version}: moneta cluster roll"));
        }
    }
}

/// Nodes that hold no slot.
fn spares(all: &mut Vec<Difference>, there: &[&Value], instances: &[Value]) {
    let holds = |id: &Value| {
        there.iter().any(|replica| replica["slots"].as_array().into_iter().flatten().any(|slot| slot["holder"] == *id))
    };
    for instance in instances.iter().filter(|instance| instance["value"]["kind"] == "node" && !holds(&instance["id"])) {
        let id = instance["id"].as_str().unwrap_or_default();
        let replica = instance["value"]["replica"].as_str().unwrap_or_default();
        let wants = instance["value"]["slot"]
            .as_str()
            .map_or_else(String::new, |slot| format!(", waiting for {replica}/{slot}"));
        all.push(Difference::of(replica, format!("{id} is a spare: it holds no slot{wants}")));
    }
}

#[cfg(test)]
mod tests {
    use moneta_control::topology::{Change, Document, Found};

    use super::*;

    fn wanted(text: &str) -> Wanted {
        Wanted::read(&format!("app = \"feed\"\n{text}")).unwrap()
    }

    fn apply(before: Option<&Document>, change: &Value) -> Document {
        let change: Change = serde_json::from_value(change.clone()).unwrap();
        change.apply(before, Found::default()).unwrap()
    }

    #[test]
    fn changes_lead_from_what_is_to_what_is_wanted() {
        let first =
            wanted("[[replica]]\nzone = \"a\"\nslots = [\"a0\"]\n[[replica]]\nzone = \"old\"\nslots = [\"x\"]\n");
        let found = differences(&first, None, &[]);
        let mut document = apply(None, found[0].change.as_ref().unwrap());
        let then = wanted(
            "[[replica]]\nzone = \"a\"\nslots = [\"a0\", { slot = \"a1\", weight = 2 }]\n[[replica]]\nzone = \"b\"\nslots = [\"b0\"]\n",
        );
        let found = differences(&then, Some(&json!(document)), &[]);
        let changes: Vec<(&Value, bool)> =
            found.iter().filter_map(|found| Some((found.change.as_ref()?, found.moves))).collect();
        let words: Vec<bool> = changes.iter().map(|(_, moves)| *moves).collect();
        assert_eq!(words, [false, true, true], "{found:?}");
        for (change, _) in &changes {
            if change.get("remove_replica").is_some() {
                // One of those that are left has been filled, and answers reads.
                document = apply(Some(&document), &json!({ "write_only": { "replica": "a", "on": false } }));
            }
            document = apply(Some(&document), change);
        }
        let left = differences(&then, Some(&json!(document)), &[]);
        assert!(left.iter().all(|left| left.change.is_none() && left.words.contains("has no node")), "{left:?}");
        assert_eq!((left.len(), document.replicas[0].write_only), (3, false));
    }

    #[test]
    fn nodes_that_are_not_as_they_are_to_be_are_told() {
        let wanted = wanted("version = \"2\"\n[[replica]]\nzone = \"a\"\nslots = [\"a0\", \"a1\", \"a2\"]\n");
        let slot = |slot: &str, holder: Value| json!({ "slot": slot, "weight": 1, "holder": holder, "address": null });
        let topology = json!({ "epoch": 1, "replicas": [{ "name": "a", "zone": "a", "slots": [
            slot("a0", json!("i0")), slot("a1", json!("i1")), slot("a2", json!("gone"))] }] });
        let node = |id: &str, state: &str, zone: &str, version: &str| json!({ "id": id, "state": state, "value": { "kind": "node", "zone": zone, "version": version, "replica": "a", "slot": "a0" } });
        let instances = [node("i0", "away", "a", "2"), node("i1", "live", "b", "1"), node("i2", "live", "a", "2")];
        let found: Vec<String> =
            differences(&wanted, Some(&topology), &instances).into_iter().map(|found| found.words).collect();
        assert_eq!(
            found,
            [
                "the slot a/a0 has no node: i0 is away",
                "i1 in the slot a/a1 is in the zone b, and not in a",
                "i1 in the slot a/a1 runs 1, and not 2: moneta cluster roll",
                "the slot a/a2 has no node: gone has left",
                "i2 is a spare: it holds no slot, waiting for a/a0",
            ]
        );
    }
}
