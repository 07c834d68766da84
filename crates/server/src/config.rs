//! The configuration of a server: listeners, workers and limits.
//!
//! Plain values with defaults, filled from a node's options. Settings that sessions obey or show are in
//! [`crate::node::NodeSettings`]; these are the ones that only the socket driver needs.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use moneta_net::TlsAcceptor;
pub use moneta_store::{Door, Policy};

pub use crate::client_addresses::AddressLimits;
pub use crate::handshakes::limits::HandshakeLimits;
pub use crate::limits::Limits;
pub use crate::peer::Commands;

/// Configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Where clients connect. At least one.
    pub listeners: Vec<Listener>,
    /// Commands of operators that listeners obey, as far as [`crate::node::NodeSettings`] allows them at all.
    pub commands: Commands,
    /// Worker threads, at least 1 (`-t`).
    pub workers: usize,
    /// Most client connections at once, at least 1; further ones get an error and are closed (`-c`).
    pub max_connections: usize,
    /// What each client address may take. Clients of Unix sockets have none.
    pub address: AddressLimits,
    /// What handshakes of TLS may take.
    pub handshakes: HandshakeLimits,
    /// Connections the kernel keeps for a listener before they are accepted, at least 1 (`-b`).
    pub backlog: u32,
    /// Close a connection on which nothing was received or sent for this long, in whole seconds. `None`: never.
    pub idle_timeout: Option<Duration>,
    /// How long a TCP client may be silent before it is asked, below TCP's stream, whether it is still there; closed when it has
    /// not said so for half as long again, nor taken replies. `None`: as the system has it.
    pub tcp_keepalive: Option<Duration>,
    /// Unsent bytes at which a connection's requests are no longer read and executed. One reply may go over it.
    pub output_limit: usize,
    /// How long a graceful shutdown keeps accepting, while `/readyz` already fails, before it drains.
    pub lame_duck: Duration,
    /// Close a connection that has taken none of its dump for this long, in whole seconds: only one dump runs at a time, and
    /// others wait for it.
    pub dump_timeout: Duration,
    /// How long a graceful shutdown waits for requests in flight before it closes all connections.
    pub drain_timeout: Duration,
    /// How long a worker that has nothing to do looks for events again and again before it sleeps, which costs the processor's
    /// time and spares the wake. Zero: it sleeps at once.
    pub busy_poll: Duration,
}

impl ServerConfig {
    /// Default of [`ServerConfig::output_limit`]: 256 KiB, a few times what a socket takes at once.
    pub const OUTPUT_LIMIT: usize = 256 * 1024;
    /// Default of [`ServerConfig::tcp_keepalive`].
    pub const TCP_KEEPALIVE: Duration = Duration::from_secs(60);
    /// Default of [`ServerConfig::dump_timeout`].
    pub const DUMP_TIMEOUT: Duration = Duration::from_secs(30);
    /// Default of [`ServerConfig::drain_timeout`].
    pub const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);
}

impl Default for ServerConfig {
    /// memcached's defaults, and one listener on 127.0.0.1:11211.
    fn default() -> Self {
        Self {
            listeners: vec![Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 11211)))],
            commands: Commands::ALL,
            workers: 4,
            max_connections: 1024,
            address: AddressLimits::default(),
            handshakes: HandshakeLimits::default(),
            backlog: 1024,
            idle_timeout: None,
            tcp_keepalive: Some(Self::TCP_KEEPALIVE),
            output_limit: Self::OUTPUT_LIMIT,
            lame_duck: Duration::ZERO,
            dump_timeout: Self::DUMP_TIMEOUT,
            drain_timeout: Self::DRAIN_TIMEOUT,
            busy_poll: Duration::ZERO,
        }
    }
}

/// A listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its address.
    pub address: ListenAddress,
    /// Its name in the file of users.
    pub name: String,
    /// Whether its clients have to be users, where the node has users.
    pub users: bool,
    /// How requests that come through it treat the tiers.
    pub policy: Policy,
    /// For stores that answer by where a request came in.
    pub door: Door,
    /// Limits that override the server's.
    pub limits: ListenerLimits,
    /// What protects its connections; `None`: nothing does.
    pub tls: Option<TlsAcceptor>,
}

/// Overrides of the server's limits; `None` keeps the server's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Most connections through it at once, at least 1. They also count towards the server's limit, but for 32 where the listener
    /// obeys commands of operators that the server's do not.
    pub max_connections: Option<usize>,
    /// As [`ServerConfig::idle_timeout`]; zero: never, even if the server has a timeout.
    pub idle_timeout: Option<Duration>,
    /// As [`ServerConfig::output_limit`].
    pub output_limit: Option<usize>,
    /// What its connections may do together.
    pub rates: Limits,
    /// Whether its limits on operations and on bytes are its own, and do not change with those of other listeners.
    pub own_rates: [bool; 2],
    /// Most connections at once through all listeners of its door, as long as [`crate::live::Live`] says nothing else.
    pub door_connections: Option<usize>,
    /// Commands of operators that it obeys, in place of [`ServerConfig::commands`].
    pub commands: Option<Commands>,
}

impl Listener {
    /// The name of a listener for interactive traffic that has no other.
    pub const ONLINE: &str = "main";
    /// The name of one for bulk traffic.
    pub const BATCH: &str = "batch";

    /// A listener with the server's limits.
    pub fn new(address: ListenAddress, policy: Policy) -> Self {
        let name = match policy {
            Policy::Online => Self::ONLINE,
            Policy::Batch => Self::BATCH,
        };
        let (name, limits) = (name.into(), ListenerLimits::default());
        Self { address, name, users: true, policy, door: Door::COMMON, limits, tls: None }
    }

    /// Interactive traffic over TCP.
    pub fn tcp(address: SocketAddr) -> Self {
        Self::new(ListenAddress::Tcp(address), Policy::Online)
    }

    /// Interactive traffic over a Unix socket with memcached's default mode, 0700.
    pub fn unix(path: impl Into<PathBuf>) -> Self {
        Self::new(ListenAddress::Unix { path: path.into(), mode: 0o700 }, Policy::Online)
    }
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListenAddress {
    /// TCP over IPv4 or IPv6. With port 0 the kernel picks a port, which the running server reports.
    Tcp(SocketAddr),
    /// A Unix socket. A stale socket file is replaced; the file is removed at the end.
    Unix {
        /// Path of the socket's file.
        path: PathBuf,
        /// Its permission bits (`-a`).
        mode: u32,
    },
}

impl std::fmt::Display for ListenAddress {
    /// In memcached's form: `tcp:127.0.0.1:11211`, `tcp6:[::1]:11211`, `unix:/path`.
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Tcp(address @ SocketAddr::V4(_)) => write!(formatter, "tcp:{address}"),
            Self::Tcp(address @ SocketAddr::V6(_)) => write!(formatter, "tcp6:{address}"),
            Self::Unix { path, .. } => write!(formatter, "unix:{}", path.display()),
        }
    }
}
