//! What is missing here, or may be, and is to be compared.

use std::sync::Arc;

use moneta_feed::GapCause;

/// Changes that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gapped {
    /// All was here up to then, in milliseconds since the Unix epoch, by the clocks of the other region.
    pub since: u64,
    /// What was taken there until then may be missing.
    pub until: u64,
    /// Why; `None`: the node does not say.
    pub cause: Option<GapCause>,
}

/// A time of the other region that is to be compared with what is here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// What was written there then or later, in milliseconds since the Unix epoch.
    pub since: u64,
    /// The copy that is read; of a topic its name.
    pub copy: String,
    /// Why.
    pub cause: DueCause,
}

/// Why a time is to be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DueCause {
    /// Changes are missing.
    Gap,
    /// Another copy is read: what the one of before lacked it did not tell.
    Switch,
}

impl DueCause {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 2] = [Self::Gap, Self::Switch];

    /// Its word in metrics.
    pub fn word(self) -> &'static str {
        match self {
            Self::Gap => "gap",
            Self::Switch => "switch",
        }
    }
}

/// Called when a time is to be compared.
pub type OnDue = Arc<dyn Fn(Due) + Send + Sync>;
