//! How a process reaches another over TCP and Unix sockets. No other crate connects, receives or sends on the socket of a client or a
//! node, so that what protects connections is written here alone.
//!
//! - [`Address`]: where a server listens, as an operator writes it. [`Names`]: the numbers behind its host, looked up again when they fail.
//! - [`Endpoint`]: an address, how long each step to it may take, and how connections to it are protected.
//! - [`Transport`]: what a connection reads and writes through, for event loops. [`Stream`]: the same with waits and deadlines.
//! - [`accept`]: the connections that others make.

mod address;
mod endpoint;
mod host_port;
mod listening;
mod names;
mod socket;
mod stream;
mod transport;

pub use address::Address;
pub use endpoint::{Connector, Endpoint, LogIn, Timeouts};
pub use host_port::{AddressError, HostPort};
pub use listening::{accept, is_listening, keep_alive};
pub use names::{Lookup, Names};
pub use stream::Stream;
pub use transport::{Opening, Received, Transport, TransportError};
