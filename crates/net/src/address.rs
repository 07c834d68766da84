//! Where a server listens.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use crate::host_port::{AddressError, HostPort};

/// What stands before the path of a Unix socket that has no slash.
const UNIX: &str = "unix:";

/// A server's address: `HOST:PORT`, with an IPv6 address in brackets, or the path of a Unix socket (anything with a slash, or
/// after `unix:`). `tls:` or `notls:` before a host says whether TLS protects connections to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Address {
    /// Host, by name or number, and port.
    Tcp(HostPort),
    /// Path of a Unix socket.
    Unix(PathBuf),
}

impl Address {
    /// A host, an IPv6 address without brackets, and its port.
    pub fn tcp(host: impl Into<String>, port: u16) -> Self {
        Self::Tcp(HostPort::new(host, port))
    }

    /// A place that no server has: [`HostPort::unheld`].
    pub fn unheld() -> Self {
        Self::Tcp(HostPort::unheld())
    }

    /// Whether it is that place.
    pub fn is_unheld(&self) -> bool {
        matches!(self, Self::Tcp(place) if place.is_unheld())
    }

    /// The same place, without a word on TLS.
    #[must_use]
    pub fn place(&self) -> Self {
        match self {
            Self::Tcp(place) => Self::Tcp(place.place()),
            Self::Unix(_) => self.clone(),
        }
    }

    /// Its port; none for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        match self {
            Self::Tcp(place) => Some(place.port),
            Self::Unix(_) => None,
        }
    }

    /// The socket addresses of a host's name; none for a Unix socket. May wait for a name server.
    ///
    /// # Errors
    /// When the name server does not know the host, or does not answer.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        match self {
            Self::Tcp(place) => place.resolve(),
            Self::Unix(_) => Ok(Vec::new()),
        }
    }
}

impl From<SocketAddr> for Address {
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(address.into())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        match text.strip_prefix(UNIX) {
            Some("") => Err(AddressError::Form(text.to_owned())),
            Some(path) => Ok(Self::Unix(path.into())),
            None if text.contains('/') => Ok(Self::Unix(text.into())),
            None => text.parse().map(Self::Tcp),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(place) => place.fmt(formatter),
            Self::Unix(path) => {
                let path = path.display().to_string();
                let is_clear = path.contains('/') && !path.starts_with(UNIX);
                write!(formatter, "{}{path}", if is_clear { "" } else { UNIX })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_told_apart() {
        assert_eq!("localhost:11211".parse(), Ok(Address::tcp("localhost", 11211)));
        assert_eq!("[::1]:11211".parse(), Ok(Address::tcp("::1", 11211)));
        assert_eq!("/run/memcached.sock".parse(), Ok(Address::Unix("/run/memcached.sock".into())));
        assert_eq!("unix:memcached.sock".parse(), Ok(Address::Unix("memcached.sock".into())));
        for bad in
            ["", "unix:", "localhost", ":11211", "localhost:", "localhost:port", "localhost:70000", "localhost:0"]
        {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
    }

    #[test]
    fn an_address_is_read_again_as_it_is_written() {
        for text in ["localhost:11211", "[::1]:11211", "/run/x.sock", "unix:x.sock", "run/x:1", "unix:unix:a/b"] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.to_string(), text);
        }
    }
}
