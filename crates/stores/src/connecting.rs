//! Connections of `net` to a store's servers.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use moneta_net::{Address, AsyncTransport, Connector, Endpoint, HostPort, PemSource, Tls, TlsConfig};
use tower_service::Service;

/// How long one connection may take, with its handshake.
const CONNECT: Duration = Duration::from_secs(10);

/// Connects to the host of a request: over TLS for `https`, plain for `http`.
#[derive(Clone, Debug)]
pub(crate) struct Connecting {
    connector: Connector,
}

impl Connecting {
    /// Believes the authorities that the system believes; `SSL_CERT_FILE` names others.
    ///
    /// # Errors
    /// If their certificates cannot be read.
    pub(crate) fn new() -> io::Result<Self> {
        let Some(file) = openssl_probe::probe().cert_file else {
            // Enough for `http`; an `https` request says what is missing.
            return Ok(Self { connector: Connector::Plain });
        };
        let authorities = Some(PemSource::File(file));
        let tls = Tls::load(TlsConfig { authorities, ..TlsConfig::default() }).map_err(io::Error::other)?;
        let connector = tls.connector().map_err(io::Error::other)?;
        Ok(Self { connector: Connector::TlsWhereAsked(connector) })
    }

    fn endpoint(&self, uri: &Uri) -> io::Result<Endpoint> {
        let is_https = uri.scheme_str() == Some("https");
        let host = uri.host().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "a URL without a host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let port = uri.port_u16().unwrap_or(if is_https { 443 } else { 80 });
        if is_https && self.connector == Connector::Plain {
            return Err(io::Error::other("the system has no list of authorities to believe: SSL_CERT_FILE names one"));
        }
        let place = HostPort { tls: Some(is_https), ..HostPort::new(host, port) };
        Ok(Endpoint { connector: self.connector.clone(), ..Endpoint::new(Address::Tcp(place)) })
    }
}

impl Service<Uri> for Connecting {
    type Response = TokioIo<Link>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Response>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let endpoint = self.endpoint(&uri);
        Box::pin(async move {
            let connecting = async { connect(endpoint?).await };
            tokio::time::timeout(CONNECT, connecting).await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
        })
    }
}

async fn connect(endpoint: Endpoint) -> io::Result<TokioIo<Link>> {
    let address = endpoint.address.clone();
    let numbers = tokio::task::spawn_blocking(move || address.resolve()).await.map_err(io::Error::other)??;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for number in numbers {
        let opened = async {
            let (transport, _) = endpoint.begin(Some(number))?;
            let mut transport = AsyncTransport::new(transport)?;
            transport.open().await?;
            Ok(transport)
        };
        match opened.await {
            Ok(transport) => return Ok(TokioIo::new(Link(transport))),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

/// A connection, as hyper keeps them.
#[derive(Debug)]
pub(crate) struct Link(AsyncTransport);

impl Connection for Link {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl tokio::io::AsyncRead for Link {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buffer)
    }
}

impl tokio::io::AsyncWrite for Link {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}
