//! What becomes of an accepted socket before a request is read from it.

use std::io;

use tokio::net::TcpStream;

use crate::right::Certificate;

/// What a connection is read and written through, and what is known of its other end.
#[derive(Debug)]
pub(crate) struct Opened<S> {
    pub(crate) stream: S,
    pub(crate) certificate: Option<Certificate>,
}

/// Opens a connection that was just accepted. It may wait for the client, in a task of its own and no longer than the head of a
/// request may take.
///
/// # Errors
/// If the client does not do its part; the connection is closed then.
pub(crate) async fn open(socket: TcpStream) -> io::Result<Opened<TcpStream>> {
    Ok(Opened { stream: socket, certificate: None })
}
