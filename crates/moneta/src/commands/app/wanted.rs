//! What an app is to be, as a file has it.

use anyhow::{bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

/// What an app is to be.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wanted {
    /// Its name.
    pub app: String,
    /// The version that its nodes are to run; `None`: any.
    #[serde(default)]
    pub version: Option<String>,
    /// Its copies.
    #[serde(rename = "replica")]
    pub replicas: Vec<WantedReplica>,
}

/// A copy.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WantedReplica {
    /// Its name; without it that of its zone.
    #[serde(default)]
    pub name: String,
    /// Where it stands.
    pub zone: String,
    /// Its slots.
    pub slots: Vec<WantedSlot>,
}

/// A slot: its name, or more.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum WantedSlot {
    /// The name alone; its share is 1.
    Name(String),
    /// With its share.
    Weighted {
        /// The name.
        slot: String,
        /// Its share of the keys, relative to the others'.
        weight: u32,
    },
}

impl WantedSlot {
    /// Its name and its share.
    pub fn parts(&self) -> (&str, u32) {
        match self {
            Self::Name(slot) => (slot, 1),
            Self::Weighted { slot, weight } => (slot, *weight),
        }
    }
}

impl Wanted {
    /// Reads it, from TOML.
    ///
    /// # Errors
    /// What makes no sense.
    pub fn read(text: &str) -> anyhow::Result<Self> {
        let mut wanted: Self = toml::from_str(text)?;
        ensure!(!wanted.replicas.is_empty(), "an app has a replica");
        for replica in &mut wanted.replicas {
            if replica.name.is_empty() {
                replica.name.clone_from(&replica.zone);
            }
            ensure!(!replica.slots.is_empty(), "the replica {} has no slots", replica.name);
        }
        for (place, replica) in wanted.replicas.iter().enumerate() {
            if wanted.replicas[..place].iter().any(|other| other.name == replica.name) {
                bail!("two replicas are called {}", replica.name);
            }
        }
        Ok(wanted)
    }
}

impl WantedReplica {
    /// Its slots, as a change of a topology has them.
    pub fn slots(&self) -> Value {
        self.slots
            .iter()
            .map(|slot| slot.parts())
            .map(|(slot, weight)| json!({ "slot": slot, "weight": weight }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_and_what_makes_no_sense_is_refused() {
        let text = "app = \"feed\"\nversion = \"1.2\"\n[[replica]]\nzone = \"a\"\nslots = [\"a0\", { slot = \"a1\", weight = 2 }]\n";
        let wanted = Wanted::read(text).unwrap();
        assert_eq!((wanted.replicas[0].name.as_str(), wanted.replicas[0].slots[1].parts()), ("a", ("a1", 2)));
        let bad = [
            "app = \"feed\"\n",
            "app = \"feed\"\nreplica = []\n",
            "app = \"feed\"\n[[replica]]\nzone = \"a\"\nslots = []\n",
            &format!("{text}[[replica]]\nzone = \"a\"\nslots = [\"x\"]\n"),
            &format!("colour = 1\n{text}"),
        ];
        for text in bad {
            assert!(Wanted::read(text).is_err(), "{text}");
        }
    }
}
