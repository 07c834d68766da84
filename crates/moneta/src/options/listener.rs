//! `[[listener]]` tables: further places to listen, beside those of `--listen` and `--unix-socket`, each with a policy.

use std::fmt;
use std::path::PathBuf;

use moneta_net::{ClientCertificates, HostPort};
use moneta_options::declaration::Opt;
use moneta_options::file::{Table, unknown};
use moneta_options::kinds::Kind;
use moneta_options::kinds::address::host_port;
use moneta_options::report::Refusal;
use moneta_server::config::{ListenerLimits, Policy};
use moneta_users::roster::check_name;

use crate::options::sections::access::{ADMIN_COMMANDS, USERS};
use crate::options::sections::network::{
    IDLE_TIMEOUT, MAX_BYTES, MAX_CONNECTIONS, MAX_OPERATIONS, OUTPUT_LIMIT, UNIX_MASK,
};
use crate::options::sections::tls::TLS_CLIENTS;

/// A listener from the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraListener {
    /// Where.
    pub address: ExtraAddress,
    /// How its requests treat the tiers.
    pub policy: Policy,
    /// The app of a proxy that all its requests are for.
    pub app: Option<String>,
    /// Whether its connections are protected by TLS; `None`: as others of the node.
    pub tls: Option<bool>,
    /// What its clients show of themselves; `None`: as others of the node.
    pub tls_clients: Option<ClientCertificates>,
    /// Its name in the file of users; without one its app's, or that of all listeners of its policy.
    pub name: Option<String>,
    /// Whether its clients have to be users, where the process has users.
    pub users: bool,
    /// Limits that override the node's. In those of a second, 0 is written as it stands and means none.
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
pub fn keys() -> impl Iterator<Item = &'static str> {
    let limits = [MAX_CONNECTIONS.key(), IDLE_TIMEOUT.key(), OUTPUT_LIMIT.key(), ADMIN_COMMANDS.key()];
    let of_a_second = [MAX_OPERATIONS.key(), MAX_BYTES.key()];
    let own = ["address", "policy", "app", "name", USERS.key(), UNIX_MASK.key(), TLS, TLS_CLIENTS.key()];
    own.into_iter().chain(limits).chain(of_a_second)
}

/// Whether TLS protects its connections.
const TLS: &str = "tls";

/// The name of the array of tables.
pub const TABLE: &str = "listener";

impl ExtraListener {
    /// Reads a table.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn read(table: &Table) -> Result<Self, Refusal> {
        let (mut address, mut policy, mut mask, mut app) = (None, Policy::Online, None, None);
        let (mut tls, mut tls_clients) = (None, None);
        let (mut name, mut users) = (None, true);
        let mut limits = ListenerLimits::default();
        for entry in &table.entries {
            let text = table.text(entry)?;
            let refuse = |range: &str| table.refuse(entry, range);
            let refuse_name = |_| refuse("a name of letters, digits, `.`, `_`, `-` and `@`");
            match entry.key.as_str() {
                "address" => address = Some(read_address(text).map_err(refuse)?),
                "policy" => policy = read_policy(text).map_err(refuse)?,
                "app" => app = Some(text.to_owned()),
                TLS => tls = Some(read_switch(text).map_err(refuse)?),
                key if key == TLS_CLIENTS.key() => {
                    tls_clients = Some(read(&TLS_CLIENTS, text).map_err(|range| refuse(&range))?);
                }
                "name" => name = Some(check_name(text).map(|()| text.to_owned()).map_err(refuse_name)?),
                key if key == USERS.key() => users = read_switch(text).map_err(refuse)?,
                key if key == UNIX_MASK.key() => mask = Some(read(&UNIX_MASK, text).map_err(|range| refuse(&range))?),
                key => {
                    if !read_limit(&mut limits, key, text).map_err(|range| refuse(&range))? {
                        return Err(unknown(key, &entry.origin, keys()));
                    }
                }
            }
        }
        let mut address = address.ok_or_else(|| table.refuse_whole("it needs an address"))?;
        if let ExtraAddress::Unix { mode, .. } = &mut address {
            *mode = mask;
        } else if mask.is_some() {
            let (mask, origin) = (UNIX_MASK.key(), &table.origin);
            return Err(Refusal::sentence(format!(
                "{TABLE}.{mask} ({origin}) is refused: this address is not a Unix socket"
            )));
        }
        let refuse = |what: &str, why: &str| {
            Err(Refusal::sentence(format!("{TABLE}.{what} ({}) is refused: {why}", table.origin)))
        };
        match &address {
            ExtraAddress::Unix { .. } if tls == Some(true) => return refuse(TLS, "a Unix socket has no TLS"),
            ExtraAddress::Unix { .. } if tls_clients.is_some() => {
                return refuse(TLS_CLIENTS.key(), "a Unix socket has no TLS");
            }
            ExtraAddress::Tcp(HostPort { tls: Some(by_prefix), .. }) if tls.is_some_and(|tls| tls != *by_prefix) => {
                return refuse(TLS, "what stands before its address says otherwise");
            }
            ExtraAddress::Tcp(HostPort { tls: by_prefix @ Some(_), .. }) => tls = *by_prefix,
            _ => {}
        }
        if tls == Some(false) && tls_clients.is_some() {
            return refuse(TLS_CLIENTS.key(), "without TLS clients show nothing");
        }
        Ok(Self { address, policy, app, tls, tls_clients, name, users, limits })
    }

    /// Whether it asks clients for certificates by its own word.
    pub fn asks_clients(&self) -> bool {
        self.tls_clients.is_some_and(|clients| clients != ClientCertificates::None)
    }
}

