//! `[[listener]]` tables: further places to listen, beside those of `--listen` and `--unix-socket`, each with a policy.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use moneta_server::config::{ListenerLimits, Policy};

use crate::options::address::HostPort;
use crate::options::table::Id;
use crate::options::value::{Kind, Value};

/// A listener from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraListener {
    /// Where.
    pub address: ExtraAddress,
    /// How its requests treat the tiers.
    pub policy: Policy,
    /// Limits of its own.
    pub limits: ListenerLimits,
}

/// Where an extra listener listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtraAddress {
    /// A host with its port; there is no common port here.
    Tcp(HostPort),
    /// A Unix socket.
    Unix {
        /// Path of its file.
        path: PathBuf,
        /// Its permissions; `None` takes `unix_mask`.
        mode: Option<u32>,
    },
}

/// The keys of a `[[listener]]` table.
pub const KEYS: &[&str] =
    &["address", "policy", "unix_mask", "max_connections", "idle_timeout", "output_limit", "admin_commands"];

/// The options that a listener may have of its own.
const LIMITS: [Id; 4] = [Id::MaxConnections, Id::IdleTimeout, Id::OutputLimit, Id::AdminCommands];

/// Reads an address: `host:port`, or an absolute path for a Unix socket.
pub fn address(text: &str) -> Result<ExtraAddress, &'static str> {
    if text.starts_with('/') {
        return Ok(ExtraAddress::Unix { path: text.into(), mode: None });
    }
    HostPort::read(text)
        .map(ExtraAddress::Tcp)
        .ok_or("an address with its port, as 127.0.0.1:11300, or the absolute path of a Unix socket")
}

/// Reads a policy.
pub fn policy(text: &str) -> Result<Policy, &'static str> {
    match text {
        "online" => Ok(Policy::Online),
        "batch" => Ok(Policy::Batch),
        _ => Err("online or batch"),
    }
}

/// Reads the permissions of a Unix socket.
pub fn unix_mask(text: &str) -> Result<u32, &'static str> {
    match Kind::Mode.read(text) {
        Some(Value::Mode(mode)) => Ok(mode),
        _ => Err("file permissions in octal, from 0 to 777"),
    }
}

/// Reads one of the limits into `limits`, with the range of the option of the same name; false if `key` names none.
pub fn limit(limits: &mut ListenerLimits, key: &str, text: &str) -> Result<bool, String> {
    let Some(id) = LIMITS.into_iter().find(|id| id.spec().key == key) else { return Ok(false) };
    let kind = id.spec().kind;
    match kind.read(text).ok_or_else(|| kind.range())? {
        Value::Number(most) => limits.max_connections = usize::try_from(most).ok(),
        Value::Seconds(seconds) => limits.idle_timeout = Some(Duration::from_secs(seconds)),
        Value::Commands(commands) => limits.commands = Some(commands),
        Value::Size(bytes) => limits.output_limit = usize::try_from(bytes).ok(),
        other => unreachable!("no limit of a listener is {other:?}"),
    }
    Ok(true)
}

/// A policy's name in the file.
pub fn policy_name(policy: Policy) -> &'static str {
    match policy {
        Policy::Online => "online",
        Policy::Batch => "batch",
    }
}

impl fmt::Display for ExtraAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix { path, .. } => path.display().fmt(f),
        }
    }
}

impl fmt::Display for ExtraListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}", self.address, policy_name(self.policy))?;
        let ListenerLimits { max_connections, idle_timeout, output_limit, commands } = self.limits;
        let number = |number: usize| Value::Number(number as u64);
        let limits = [
            max_connections.map(number),
            idle_timeout.map(|timeout| Value::Seconds(timeout.as_secs())),
            output_limit.map(|bytes| Value::Size(bytes as u64)),
            commands.map(Value::Commands),
        ];
        for (id, limit) in LIMITS.into_iter().zip(limits) {
            limit.iter().try_for_each(|limit| write!(f, ", {} {limit}", id.spec().key))?;
        }
        write!(f, ")")
    }
}
