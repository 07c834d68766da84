//! The side that accepts.

use std::fmt;
use std::sync::Arc;

use rustls::server::UnbufferedServerConnection;

use super::client_certificates::ClientCertificates;
use super::credentials::Tls;
use super::encrypted::Encrypted;
use super::error::TlsError;
use super::records::Side;
use crate::transport::Transport;
use crate::transport_error::TransportError;

/// What protects the connections of a listener. What was loaded last is in force for the next connection.
#[derive(Clone)]
pub struct TlsAcceptor {
    tls: Arc<Tls>,
    clients: ClientCertificates,
}

impl Tls {
    /// What protects a listener.
    ///
    /// # Errors
    /// When there is no certificate to show, or no authority for those of clients.
    pub fn acceptor(self: &Arc<Self>, clients: ClientCertificates) -> Result<TlsAcceptor, TlsError> {
        self.loaded().check_serving(clients)?;
        Ok(TlsAcceptor { tls: Arc::clone(self), clients })
    }
}

impl TlsAcceptor {
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
