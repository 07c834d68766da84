//! TLS: who a process is, whom it believes, and connections that are protected. `rustls` with `ring` speaks it; nothing outside of
//! this folder names either.
//!
//! - [`TlsConfig`]: where certificates, keys and authorities come from. [`Tls`]: what was read there last, and again.
//! - [`TlsAcceptor`], [`TlsConnector`]: begin connections of the two sides.
//! - `Encrypted`: a connection.

mod acceptor;
mod connector;
mod credentials;
mod encrypted;
mod error;
mod loaded;
mod records;
mod sessions;
mod source;
#[cfg(test)]
mod tests;
mod validity;

pub use acceptor::{ClientCertificates, TlsAcceptor};
pub use connector::TlsConnector;
pub use credentials::{PreparedTls, Tls, TlsConfig};
pub(crate) use encrypted::Encrypted;
pub use encrypted::TlsSummary;
pub use error::{TlsError, TlsFailure};
pub use source::PemSource;
pub(crate) use source::Stamp;
