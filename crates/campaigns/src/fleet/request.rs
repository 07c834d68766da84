//! A request of HTTP, with a connection of its own, as processes of a fleet make them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long one may take.
const WITHIN: Duration = Duration::from_secs(60);

/// Status and body.
pub(super) async fn ask(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
    let asked = async {
        let mut stream = begin(address, method, path, body).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        let answer = String::from_utf8_lossy(&answer);
        let cut = || io::Error::other("an answer was cut short");
        let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(cut)?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
        Ok((status, body.to_owned()))
    };
    timeout(WITHIN, asked).await.map_err(|_| io::ErrorKind::TimedOut)?
}

/// Sends a request; the answer is yet to be read.
pub(super) async fn begin(address: SocketAddr, method: &str, path: &str, body: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    let length = body.len();
    let request = format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await?;
    Ok(stream)
}
