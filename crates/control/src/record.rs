//! The record of an instance: what it says of itself when it registers.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Refusal;
use crate::names;

/// The largest record, in bytes of JSON.
pub const RECORD_MAX: usize = 16 << 10;

/// The longest period that an instance may ask for, in seconds.
const PERIOD_MAX: u32 = 300;

/// Whether an instance serves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Status {
    /// It starts, or catches up.
    #[default]
    Starting,
    /// It serves.
    Up,
    /// It is not to be asked, though it could answer.
    OutOfService,
    /// It cannot serve.
    Down,
}

/// What an instance is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum InstanceKind {
    /// A node.
    Node,
    /// A proxy.
    Proxy,
    /// Something else.
    #[default]
    Other,
}

/// What an instance says of itself. Fields that are not known here are kept.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// The form of the record.
    #[serde(default = "one")]
    pub v: u32,
    /// What it is.
    #[serde(default)]
    pub kind: InstanceKind,
    /// Where it serves, by use: `cache`, `admin`, and others.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub addresses: BTreeMap<String, String>,
    /// Its zone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// Its region.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// The replica that it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replica: Option<String>,
    /// The slot that it wants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<String>,
    /// Whether it serves.
    #[serde(default)]
    pub status: Status,
    /// Since when, in milliseconds of Unix time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<u64>,
    /// How often it renews, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub renew_every_s: Option<u32>,
    /// All else.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

fn one() -> u32 {
    1
}

/// The name of the address at which items are asked for.
pub const CACHE: &str = "cache";
/// The name of the address of the admin side.
pub const ADMIN: &str = "admin";

impl Record {
    /// Reads a record.
    ///
    /// # Errors
    /// 400 with what is wrong with it; 413 if it is too long.
    pub fn read(body: &[u8]) -> Result<Self, Refusal> {
        if body.len() > RECORD_MAX {
            return Err(Refusal::too_large(format!("a record has at most {RECORD_MAX} bytes")));
        }
        let record: Self =
            serde_json::from_slice(body).map_err(|error| Refusal::invalid(format!("this is no record: {error}")))?;
        record.check()?;
        Ok(record)
    }

    fn check(&self) -> Result<(), Refusal> {
        if self.v != 1 {
            return Err(Refusal::invalid(format!("a record of the form {} is not known here", self.v)));
        }
        for (name, address) in &self.addresses {
            names::check("an address", name)?;
            address
                .parse::<moneta_net::HostPort>()
                .map_err(|error| Refusal::invalid(format!("the address `{name}`: {error}")))?;
        }
        let named = [("a zone", &self.zone), ("a region", &self.region), ("a replica", &self.replica)];
        for (what, name) in named {
            if let Some(name) = name {
                names::check(what, name)?;
            }
        }
        if let Some(slot) = &self.slot {
            names::check_slot(slot)?;
        }
        if self.slot.is_some() && self.replica.is_none() {
            return Err(Refusal::invalid("a slot is of a replica: name that, too"));
        }
        if self.kind == InstanceKind::Node && self.address().is_none() {
            return Err(Refusal::invalid("a node needs addresses.cache"));
        }
        if self.renew_every_s.is_some_and(|seconds| !(1..=PERIOD_MAX).contains(&seconds)) {
            return Err(Refusal::invalid(format!("renew_every_s must be 1 to {PERIOD_MAX}")));
        }
        Ok(())
    }

    /// Where it is asked for items.
    pub fn address(&self) -> Option<&str> {
        self.addresses.get(CACHE).map(String::as_str)
    }

    /// Where its admin side is.
    pub fn admin(&self) -> Option<&str> {
        self.addresses.get(ADMIN).map(String::as_str)
    }

    /// The slot that it wants: replica and slot.
    pub fn wanted(&self) -> Option<(&str, &str)> {
        Some((self.replica.as_deref()?, self.slot.as_deref()?))
    }

    /// The epochs of topologies that it has seen, by app.
    pub fn epochs(&self) -> impl Iterator<Item = (&str, u64)> {
        let epochs = self.rest.get("epochs").and_then(Value::as_object);
        epochs.into_iter().flatten().filter_map(|(app, epoch)| Some((app.as_str(), epoch.as_u64()?)))
    }

    /// The number that it writes its region's versions by.
    pub fn region_id(&self) -> Option<u64> {
        self.rest.get("region_id").and_then(Value::as_u64)
    }

    /// As the ledger has it: without what is not to be kept.
    pub(crate) fn kept(mut self) -> Self {
        self.rest.remove("epochs");
        self
    }

    /// Whether both say the same, whenever that began.
    pub(crate) fn says_as(&self, other: &Self) -> bool {
        Self { since: None, ..self.clone() } == Self { since: None, ..other.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_keeps_what_is_not_known_here() {
        let text = r#"{"kind":"node","addresses":{"cache":"10.0.0.1:11211"},"replica":"a1","slot":"a0","status":"UP",
            "metadata":{"x":"y"},"capacity":{"memory":1},"epochs":{"feed":7}}"#;
        let record = Record::read(text.as_bytes()).unwrap();
        assert_eq!((record.wanted(), record.address()), (Some(("a1", "a0")), Some("10.0.0.1:11211")));
        assert_eq!(record.epochs().collect::<Vec<_>>(), [("feed", 7)]);
        let kept = serde_json::to_value(record.kept()).unwrap();
        assert_eq!(kept["metadata"]["x"], "y");
        assert!(kept.get("epochs").is_none());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for text in [
            "",
            "[]",
            r#"{"kind":"node"}"#,
            r#"{"kind":"thing"}"#,
            r#"{"v":2}"#,
            r#"{"addresses":{"cache":"nowhere"}}"#,
            r#"{"addresses":{"cache":"/a/socket"}}"#,
            r#"{"slot":"a0"}"#,
            r#"{"replica":"a/b"}"#,
            r#"{"status":"SIDEWAYS"}"#,
            r#"{"renew_every_s":0}"#,
            r#"{"renew_every_s":301}"#,
        ] {
            assert_eq!(Record::read(text.as_bytes()).map_err(|refusal| refusal.status), Err(400), "{text}");
        }
        let long = format!(r#"{{"metadata":{{"x":"{}"}}}}"#, "y".repeat(RECORD_MAX));
        assert_eq!(Record::read(long.as_bytes()).unwrap_err().status, 413);
    }
}
