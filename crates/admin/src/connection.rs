//! What becomes of an accepted socket before a request is read from it.

use std::io;

use moneta_net::Transport;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::handshakes::Handshakes;
use crate::right::Certificate;

/// What a connection is read and written through, and what is known of its other end.
pub(crate) struct Opened {
    pub(crate) stream: Box<dyn Wire>,
    pub(crate) certificate: Option<Certificate>,
}

/// What bytes go over, protected or not.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Wire for S {}

/// Opens a connection that was just accepted; `tls`: what protects it. It may wait for the client, in a task of its own and no longer
/// than the head of a request may take.
///
/// # Errors
/// If the client does not do its part; the connection is closed then.
pub(crate) async fn open(socket: TcpStream, tls: Option<&Handshakes>) -> io::Result<Opened> {
    let Some(tls) = tls else { return Ok(Opened { stream: Box::new(socket), certificate: None }) };
    let stream = tls.open(Transport::from(socket.into_std()?)).await?;
    let certificate = stream.certificate_names().map(|names| {
        let names = names.dns.iter().chain(&names.uris).map(ToString::to_string);
        Certificate { names: names.collect() }
    });
    Ok(Opened { stream: Box::new(stream), certificate })
}
