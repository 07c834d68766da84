//! Listeners, workers, sessions and the admin side of one node.
//!
//! Sessions take bytes and yield bytes ([`session`]); what all of them share is the [`node`]. The socket driver round them
//! is kept apart, so that everything that understands the protocol is tested without sockets.

pub mod auth;
pub mod config;
pub mod counters;
pub mod error;
pub mod latency;
pub mod node;
pub mod session;
pub mod watch;
