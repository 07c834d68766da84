//! What was changed, version by version: who, when and why, and each value before and after. The last [`VERSIONS_KEPT`] are kept.

use std::collections::BTreeMap;

use moneta_ledger::LedgerError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::control::Control;
use crate::decode::decode;
use crate::error::Refusal;
use crate::properties::known::Of;

/// Versions that are kept.
pub const VERSIONS_KEPT: u64 = 1_000;
/// The largest record, in bytes of JSON.
pub const RECORD_MAX: usize = 64 << 10;
/// Digits of a version, and of those that name a block of versions that are read at once.
const DIGITS: usize = 10;
const BLOCK: u64 = 100;
const BLOCK_DIGITS: usize = 8;

/// One version.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Version {
    /// Its number.
    pub version: u64,
    /// When, in milliseconds of Unix time.
    pub at: u64,
    /// Who.
    #[serde(default)]
    pub by: String,
    /// `set`, `unset`, `rollback`, `rollout`.
    pub what: String,
    /// Why, as was said.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub why: String,
    /// What it changed.
    pub changes: Vec<Changed>,
}

/// A value that was changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Changed {
    /// Its scope.
    pub scope: String,
    /// Its name.
    pub name: String,
    /// What it was; null: there was none.
    pub before: Value,
    /// What it is; null: there is none.
    pub after: Value,
}

/// A value that differs between two versions.
pub type Differing = BTreeMap<Of, (Value, Value)>;

/// The key of a version.
pub(crate) fn key(environment: &str, version: u64) -> String {
    format!("{}{version:0DIGITS$}", prefix(environment))
}

fn prefix(environment: &str) -> String {
    format!("env/{environment}/property-log/")
}

/// What differs between the version before the first of these, which are the latest first, and their last.
pub(crate) fn differing(versions: &[Version]) -> Result<Differing, Refusal> {
    let mut all = Differing::new();
    for changed in versions.iter().flat_map(|version| version.changes.iter().rev()) {
        let of = (changed.scope.parse()?, changed.name.clone());
        let (before, _) = all.entry(of).or_insert_with(|| (Value::Null, changed.after.clone()));
        *before = changed.before.clone();
    }
    all.retain(|_, (before, after)| before != after);
    Ok(all)
}

impl Control {
    /// Versions that are kept, above `after` and up to `until`, the latest first, at most `most` of those that are wanted.
    ///
    /// # Errors
    /// 503 if the ledger cannot be had.
    pub async fn versions(
        &self,
        environment: &str,
        (after, until): (u64, u64),
        most: usize,
        is_wanted: impl Fn(&Version) -> bool,
    ) -> Result<Vec<Version>, Refusal> {
        let mut found = Vec::new();
        let last = until / BLOCK;
        let first = after.max(until.saturating_sub(VERSIONS_KEPT)) / BLOCK;
        for block in (first..=last).rev() {
            for version in self.block(environment, block).await?.into_iter().rev() {
                let is_within = version.version > after && version.version <= until;
                if is_within && is_wanted(&version) {
                    found.push(version);
                }
                if found.len() >= most {
                    return Ok(found);
                }
            }
        }
        Ok(found)
    }

    async fn block(&self, environment: &str, block: u64) -> Result<Vec<Version>, LedgerError> {
        let of_block = self.ledger.snapshot(&format!("{}{block:0BLOCK_DIGITS$}", prefix(environment))).await?;
        let mut versions: Vec<Version> = of_block.entries.iter().filter_map(decode).collect();
        versions.sort_by_key(|version| version.version);
        Ok(versions)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_differs_is_from_before_the_first_to_the_last() {
        let version = |version, name: &str, before: Value, after: Value| {
            let change = Changed { scope: "global".into(), name: name.into(), before, after };
            Version { version, at: 0, by: String::new(), what: "set".into(), why: String::new(), changes: vec![change] }
        };
        let versions = [
            version(4, "b", json!(1), Value::Null),
            version(3, "a", json!(2), json!(3)),
            version(2, "b", Value::Null, json!(1)),
            version(1, "a", json!(1), json!(2)),
        ];
        let differing = differing(&versions).unwrap();
        let all: Vec<_> = differing.iter().map(|((_, name), values)| (name.as_str(), values.clone())).collect();
        assert_eq!(all, [("a", (json!(1), json!(3)))]);
    }
}
