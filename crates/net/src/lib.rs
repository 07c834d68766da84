//! How a process reaches another over TCP and Unix sockets. No other crate connects, receives or sends on the socket of a client
//! or a node, so that what protects connections is written here alone.
//!
//! - [`Address`]: where a server listens, as an operator writes it. [`Names`]: the numbers of its host, looked up again when
//!   they fail.
//! - [`Endpoint`]: an address, how long each step to it may take, how connections to it are protected, and what they say of
//!   themselves. [`Outward`]: the latter two, for all that a process connects to.
//! - [`Transport`]: what a connection reads and writes through, for event loops. [`Stream`]: the same with waits and deadlines.
//! - `AsyncTransport` (feature `tokio`): a transport on tokio's runtime.
//! - `HttpClient` (feature `http`): what asks admin ports.
//! - [`CertificateNames`]: who is at the other end, where a certificate says it.
//! - [`accept`]: the connections that others make.
//! - [`ports`]: free ports for processes that are started again on them.

mod address;
#[cfg(feature = "tokio")]
mod async_transport;
mod certificate_names;
mod endpoint;
mod host_port;
#[cfg(feature = "http")]
mod http;
mod keep_alive;
mod listening;
mod local;
mod log_in;
mod lookup;
mod names;
mod opening;
mod outward;
pub mod ports;
mod received;
mod socket;
mod stream;
mod tls;
mod transport;
mod transport_error;

pub use address::Address;
#[cfg(feature = "tokio")]
pub use async_transport::AsyncTransport;
pub use certificate_names::CertificateNames;
pub use endpoint::{Connector, Endpoint, Timeouts};
pub use host_port::{AddressError, HostPort, prefix as tls_prefix, without_prefix as without_tls_prefix};
#[cfg(feature = "http")]
pub use http::{GIVEN_UP, HttpAnswer, HttpClient, HttpError, HttpRequest};
pub use keep_alive::keep_alive;
pub use listening::{accept, is_listening};
pub use local::local_towards;
pub use log_in::{Credentials, LogIn, LogInSource};
pub use names::{Lookup, Names};
pub use opening::Opening;
pub use outward::Outward;
pub use received::Received;
pub use stream::Stream;
pub use tls::{
    ClientCertificates, LentTls, MinVersion, PemSource, PreparedTls, Tls, TlsAcceptor, TlsConfig, TlsConnector,
    TlsError, TlsFailure, TlsSummary,
};
pub use transport::Transport;
pub use transport_error::TransportError;
