//! A property as the ledger and the feed have it: its value, and the one that a rollout gives to some of its scope.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::record::Record;

/// The largest value, in bytes of JSON.
pub const VALUE_MAX: usize = 16 << 10;

/// A value of a scope. Fields that are not known here are kept by nobody: the form is `v`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Property {
    /// The form.
    pub v: u32,
    /// The value; null: there is none but that of `next`.
    pub value: Value,
    /// The version of the environment's properties that set it.
    #[serde(default)]
    pub version: u64,
    /// Who set it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub by: String,
    /// When, in milliseconds of Unix time.
    #[serde(default)]
    pub at: u64,
    /// Why, as was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What a rollout gives to some of the scope.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<Next>,
}

/// The value that a rollout gives to some of a scope: to these instances and zones.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Next {
    /// The value.
    pub value: Value,
    /// The rollout's number.
    pub rollout: u64,
    /// Instances that have it, as `APP:ID`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub instances: Vec<String>,
    /// Zones that have it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub zones: Vec<String>,
    /// All have it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

impl Next {
    /// Whether an instance of the scope has it.
    pub fn is_for(&self, app: &str, id: &str, record: &Record) -> bool {
        let is_named = |name: &String| name.split_once(':') == Some((app, id));
        self.all
            || record.zone.as_ref().is_some_and(|zone| self.zones.contains(zone))
            || self.instances.iter().any(is_named)
    }
}

impl Property {
    /// The value that an instance of the scope has.
    pub fn value_for(&self, app: &str, id: &str, record: &Record) -> &Value {
        match &self.next {
            Some(next) if next.is_for(app, id, record) => &next.value,
            _ => &self.value,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_rollout_s_value_is_for_those_it_names() {
        let next = Next { value: json!(2), rollout: 7, instances: vec!["feed:i:1".into()], ..Next::default() };
        let mut property = Property { v: 1, value: json!(1), next: Some(next), ..Property::default() };
        let record = Record { zone: Some("a".into()), ..Record::default() };
        assert_eq!(*property.value_for("feed", "i:1", &record), json!(2));
        assert_eq!(*property.value_for("feed", "i", &record), json!(1));
        property.next.as_mut().unwrap().zones.push("a".into());
        assert_eq!(*property.value_for("feed", "i", &record), json!(2));
        assert_eq!(*property.value_for("feed", "i", &Record::default()), json!(1));
    }
}
