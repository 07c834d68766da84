//! The client of a session: its address, what its listener lets it do, and why its connection ended.

use std::net::SocketAddr;
use std::sync::Arc;

use moneta_net::CertificateNames;
use moneta_store::{Door, Policy};

/// The kind of a connection's listener.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SocketKind {
    /// TCP.
    #[default]
    Tcp,
    /// Unix socket.
    Unix,
}

/// The set of operator commands that a listener accepts. Which command needs which of them: `session/rights.rs`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Commands(u16);

impl Commands {
    /// `cache_memlimit`.
    pub const CACHE_MEMLIMIT: Self = Self(1);
    /// `flush_all`.
    pub const FLUSH_ALL: Self = Self(2);
    /// `shutdown`.
    pub const SHUTDOWN: Self = Self(4);
    /// `verbosity`.
    pub const VERBOSITY: Self = Self(8);
    /// `watch`.
    pub const WATCH: Self = Self(16);
    /// `lru_crawler enable` and `disable`.
    pub const LRU_CRAWLER: Self = Self(32);
    /// `stats conns`.
    pub const STATS_CONNS: Self = Self(64);
    /// `stats detail`.
    pub const STATS_DETAIL: Self = Self(128);
    /// `stats reset`.
    pub const STATS_RESET: Self = Self(256);
    /// Lists of keys, and `changes`, in spite of [`crate::node::NodeSettings::dump_enabled`]: for a listener that only proxies
    /// reach.
    pub const DUMP: Self = Self(512);
    /// `refresh_certs`.
    pub const REFRESH_CERTS: Self = Self(1024);
    /// None of them.
    pub const NONE: Self = Self(0);
    /// All of them but [`Commands::DUMP`], which has to be named.
    pub const ALL: Self = Self(511 | 1024);
    /// Each command with its name.
    pub const NAMED: [(&'static str, Self); 11] = [
        ("cache_memlimit", Self::CACHE_MEMLIMIT),
        ("dump", Self::DUMP),
        ("flush_all", Self::FLUSH_ALL),
        ("lru_crawler", Self::LRU_CRAWLER),
        ("refresh_certs", Self::REFRESH_CERTS),
        ("shutdown", Self::SHUTDOWN),
        ("stats_conns", Self::STATS_CONNS),
        ("stats_detail", Self::STATS_DETAIL),
        ("stats_reset", Self::STATS_RESET),
        ("verbosity", Self::VERBOSITY),
        ("watch", Self::WATCH),
    ];

    /// The union of both sets.
    #[must_use]
    pub fn and(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// Whether all of `others` are in the set.
    #[inline]
    pub fn allow(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }
}

impl Default for Commands {
    /// All: the node's settings decide further.
    fn default() -> Self {
        Self::ALL
    }
}

impl std::fmt::Display for Commands {
    /// Names separated by commas, or `none`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> =
            Self::NAMED.iter().filter(|(_, command)| self.allow(*command)).map(|(name, _)| *name).collect();
        formatter.write_str(if names.is_empty() { "none".to_owned() } else { names.join(",") }.as_str())
    }
}

impl std::fmt::Debug for Commands {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, formatter)
    }
}

impl std::str::FromStr for Commands {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        if text == "none" {
            return Ok(Self::NONE);
        }
        let named =
            |name: &str| Self::NAMED.iter().find(|(known, _)| *known == name.trim()).map(|(_, command)| *command);
        text.split(',').try_fold(Self::NONE, |set, name| named(name).map(|command| set.and(command))).ok_or(())
    }
}

/// The client of a session.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// The connection's number: unique while the process lives.
    pub id: u64,
    /// The kind of its listener.
    pub kind: SocketKind,
    /// The listener's policy.
    pub policy: Policy,
    /// The listener's door.
    pub door: Door,
    /// Operator commands that the listener accepts.
    pub commands: Commands,
    /// The client's address; none on a Unix socket.
    pub address: Option<SocketAddr>,
    /// The listener's name in the file of users, if its clients have to be users.
    pub guarded_as: Option<Arc<str>>,
    /// The names of the certificate that the client has shown, if it was verified.
    pub certificate: Option<Arc<CertificateNames>>,
    /// The user, where the client has to be one and has logged in.
    pub user: Option<Arc<str>>,
    /// Whether nobody between the client and this process can read what they say.
    pub encrypted: bool,
}

/// Why a connection ended, for `watch connevents`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The client closed it, or asked for it.
    Normal,
    /// An error on the socket or in the protocol.
    Error,
    /// Idle for too long.
    IdleTimeout,
    /// The node is stopping.
    Shutdown,
    /// Client memory was scarce, and the connection held much of it or held it for long.
    Memory,
}
