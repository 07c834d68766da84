//! Listeners, workers, sessions and the admin side of one node.
//!
//! Sessions take bytes and yield bytes ([`session`]); what all of them share is the [`node`]. The socket driver round them
//! is kept apart, so that everything that understands the protocol is tested without sockets. [`server`] puts it all
//! together.

pub mod auth;
pub mod config;
pub mod counters;
pub mod error;
pub mod latency;
pub mod node;
pub mod server;
pub mod session;
pub mod watch;

mod acceptor;
mod admin;
mod backlog;
mod connection;
mod descriptors;
mod inbound;
mod lifecycle;
mod listener;
mod mailbox;
mod roster;
mod signals;
mod worker;

pub use config::{ListenAddress, Listener, ServerConfig};
pub use error::ServerError;
pub use server::{RunningServer, Server};
