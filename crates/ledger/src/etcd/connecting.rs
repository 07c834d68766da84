//! gRPC over connections of `net`: plain or TLS, as the process connects to everything.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use moneta_net::{Address, AsyncTransport, Connector, Endpoint};
use tokio::runtime::Handle;
use tonic::transport::Channel;
use tower_service::Service;

/// How long one connection may take, with its handshake.
const CONNECT: Duration = Duration::from_secs(2);

/// No connection was made: what was to be sent over it was not sent.
#[derive(Debug, thiserror::Error)]
#[error("no connection: {0}")]
pub(crate) struct NotConnected(String);

/// A channel that connects when it is first used, and again when its connection breaks.
pub(crate) fn channel(runtime: &Handle, endpoint: &Endpoint) -> Channel {
    let _entered = runtime.enter();
    // What is connected to is the connector's affair; this is the name in the requests' heads.
    let authority = match &endpoint.address {
        Address::Tcp(place) => format!("http://{}", place.place()),
        Address::Unix(_) => "http://localhost".to_owned(),
    };
    let builder = Channel::from_shared(authority).unwrap_or_else(|_| Channel::from_static("http://etcd"));
    let mut endpoint = endpoint.clone();
    endpoint.connector = match endpoint.connector {
        Connector::Tls(connector) => Connector::Tls(connector.speaking(&["h2"])),
        Connector::TlsWhereAsked(connector) => Connector::TlsWhereAsked(connector.speaking(&["h2"])),
        other => other,
    };
    builder.connect_with_connector_lazy(Connecting(endpoint))
}

#[derive(Clone)]
struct Connecting(Endpoint);

impl<R> Service<R> for Connecting {
    type Response = TokioIo<AsyncTransport>;
    type Error = NotConnected;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: R) -> Self::Future {
        let endpoint = self.0.clone();
        Box::pin(async move {
            match tokio::time::timeout(CONNECT, connect(endpoint)).await {
                Ok(connected) => connected,
                Err(_) => Err(NotConnected("it takes too long".to_owned())),
            }
        })
    }
}

async fn connect(endpoint: Endpoint) -> Result<TokioIo<AsyncTransport>, NotConnected> {
    let numbers = match &endpoint.address {
        Address::Unix(_) => vec![None],
        Address::Tcp(place) => {
            let place = place.clone();
            let found = tokio::task::spawn_blocking(move || place.resolve()).await;
            let found = found.map_err(|error| NotConnected(error.to_string()))?;
            found.map_err(|error| NotConnected(error.to_string()))?.into_iter().map(Some).collect()
        }
    };
    let mut failure = NotConnected("the host has no address".to_owned());
    for number in numbers {
        match open(&endpoint, number).await {
            Ok(transport) => return Ok(TokioIo::new(transport)),
            Err(why) => failure = NotConnected(why),
        }
    }
    Err(failure)
}

async fn open(endpoint: &Endpoint, number: Option<std::net::SocketAddr>) -> Result<AsyncTransport, String> {
    let (transport, _) = endpoint.begin(number).map_err(|error| error.to_string())?;
    let mut transport = AsyncTransport::new(transport).map_err(|error| error.to_string())?;
    transport.open().await.map_err(|error| error.to_string())?;
    Ok(transport)
}
