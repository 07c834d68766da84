//! Where a server listens.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// A server's address: `HOST:PORT`, or the path of a Unix socket (anything with a slash, or after `unix:`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Host, by name or number, and port.
    Tcp(String),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.into()));
        }
        if text.contains('/') {
            return Ok(Self::Unix(text.into()));
        }
        match text.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0) => {
                Ok(Self::Tcp(text.to_owned()))
            }
            Some((host, port))
                if !host.is_empty() && !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) =>
            {
                Err(format!("\"{text}\" has the port {port}: ports are 1 to 65535"))
            }
            _ => Err(format!("\"{text}\" is neither HOST:PORT nor the path of a Unix socket")),
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

/// A blocking stream to a server.
#[derive(Debug)]
pub(crate) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Address {
    /// The socket addresses behind a host's name; none for a Unix socket. May wait for a name server.
    ///
    /// # Errors
    /// When the name server does not know the host, or does not answer.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Tcp(address) => Ok(address.to_socket_addrs()?.collect()),
            Self::Unix(_) => Ok(Vec::new()),
        }
    }

    /// Connects; connecting, reads and writes wait at most `timeout` each.
    pub(crate) fn connect_blocking(&self, timeout: Duration) -> io::Result<Stream> {
        match self {
            Self::Unix(path) => {
                let stream = UnixStream::connect(path)?;
                stream.set_read_timeout(Some(timeout))?;
                stream.set_write_timeout(Some(timeout))?;
                Ok(Stream::Unix(stream))
            }
            Self::Tcp(_) => {
                let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
                for address in self.resolve()? {
                    match TcpStream::connect_timeout(&address, timeout) {
                        Ok(stream) => {
                            stream.set_nodelay(true)?;
                            stream.set_read_timeout(Some(timeout))?;
                            stream.set_write_timeout(Some(timeout))?;
                            return Ok(Stream::Tcp(stream));
                        }
                        Err(error) => failure = error,
                    }
                }
                Err(failure)
            }
        }
    }
}

impl Stream {
    /// How long a read may wait from now on.
    pub(crate) fn set_read_timeout(&self, timeout: Duration) -> io::Result<()> {
        match self {
            Self::Tcp(stream) => stream.set_read_timeout(Some(timeout)),
            Self::Unix(stream) => stream.set_read_timeout(Some(timeout)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.read(buffer),
            Self::Unix(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => stream.write(buffer),
            Self::Unix(stream) => stream.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        assert_eq!("localhost:11211".parse(), Ok(Address::Tcp("localhost:11211".into())));
        assert_eq!("[::1]:11211".parse(), Ok(Address::Tcp("[::1]:11211".into())));
        assert_eq!("/run/memcached.sock".parse(), Ok(Address::Unix("/run/memcached.sock".into())));
        assert_eq!("unix:memcached.sock".parse(), Ok(Address::Unix("memcached.sock".into())));
        for bad in ["", "localhost", ":11211", "localhost:", "localhost:port", "localhost:70000", "localhost:0"] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }
}
