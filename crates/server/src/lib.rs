//! Listeners, workers, sessions and the admin side of one node.
//!
//! Sessions take bytes and yield bytes ([`session`]); what all of them share is the [`node`]. The socket driver round them
//! is kept apart, so that everything that understands the protocol is tested without sockets. [`server`] puts it all
//! together.

pub mod auth;
pub mod client_memory;
pub mod config;
pub mod counters;
pub mod dump;
pub mod error;
pub mod latency;
pub mod node;
pub mod prefixes;
pub mod server;
pub mod session;
pub mod stats;
pub mod usage;
pub mod watch;

mod acceptor;
mod admin;
mod backlog;
mod by_policy;
mod connection;
mod connection_registry;
mod descriptors;
mod escape;
mod inbound;
mod lanes;
mod lifecycle;
mod listener;
mod listener_state;
mod mailbox;
mod pulse;
mod reactors;
mod scheduling;
mod signals;
mod worker;

pub use admin::Admin;
pub use config::{ListenAddress, Listener, ListenerLimits, ServerConfig};
pub use error::ServerError;
pub use pulse::Pulse;
pub use server::{RunningServer, Server};

/// The version as clients see it: of the memcached whose behaviour this node has, and nothing else, since clients look there for
/// what a server can do and do not agree on how to read more than three numbers.
pub const VERSION: &str = "1.6.45";
/// Moneta's own version, which `stats` tells as `moneta_version`.
pub const MONETA_VERSION: &str = env!("CARGO_PKG_VERSION");
