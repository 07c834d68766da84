//! A host and a port.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

/// Why a text is no address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The port is not one from 1 to 65535.
    #[error("\"{text}\" has the port {port}: ports are 1 to 65535")]
    Port {
        /// The text.
        text: String,
        /// The digits after the last colon.
        port: String,
    },
    /// An IPv6 address without brackets: which of its colons begins the port is a guess.
    #[error("\"{0}\": an IPv6 address with a port is written in brackets, as [::1]:11211")]
    Brackets(String),
    /// Something else.
    #[error("\"{0}\" is neither HOST:PORT nor the path of a Unix socket")]
    Form(String),
}

/// What stands before an address that TLS does not protect, whatever the process does otherwise: as memcached has it.
const NO_TLS: &str = "notls:";
/// The host of a place that no server has. `.invalid` is a domain that will never be (RFC 6761).
const UNHELD: &str = "unheld.invalid";
/// What stands before an address that only TLS may reach.
const TLS: &str = "tls:";

/// A host, by name or number, and a port; before them `notls:` or `tls:`, where one address is unlike the others of a process.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPort {
    /// Name, IPv4 address, or IPv6 address without brackets.
    pub host: String,
    /// 0 only where the kernel may pick one, as for a listener.
    pub port: u16,
    /// Whether TLS protects connections to it; `None`: as the process does otherwise.
    pub tls: Option<bool>,
}

impl HostPort {
    /// A host, an IPv6 address without brackets, and a port.
    pub fn new(host: impl Into<String>, port: u16) -> Self {
        Self { host: host.into(), port, tls: None }
    }

    /// The same place, without a word on TLS.
    #[must_use]
    pub fn place(&self) -> Self {
        Self { tls: None, ..self.clone() }
    }

    /// A place that no server has, for a slot of a ring that no node holds: its name is not looked up.
    pub fn unheld() -> Self {
        Self::new(UNHELD, 11211)
    }

    /// Whether it is [`HostPort::unheld`].
    pub fn is_unheld(&self) -> bool {
        self.host == UNHELD
    }

    /// The address, if the host is a number.
    pub fn number(&self) -> Option<SocketAddr> {
        self.host.parse::<IpAddr>().ok().map(|host| SocketAddr::new(host, self.port))
    }

    /// The socket addresses of the host, each once, at least one. May wait for a name server, as long as the system's
    /// resolver does.
    ///
    /// # Errors
    /// When the name server does not know the host, or does not answer.
    pub fn resolve(&self) -> io::Result<Vec<SocketAddr>> {
        if self.is_unheld() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no node holds the slot"));
        }
        let mut found = Vec::new();
        for address in (self.host.as_str(), self.port).to_socket_addrs()? {
            if !found.contains(&address) {
                found.push(address);
            }
        }
        if found.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "the host name has no address"));
        }
        Ok(found)
    }
}

impl From<SocketAddr> for HostPort {
    fn from(address: SocketAddr) -> Self {
        Self::new(address.ip().to_string(), address.port())
    }
}

impl FromStr for HostPort {
    type Err = AddressError;

    /// Reads `host:port` or `[::1]:port`, perhaps after `tls:` or `notls:`.
    fn from_str(text: &str) -> Result<Self, AddressError> {
        let form = || AddressError::Form(text.to_owned());
        let (tls, place) = without_prefix(text);
        let (host, digits) = place.rsplit_once(':').ok_or_else(form)?;
        if host.is_empty() || digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(form());
        }
        let port = digits.parse().ok().filter(|port| *port != 0);
        let port = port.ok_or_else(|| AddressError::Port { text: text.to_owned(), port: digits.to_owned() })?;
        let host = match host.strip_prefix('[') {
            Some(inner) => inner.strip_suffix(']').filter(|inner| is_ipv6(inner)).ok_or_else(form)?,
            None if is_ipv6(host) => return Err(AddressError::Brackets(place.to_owned())),
            None if host.contains([':', '[', ']']) => return Err(form()),
            None => host,
        };
        Ok(Self { host: host.to_owned(), port, tls })
    }
}

/// What stands before an address of which this is said.
pub fn prefix(tls: Option<bool>) -> &'static str {
    match tls {
        None => "",
        Some(false) => NO_TLS,
        Some(true) => TLS,
    }
}

/// What stands before an address about TLS, and the rest.
pub fn without_prefix(text: &str) -> (Option<bool>, &str) {
    for (prefix, tls) in [(NO_TLS, false), (TLS, true)] {
        // A host may be called `tls`; then a port comes.
        let is_port = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
        if let Some(rest) = text.strip_prefix(prefix).filter(|rest| !is_port(rest)) {
            return (Some(tls), rest);
        }
    }
    (None, text)
}

/// Whether it is an IPv6 address, perhaps with a zone, as `fe80::1%eth0`.
fn is_ipv6(text: &str) -> bool {
    text.split_once('%').map_or(text, |(address, _)| address).parse::<Ipv6Addr>().is_ok()
}

impl fmt::Display for HostPort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, tls } = self;
        formatter.write_str(prefix(*tls))?;
        if host.contains(':') { write!(formatter, "[{host}]:{port}") } else { write!(formatter, "{host}:{port}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_port_is_written_as_it_is_read() {
        for text in
            ["localhost:11211", "127.0.0.1:1", "[::1]:11211", "[fe80::1%eth0]:80", "tls:a:1", "notls:[::1]:1", "tls:1"]
        {
            assert_eq!(text.parse::<HostPort>().map(|read| read.to_string()).as_deref(), Ok(text));
        }
        assert_eq!("[::1]:80".parse(), Ok(HostPort::new("::1", 80)));
        assert_eq!(HostPort::from(SocketAddr::from(([127, 0, 0, 1], 7))).to_string(), "127.0.0.1:7");
    }

    #[test]
    fn a_prefix_says_whether_an_address_is_reached_by_tls() {
        let tls = |text: &str| text.parse::<HostPort>().map(|read| (read.tls, read.host, read.port));
        assert_eq!(tls("notls:a:1"), Ok((Some(false), "a".to_owned(), 1)));
        assert_eq!(tls("tls:a:1"), Ok((Some(true), "a".to_owned(), 1)));
        assert_eq!(tls("tls:1"), Ok((None, "tls".to_owned(), 1)));
        assert_eq!("tls:a:1".parse::<HostPort>().map(|read| read.place()), Ok(HostPort::new("a", 1)));
    }

    #[test]
    fn what_cannot_be_dialled_is_refused() {
        for text in ["", "localhost", ":1", "a:", "a:port", "a:+1", "a:70000", "a:0", "[a]:1", "[::1:1", "b:a:1"] {
            assert!(text.parse::<HostPort>().is_err(), "{text}");
        }
    }

    #[test]
    fn an_ipv6_address_without_brackets_is_refused_since_its_port_is_a_guess() {
        assert_eq!("::1:11211".parse::<HostPort>(), Err(AddressError::Brackets("::1:11211".into())));
    }

    #[test]
    fn numbers_are_known_without_a_resolver() {
        assert_eq!(HostPort::new("::1", 1).number(), Some(SocketAddr::from(([0, 0, 0, 0, 0, 0, 0, 1], 1))));
        assert_eq!(HostPort::new("localhost", 1).number(), None);
        assert_eq!(HostPort::new("127.0.0.1", 1).resolve().ok(), Some(vec![SocketAddr::from(([127, 0, 0, 1], 1))]));
    }
}
