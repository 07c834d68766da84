//! A plain client: a socket, a buffer, and reads that give up rather than hang.

use anyhow::{Context, Result, bail, ensure};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use moneta_net::{Connector, Endpoint, Stream};

pub use moneta_net::Address;

/// How long a read waits before the test fails; long, so that only a hang reaches it.
pub const READ_LIMIT: Duration = Duration::from_secs(30);
const READ_BYTES: usize = 64 * 1024;

/// A connection to a server, with whatever was received and not yet looked at.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    received: Vec<u8>,
}

impl Client {
    /// Opens a connection without delay for small writes.
    pub fn connect(address: &Address) -> Result<Self> {
        Self::connect_by(address, &Connector::Plain)
    }

    /// The same as `connector` protects it.
    pub fn connect_by(address: &Address, connector: &Connector) -> Result<Self> {
        let endpoint = Endpoint { connector: connector.clone(), ..Endpoint::new(address.clone()).patient(READ_LIMIT) };
        Ok(Self { stream: endpoint.connect()?, received: Vec::new() })
    }

    /// Sends all of `bytes`.
    pub fn send(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.write_all(bytes)?)
    }

    /// Sends `request` and returns the one line that answers it, without its line end.
    pub fn ask(&mut self, request: &str) -> Result<String> {
        self.send(request.as_bytes())?;
        self.line().with_context(|| format!("no reply to {request:?}"))
    }

    /// Sends `request` and returns everything up to and including the line `last`.
    pub fn ask_until(&mut self, request: &str, last: &str) -> Result<Vec<String>> {
        self.send(request.as_bytes())?;
        self.lines_until(last).with_context(|| format!("no full reply to {request:?}"))
    }

    /// One reply line, without its line end (`\r\n` or `\n`).
    pub fn line(&mut self) -> Result<String> {
        loop {
            if let Some(end) = self.received.iter().position(|&byte| byte == b'\n') {
                let mut line: Vec<u8> = self.received.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            ensure!(self.receive()?, "the server closed the connection within a line: {:?}", self.received);
        }
    }

    /// Lines up to and including `last`.
    pub fn lines_until(&mut self, last: &str) -> Result<Vec<String>> {
        let mut lines = Vec::new();
        loop {
            let line = self.line().with_context(|| format!("after {} lines, before {last:?}", lines.len()))?;
            let done = line == last;
            lines.push(line);
            if done {
                return Ok(lines);
            }
        }
    }

    /// Exactly `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.received.len() < count {
            ensure!(self.receive()?, "the server closed after {} of {count} bytes", self.received.len());
        }
        Ok(self.received.drain(..count).collect())
    }

    /// Everything up to the server's close; fails if the server does not close.
    pub fn until_closed(&mut self) -> Result<Vec<u8>> {
        while self.receive()? {}
        Ok(std::mem::take(&mut self.received))
    }

    /// The value of a key: `None` on a miss.
    pub fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>> {
        let head = self.ask(&format!("get {key}\r\n"))?;
        if head == "END" {
            return Ok(None);
        }
        let length: usize = head.split(' ').nth(3).with_context(|| format!("odd reply {head:?}"))?.parse()?;
        let value = self.bytes(length)?;
        let rest = self.bytes("\r\nEND\r\n".len())?;
        ensure!(rest == b"\r\nEND\r\n", "after the value came {rest:?}");
        Ok(Some(value))
    }

    /// Stores a value for ever with flags 0, and returns the reply line.
    pub fn set(&mut self, key: &str, value: &[u8]) -> Result<String> {
        let mut request = format!("set {key} 0 0 {}\r\n", value.len()).into_bytes();
        request.extend_from_slice(value);
        request.extend_from_slice(b"\r\n");
        self.send(&request)?;
        self.line()
    }

    /// `stats [group]` as pairs.
    pub fn stats(&mut self, group: &str) -> Result<Vec<(String, String)>> {
        let request = if group.is_empty() { "stats\r\n".to_owned() } else { format!("stats {group}\r\n") };
        let mut lines = self.ask_until(&request, "END")?;
        lines.pop();
        lines
            .iter()
            .map(|line| {
                let (name, value) = line
                    .strip_prefix("STAT ")
                    .and_then(|rest| rest.split_once(' '))
                    .with_context(|| format!("odd line {line:?}"))?;
                Ok((name.to_owned(), value.to_owned()))
            })
            .collect()
    }

    /// One value of `stats`, as a number.
    pub fn stat(&mut self, name: &str) -> Result<u64> {
        let stats = self.stats("")?;
        let (_, value) =
            stats.into_iter().find(|(key, _)| key == name).with_context(|| format!("no statistic {name}"))?;
        Ok(value.parse()?)
    }

    /// Changes how long reads and writes wait.
    pub fn set_read_limit(&mut self, limit: Duration) {
        self.stream.set_idle(Some(limit));
    }

    /// Makes reads and writes return at once; for callers that drive the connection themselves.
    pub fn set_nonblocking(&mut self, nonblocking: bool) -> Result<()> {
        Ok(self.stream.set_nonblocking(nonblocking)?)
    }

    /// One write that may take only a part of `bytes`.
    pub fn write_some(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.stream.write(bytes)
    }

    /// One read; 0 means the server closed.
    pub fn read_some(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.stream.read(buffer)
    }

    /// Reads once into the buffer; `false` when the server has closed (a reset counts as a close).
    fn receive(&mut self) -> Result<bool> {
        let mut buffer = [0; READ_BYTES];
        match self.read_some(&mut buffer) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.received.extend_from_slice(&buffer[..count]);
                Ok(true)
            }
            // Over TLS, memcached closes without a word.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof) => Ok(false),
            Err(error) => bail!("nothing to read: {error}; so far {:?}", String::from_utf8_lossy(&self.received)),
        }
    }
}

impl AsRawFd for Client {
    fn as_raw_fd(&self) -> RawFd {
        self.stream.as_raw_fd()
    }
}
