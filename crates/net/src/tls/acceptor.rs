//! The side that accepts.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;

use super::credentials::Tls;
use super::encrypted::Encrypted;
use super::records::Side;
use crate::transport::{Transport, TransportError};

/// What clients show of themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ClientCertificates {
    /// Nothing is asked.
    #[default]
    None,
    /// They are asked for a certificate and need not have one; one that is shown must hold.
    Ask,
    /// Without a certificate that holds, the handshake fails.
    Require,
}

impl ClientCertificates {
    pub(super) const ALL: [Self; 3] = [Self::None, Self::Ask, Self::Require];
}

impl FromStr for ClientCertificates {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "none" => Ok(Self::None),
            "ask" => Ok(Self::Ask),
            "require" => Ok(Self::Require),
            _ => Err("one of none, ask, require is wanted"),
        }
    }
}

impl fmt::Display for ClientCertificates {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::None => "none",
            Self::Ask => "ask",
            Self::Require => "require",
        })
    }
}

/// What protects the connections of a listener. What was loaded last is in force for the next connection.
#[derive(Clone)]
pub struct TlsAcceptor {
    tls: Arc<Tls>,
    clients: ClientCertificates,
}

impl TlsAcceptor {
    pub(super) fn new(tls: Arc<Tls>, clients: ClientCertificates) -> Self {
        Self { tls, clients }
    }

    /// What its clients show of themselves.
    pub fn clients(&self) -> ClientCertificates {
        self.clients
    }

    /// Protects an accepted connection that nothing was read from or sent over. It is open when [`Transport::open`] says so, which
    /// costs a signature and waits for the client: not for a thread that serves others.
    ///
    /// # Errors
    /// When there is nothing to accept with.
    pub fn protect(&self, accepted: Transport) -> Result<Transport, TransportError> {
        let Transport::Plain(socket) = accepted else { return Ok(accepted) };
        let (config, admission) = self.tls.loaded().serving(self.clients)?;
        let connection = UnbufferedServerConnection::new(config)?;
        Ok(Transport::Tls(Box::new(Encrypted::new(socket, Side::Server(connection), admission))))
    }
}

/// Of the same process, and for the same clients.
impl PartialEq for TlsAcceptor {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tls, &other.tls) && self.clients == other.clients
    }
}

impl Eq for TlsAcceptor {}

impl fmt::Debug for TlsAcceptor {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsAcceptor").field("clients", &self.clients).finish_non_exhaustive()
    }
}
