//! The side that connects.

use std::fmt;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;

use super::credentials::Tls;
use super::encrypted::Encrypted;
use super::error::TlsError;
use super::records::Side;
use crate::host_port::HostPort;
use crate::socket::Socket;
use crate::transport_error::TransportError;

/// What protects connections to servers: they have to show a certificate for the host that was connected to, given by an
/// authority that is believed, and are shown this process's own certificate if they ask.
#[derive(Clone)]
pub struct TlsConnector {
    tls: Arc<Tls>,
    protocols: &'static [&'static str],
}

impl Tls {
    /// What protects connections to servers.
    ///
    /// # Errors
    /// When there is no authority to believe.
    pub fn connector(self: &Arc<Self>) -> Result<TlsConnector, TlsError> {
        self.loaded().check_connecting()?;
        Ok(TlsConnector { tls: Arc::clone(self), protocols: &[] })
    }
}

impl TlsConnector {
    /// The same for servers that want to be told which protocol follows (ALPN): one of these.
    #[must_use]
    pub fn speaking(self, protocols: &'static [&'static str]) -> Self {
        Self { protocols, ..self }
    }

    pub(super) fn connecting(&self) -> Result<Arc<ClientConfig>, rustls::Error> {
        self.tls.loaded().connecting()
    }

    /// Protects a connection to `place` on which the handshake has not begun.
    pub(crate) fn protect(&self, socket: Socket, place: &HostPort) -> Result<Encrypted, TransportError> {
        let host = place.host.split_once('%').map_or(place.host.as_str(), |(host, _)| host);
        let name = ServerName::try_from(host.to_owned())
            .map_err(|_| rustls::Error::General(format!("{host} is no name that a certificate can have")))?;
        let protocols = self.protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
        let connection = UnbufferedClientConnection::new_with_alpn(self.connecting()?, name, protocols)?;
        Ok(Encrypted::new(socket, Side::Client(connection), None))
    }
}

/// Of the same process.
impl PartialEq for TlsConnector {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.tls, &other.tls) && self.protocols == other.protocols
    }
}

impl Eq for TlsConnector {}

impl fmt::Debug for TlsConnector {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("TlsConnector")
    }
}
