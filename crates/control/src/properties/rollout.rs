//! A rollout: a value that comes to one instance, then to a zone, then to all, and stops where it does harm.
//!
//! ```text
//!            all of the stage have it, and nothing was wrong for the time of soaking
//!  running ─────────────────────────────────────────────────────────────────────────> next stage ... done
//!   │  ^ │                                                     (with `manual`: waiting, until continued)
//!   │  │ └── harm ──> held ──abort──> aborted          held, with `back`: rolled_back at once
//!   │  └─ continue ───┘
//!   └──── abort ──> aborted
//! ```
//! It is a document in the ledger, and what instances have of it stands in the property itself, so that a control plane that is
//! killed goes on where it was.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::properties::value::Next;

/// How far it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Progress {
    /// Its stage is looked at.
    #[default]
    Running,
    /// The stage went well, and an operator has to say so.
    Waiting,
    /// Something is wrong: it goes no further.
    Held,
    /// All have it.
    Done,
    /// An operator has ended it: all have what they had before.
    Aborted,
    /// Something was wrong, and all have what they had before.
    RolledBack,
}

impl Progress {
    /// Whether it is over.
    pub fn is_over(self) -> bool {
        matches!(self, Self::Done | Self::Aborted | Self::RolledBack)
    }
}

/// Who gets the value at a stage.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// This instance, as `APP:ID`.
    Instance(String),
    /// Those of this zone.
    Zone(String),
    /// All.
    All,
}

/// A rollout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rollout {
    /// Its form.
    pub v: u32,
    /// Its number in the environment.
    pub id: u64,
    /// The scope.
    pub scope: String,
    /// The name.
    pub name: String,
    /// The value that it brings.
    pub value: Value,
    /// The value before; null: none.
    pub before: Value,
    /// Who began it.
    #[serde(default)]
    pub by: String,
    /// When, in milliseconds of Unix time.
    pub at: u64,
    /// Why.
    #[serde(default)]
    pub why: String,
    /// Its stages.
    pub stages: Vec<Stage>,
    /// Which is looked at, from 0.
    pub stage: usize,
    /// Since when, in milliseconds of Unix time.
    pub stage_at: u64,
    /// How far it is.
    pub progress: Progress,
    /// Why it is held, or was taken back.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub held: String,
    /// How long nothing may be wrong, once all of a stage have it, in seconds.
    pub soak_s: u64,
    /// How long they may take to say that they have it, in seconds.
    pub ack_within_s: u64,
    /// Each stage waits for an operator.
    #[serde(default)]
    pub manual: bool,
    /// Where something is wrong, all get what they had before.
    #[serde(default)]
    pub back: bool,
    /// How often those without the value erred in the stage before, of a million requests.
    #[serde(default)]
    pub others_ppm: u64,
}

impl Rollout {
    /// What a property says while it is at a stage.
    pub fn next(&self) -> Next {
        let mut next = Next { value: self.value.clone(), rollout: self.id, ..Next::default() };
        for stage in &self.stages[..(self.stage + 1).min(self.stages.len())] {
            match stage {
                Stage::Instance(one) => next.instances.push(one.clone()),
                Stage::Zone(zone) => next.zones.push(zone.clone()),
                Stage::All => next.all = true,
            }
        }
        next
    }

    /// Whether its stage is the last.
    pub fn is_last(&self) -> bool {
        self.stage + 1 >= self.stages.len()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_stage_has_those_before_it_too() {
        let mut rollout: Rollout = serde_json::from_value(json!({
            "v": 1, "id": 3, "scope": "app=feed", "name": "ack", "value": "one", "before": null, "at": 0,
            "stages": [{ "instance": "feed:i-1" }, { "zone": "a" }, "all"], "stage": 0, "stage_at": 0, "progress": "running",
            "soak_s": 1, "ack_within_s": 1,
        }))
        .unwrap();
        let next = rollout.next();
        assert_eq!((next.instances.len(), next.zones.len(), next.all), (1, 0, false));
        rollout.stage = 2;
        let next = rollout.next();
        assert_eq!((next.instances.len(), next.zones.len(), next.all), (1, 1, true));
        assert!(rollout.is_last() && Progress::RolledBack.is_over() && !Progress::Held.is_over());
    }
}
