//! Any server that speaks memcached's protocol, as a store: memcached itself, or another Moneta.
//!
//! Each worker thread has its connections, in its [`moneta_store::Reactor`]; requests of one turn go out in one write,
//! and replies are matched in order. Threads without a reactor share one background thread. See docs/remote.md for what is
//! promised when servers die, hang, or come back.

mod background;
mod caller;
mod config;
mod connection;
mod counters;
mod counting;
mod error;
mod exchange;
mod failure;
mod held;
mod install;
mod large;
mod newer;
mod promise;
mod reads;
mod remote;
mod running;
mod several;
mod shared;
mod statistics;
mod timer;
mod walk;
mod worker_client;
mod writes;

pub use config::{RemoteConfig, RequestTimeout};
pub use counters::metrics;
pub use error::RemoteError;
pub use held::ValueMemory;
pub use remote::Remote;
