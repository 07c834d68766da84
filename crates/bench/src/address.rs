//! The address of a server under test, and connections to it that say which server it was when they fail.

use std::io;
use std::sync::OnceLock;
use std::time::Duration;

use moneta_client::wire::log_in;
use moneta_net::{Endpoint, Outward, Stream, Transport};

use crate::error::{BenchError, Result};
use crate::wire::Protocol;

pub use moneta_net::Address;

/// How servers under test are reached.
static OUTWARD: OnceLock<Outward> = OnceLock::new();

/// Has all servers under test be reached so, and logged in to. It counts from the first call, before which they are reached
/// without protection.
pub fn reach_by(outward: Outward) {
    let _ = OUTWARD.set(outward);
}

/// `in_binary`: it is logged in to by SASL PLAIN, and speaks the binary protocol from then on.
fn open(endpoint: Endpoint, in_binary: bool) -> io::Result<Stream> {
    let endpoint = OUTWARD.get().map_or_else(|| endpoint.clone(), |outward| outward.over(endpoint.clone()));
    let mut stream = endpoint.connect()?;
    if let Some(user) = endpoint.log_in.credentials() {
        log_in::over(&mut stream, &user, in_binary)?;
    }
    Ok(stream)
}

/// Connections to a server under test.
pub trait Subject {
    /// Its TCP port, where the host is this machine by a name that says so.
    fn local_port(&self) -> Option<u16>;
    /// Wraps an operating system error with this address.
    fn failed(&self, source: io::Error) -> BenchError;
    /// Describes a reply that breaks the protocol.
    fn violated(&self, reason: String) -> BenchError;
    /// Opens a connection that waits as long as it takes.
    ///
    /// # Errors
    /// [`BenchError::Connection`].
    fn connect(&self) -> Result<Stream>;
    /// Opens a connection whose waits are at most `patience`.
    ///
    /// # Errors
    /// [`BenchError::Connection`].
    fn connect_for(&self, patience: Duration) -> Result<Stream>;
    /// Opens a connection for an event loop that speaks `protocol`.
    ///
    /// # Errors
    /// [`BenchError::Connection`].
    fn connect_nonblocking(&self, protocol: Protocol) -> Result<Transport>;
}

impl Subject for Address {
    fn local_port(&self) -> Option<u16> {
        let Self::Tcp(place) = self else { return None };
        ["127.0.0.1", "localhost", "::1"].contains(&&*place.host).then_some(place.port)
    }

    fn failed(&self, source: io::Error) -> BenchError {
        BenchError::Connection { address: self.to_string(), source }
    }

    fn violated(&self, reason: String) -> BenchError {
        BenchError::Protocol { address: self.to_string(), reason }
    }

    fn connect(&self) -> Result<Stream> {
        open(Endpoint::new(self.clone()), false).map_err(|source| self.failed(source))
    }

    fn connect_for(&self, patience: Duration) -> Result<Stream> {
        open(Endpoint::new(self.clone()).patient(patience), false).map_err(|source| self.failed(source))
    }

    fn connect_nonblocking(&self, protocol: Protocol) -> Result<Transport> {
        let stream = open(Endpoint::new(self.clone()), protocol == Protocol::Binary);
        stream.and_then(Stream::into_transport).map_err(|source| self.failed(source))
    }
}
