//! What an instance says has become of what it was told.

use moneta_ledger::Revision;
use serde_json::Value;

use crate::state::Vitals;

/// How an instance stands to its properties.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acked {
    /// It has what it was told.
    Applied,
    /// It refuses it, and has what it had before.
    Refused,
    /// Some of it takes a restart.
    Restart,
    /// It has not said so yet.
    Behind,
    /// It does not say.
    Unknown,
}

impl Acked {
    /// Its word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
            Self::Restart => "restart",
            Self::Behind => "behind",
            Self::Unknown => "unknown",
        }
    }

    /// How an instance stands that was told something by this commit last.
    pub fn of(vitals: Option<&Vitals>, told: Revision) -> Self {
        let ack = vitals.map_or(&Value::Null, |vitals| &vitals.acks["properties"]);
        // Where it does not say up to where it was told: by the greatest of those that it has.
        let Some(at) = ack["at"].as_u64().or_else(|| ack["revision"].as_u64()) else { return Self::Unknown };
        if at < told.0 {
            return Self::Behind;
        }
        match ack["state"].as_str() {
            Some("applied") => Self::Applied,
            Some("refused") => Self::Refused,
            Some("restart") => Self::Restart,
            _ => Self::Unknown,
        }
    }
}
