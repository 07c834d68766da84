//! Where a server listens, and streams to it: blocking ones for control and replay, non-blocking ones for loads.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;

use mio::event::Source;
use mio::{Interest, Registry, Token};

use crate::error::{BenchError, Result};

/// A server's address: `HOST:PORT`, or the path of a Unix socket (anything with a slash, or after `unix:`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// Host and port.
    Tcp(String),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => Ok(Self::Tcp(text.to_owned())),
            _ => Err("expected HOST:PORT or the path of a Unix socket".to_owned()),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => formatter.write_str(address),
            Self::Unix(path) => write!(formatter, "{}", path.display()),
        }
    }
}

impl Address {
    /// Its TCP port, where the host is this machine by a name that says so.
    pub(crate) fn local_port(&self) -> Option<u16> {
        let Self::Tcp(address) = self else { return None };
        let (host, port) = address.rsplit_once(':')?;
        let is_here = ["127.0.0.1", "localhost", "[::1]"].contains(&host);
        if is_here { port.parse().ok() } else { None }
    }

    /// Wraps an operating system error with this address.
    pub(crate) fn failed(&self, source: io::Error) -> BenchError {
        BenchError::Connection { address: self.to_string(), source }
    }

    /// Describes a reply that breaks the protocol.
    pub(crate) fn violated(&self, reason: String) -> BenchError {
        BenchError::Protocol { address: self.to_string(), reason }
    }

    /// Opens a blocking connection.
    ///
    /// # Errors
    /// [`BenchError::Connection`].
    pub fn connect(&self) -> Result<BlockingStream> {
        let connect = || match self {
            Self::Tcp(address) => connect_tcp(address).map(BlockingStream::Tcp),
            Self::Unix(path) => UnixStream::connect(path).map(BlockingStream::Unix),
        };
        connect().map_err(|source| self.failed(source))
    }

    /// Opens a connection and makes it non-blocking.
    ///
    /// # Errors
    /// [`BenchError::Connection`].
    pub fn connect_nonblocking(&self) -> Result<EventStream> {
        let convert = |stream| match stream {
            BlockingStream::Tcp(stream) => {
                stream.set_nonblocking(true)?;
                Ok(EventStream::Tcp(mio::net::TcpStream::from_std(stream)))
            }
            BlockingStream::Unix(stream) => {
                stream.set_nonblocking(true)?;
                Ok(EventStream::Unix(mio::net::UnixStream::from_std(stream)))
            }
        };
        convert(self.connect()?).map_err(|source| self.failed(source))
    }
}

fn connect_tcp(address: &str) -> io::Result<TcpStream> {
    let addresses: Vec<_> = address.to_socket_addrs()?.collect();
    let stream = TcpStream::connect(&addresses[..])?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// A blocking connection.
#[derive(Debug)]
pub enum BlockingStream {
    /// Over TCP, without Nagle's delay.
    Tcp(TcpStream),
    /// Over a Unix socket.
    Unix(UnixStream),
}

impl BlockingStream {
    /// Bounds how long a write may wait; none waits forever.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn set_write_timeout(&self, timeout: Option<std::time::Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_write_timeout(timeout),
            Self::Unix(stream) => stream.set_write_timeout(timeout),
        }
    }

    /// Bounds how long a read may wait; none waits forever.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn set_read_timeout(&self, timeout: Option<std::time::Duration>) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(timeout),
            Self::Unix(stream) => stream.set_read_timeout(timeout),
        }
    }
}

/// A connection for an event loop.
#[derive(Debug)]
pub enum EventStream {
    /// Over TCP, without Nagle's delay.
    Tcp(mio::net::TcpStream),
    /// Over a Unix socket.
    Unix(mio::net::UnixStream),
}

macro_rules! delegate_io {
    ($stream:ty) => {
        impl Read for $stream {
            #[inline]
            fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
                match self {
                    Self::Tcp(stream) => stream.read(buffer),
                    Self::Unix(stream) => stream.read(buffer),
                }
            }
        }

        impl Write for $stream {
            #[inline]
            fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
                match self {
                    Self::Tcp(stream) => stream.write(bytes),
                    Self::Unix(stream) => stream.write(bytes),
                }
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
    };
}

delegate_io!(BlockingStream);
delegate_io!(EventStream);

impl Source for EventStream {
    fn register(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.register(registry, token, interests),
            Self::Unix(stream) => stream.register(registry, token, interests),
        }
    }

    fn reregister(&mut self, registry: &Registry, token: Token, interests: Interest) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.reregister(registry, token, interests),
            Self::Unix(stream) => stream.reregister(registry, token, interests),
        }
    }

    fn deregister(&mut self, registry: &Registry) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.deregister(registry),
            Self::Unix(stream) => stream.deregister(registry),
        }
    }
}
