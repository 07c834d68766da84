//! What is known of the processes that share a ledger: how they reach each other, and who keeps the leases.

use moneta_ledger::{Hold, Revision};
use moneta_net::{HostPort, Outward};
use serde::{Deserialize, Serialize};

/// What a process is to others that share its ledger.
#[derive(Clone, Debug)]
pub struct Membership {
    /// Where they reach it.
    pub address: HostPort,
    /// How it reaches them; without a log-in.
    pub outward: Outward,
}

/// What a process writes down of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Member {
    /// Where others reach it, as addresses are written: over TLS where it begins with `tls:`.
    pub(crate) address: String,
    /// What they show it when they hand renewals over.
    pub(crate) token: String,
    /// Its version.
    #[serde(default)]
    pub(crate) version: String,
    /// Since when it runs, in milliseconds of Unix time.
    #[serde(default)]
    pub(crate) since: u64,
}

/// Who keeps the leases, as the ledger has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Keeper {
    pub(crate) of: KeeperName,
    pub(crate) revision: Revision,
    pub(crate) hold: Option<Hold>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeeperName {
    /// The member's name.
    pub(crate) member: String,
}