/// `host:port`, or an absolute path for a Unix socket.
fn read_address(text: &str) -> Result<ExtraAddress, &'static str> {
    if text.starts_with('/') {
        return Ok(ExtraAddress::Unix { path: text.into(), mode: None });
    }
    host_port(text)
        .map(ExtraAddress::Tcp)
        .ok_or("an address with its port, as 127.0.0.1:11300, or the absolute path of a Unix socket")
}

fn read_switch(text: &str) -> Result<bool, &'static str> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("on or off"),
    }
}

fn read_policy(text: &str) -> Result<Policy, &'static str> {
    match text {
        "online" => Ok(Policy::Online),
        "batch" => Ok(Policy::Batch),
        _ => Err("online or batch"),
    }
}

/// Reads one of the limits into `limits`, with the range of the option of the same name; false if `key` names none.
fn read_limit(limits: &mut ListenerLimits, key: &str, text: &str) -> Result<bool, String> {
    match key {
        _ if key == MAX_CONNECTIONS.key() => limits.max_connections = Some(read(&MAX_CONNECTIONS, text)?),
        _ if key == IDLE_TIMEOUT.key() => limits.idle_timeout = Some(read(&IDLE_TIMEOUT, text)?),
        _ if key == OUTPUT_LIMIT.key() => limits.output_limit = Some(read(&OUTPUT_LIMIT, text)?),
        _ if key == ADMIN_COMMANDS.key() => limits.commands = Some(read(&ADMIN_COMMANDS, text)?),
        _ if key == MAX_OPERATIONS.key() => limits.rates.operations = Some(read(&MAX_OPERATIONS, text)?),
        _ if key == MAX_BYTES.key() => limits.rates.bytes = Some(read(&MAX_BYTES, text)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Reads a value as the option of the same name does.
fn read<K: Kind>(option: &Opt<K>, text: &str) -> Result<K::Value, String> {
    option.read(text).ok_or_else(|| option.kind.range())
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
        if let Some(app) = &self.app {
            write!(f, ", app {app}")?;
        }
        if let Some(name) = &self.name {
            write!(f, ", name {name}")?;
        }
        if !self.users {
            write!(f, ", {} off", USERS.key())?;
        }
        let ListenerLimits {
            max_connections,
            idle_timeout,
            output_limit,
            commands,
            rates,
            own_rates: _,
            door_connections: _,
        } = self.limits;
        if let Some(tls) = self.tls {
            write!(f, ", {TLS} {}", if tls { "on" } else { "off" })?;
        }
        write_limit(f, &TLS_CLIENTS, self.tls_clients)?;
        write_limit(f, &MAX_CONNECTIONS, max_connections)?;
        write_limit(f, &IDLE_TIMEOUT, idle_timeout)?;
        write_limit(f, &OUTPUT_LIMIT, output_limit)?;
        write_limit(f, &ADMIN_COMMANDS, commands)?;
        write_limit(f, &MAX_OPERATIONS, rates.operations)?;
        write_limit(f, &MAX_BYTES, rates.bytes)?;
        write!(f, ")")
    }
}

fn write_limit<K: Kind>(f: &mut fmt::Formatter<'_>, option: &Opt<K>, limit: Option<K::Value>) -> fmt::Result {
    limit.iter().try_for_each(|limit| write!(f, ", {} {}", option.key(), option.kind.write(limit)))
}
