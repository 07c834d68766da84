//! A request of HTTP, with a connection of its own, as processes of a fleet make them.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long one may take.
const WITHIN: Duration = Duration::from_secs(60);

/// A request.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    pub(super) method: &'static str,
    pub(super) path: String,
    /// Further headers, each with the end of its line.
    pub(super) headers: &'static str,
    pub(super) body: String,
}

impl Request {
    /// One without further headers.
    pub(super) fn new(method: &'static str, path: &str, body: &str) -> Self {
        Self { method, path: path.to_owned(), headers: "", body: body.to_owned() }
    }

    /// Status and body.
    pub(super) async fn ask(&self, address: SocketAddr) -> io::Result<(u16, Vec<u8>)> {
        let asked = async {
            let mut stream = self.begin(address).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            let cut = || io::Error::other("an answer was cut short");
            let end = answer.windows(4).position(|end| end == b"\r\n\r\n").ok_or_else(cut)?;
            let head = String::from_utf8_lossy(&answer[..end]);
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).ok_or_else(cut)?;
            Ok((status, answer.split_off(end + 4)))
        };
        timeout(WITHIN, asked).await.map_err(|_| io::ErrorKind::TimedOut)?
    }

    /// Sends it; the answer is yet to be read.
    pub(super) async fn begin(&self, address: SocketAddr) -> io::Result<TcpStream> {
        let mut stream = TcpStream::connect(address).await?;
        let Self { method, path, headers, body } = self;
        let length = body.len();
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{headers}Content-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(text.as_bytes()).await?;
        Ok(stream)
    }
}

/// Status and body, as text.
pub(super) async fn ask(
    address: SocketAddr,
    method: &'static str,
    path: &str,
    body: &str,
) -> io::Result<(u16, String)> {
    let (status, body) = Request::new(method, path, body).ask(address).await?;
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}
