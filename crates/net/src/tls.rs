//! TLS: who a process is, whom it believes, and connections that are protected. `rustls` with `ring` speaks it; nothing outside of
//! this folder names either.
//!
//! - [`TlsConfig`]: where certificates, keys and authorities come from. [`Tls`]: what was read there last, and again.
//! - [`TlsAcceptor`], [`TlsConnector`]: begin connections of the two sides.
//! - `Encrypted`: a connection. [`LentTls`]: for libraries that make theirs themselves.

mod acceptor;
mod admission;
mod client_certificates;
mod config;
mod connector;
mod credentials;
pub(crate) mod encrypted;
pub(crate) mod error;
mod lent;
mod loaded;
mod names;
mod records;
mod sessions;
mod source;
#[cfg(test)]
mod tests;
mod validity;

pub use acceptor::TlsAcceptor;
pub use client_certificates::ClientCertificates;
pub use config::{MinVersion, TlsConfig};
pub use connector::TlsConnector;
pub use credentials::{PreparedTls, Tls};
pub use encrypted::TlsSummary;
pub use error::{TlsError, TlsFailure};
pub use lent::LentTls;
pub use source::PemSource;
pub(crate) use source::Stamp;
