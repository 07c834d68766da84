//! Listeners, workers, sessions and the admin side of one node.
//!
//! Sessions turn bytes into bytes ([`session`]); their shared state is the [`node`]. The socket driver is separate, so that
//! everything that understands the protocol can be tested without sockets. [`server`] assembles all of it.

pub mod auth;
mod certificates;
pub mod client_memory;
pub mod config;
pub mod counters;
pub mod dump;
pub mod error;
pub mod feed;
pub mod latency;
pub mod limits;
pub mod node;
pub mod prefixes;
pub mod server;
pub mod session;
pub mod stats;
pub mod watch;

mod acceptor;
mod address;
mod admin;
mod backlog;
mod board;
mod by_policy;
mod client_addresses;
mod connection;
mod connection_registry;
mod connections;
mod departures;
mod descriptors;
mod door_places;
mod handshakes;
mod hot_keys;
mod inbound;
mod lanes;
mod late;
mod late_turns;
mod listener;
mod listener_state;
mod live;
mod login_failures;
mod mailbox;
mod miss_curve;
mod peer;
mod pulse;
mod rate;
mod reactors;
mod scheduling;
mod secret_ends;
mod settings;
pub mod slow_log;
mod space_saving;
mod spread;
mod turnstile;
mod version;
mod wake;
mod worker;

pub use admin::metrics;
pub use certificates::Certificates;
pub use client_addresses::{AddressLimits, LiveAddressLimits};
pub use config::{HandshakeLimits, ListenAddress, Listener, ListenerLimits, ServerConfig};
pub use error::ServerError;
pub use live::Live;
pub use pulse::Pulse;
pub use secret_ends::secret_ends;
pub use server::{RunningServer, Server};
pub use version::{MONETA_VERSION, VERSION};
