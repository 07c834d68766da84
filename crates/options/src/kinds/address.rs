//! Addresses as an operator writes them, before any name is looked up.

use std::fmt;
use std::net::Ipv6Addr;

use moneta_net::{HostPort, tls_prefix, without_tls_prefix};

use crate::kinds::{Form, Kind};

/// Addresses to listen on, separated by commas.
pub struct Addresses;

/// The address of the admin listener, or `off`.
pub struct AdminAddress;

/// Host names, separated by commas.
pub struct HostNames;

impl Kind for HostNames {
    type Value = Vec<String>;

    fn read(&self, text: &str) -> Option<Vec<String>> {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        names.map(|name| is_host(name).then(|| name.to_owned())).collect()
    }

    fn write(&self, names: &Vec<String>) -> String {
        names.join(",")
    }

    fn range(&self) -> String {
        "host names separated by commas, without ports".into()
    }

    fn placeholder(&self) -> String {
        "NAMES".into()
    }

    fn form(&self) -> Form {
        Form::List
    }
}

impl Kind for Addresses {
    type Value = Vec<ListenAddress>;

    fn read(&self, text: &str) -> Option<Vec<ListenAddress>> {
        text.split(',').map(str::trim).filter(|part| !part.is_empty()).map(ListenAddress::read).collect()
    }

    fn write(&self, addresses: &Vec<ListenAddress>) -> String {
        let addresses: Vec<String> = addresses.iter().map(ListenAddress::to_string).collect();
        addresses.join(",")
    }

    fn range(&self) -> String {
        "addresses separated by commas, each an IP address or host name, with `:port` if it is not --port's (IPv6 with a port: \
         [::1]:11211); `notls:` or `tls:` before it where it is not as others"
            .into()
    }

    fn placeholder(&self) -> String {
        "ADDRESSES".into()
    }

    fn form(&self) -> Form {
        Form::List
    }
}

impl Kind for AdminAddress {
    type Value = Option<HostPort>;

    fn read(&self, text: &str) -> Option<Option<HostPort>> {
        if text == "off" { Some(None) } else { host_port(text).filter(|address| address.tls.is_none()).map(Some) }
    }

    fn write(&self, address: &Option<HostPort>) -> String {
        address.as_ref().map_or_else(|| "off".into(), HostPort::to_string)
    }

    fn range(&self) -> String {
        "an address with its port, as 127.0.0.1:11280 or [::1]:11280, or `off`".into()
    }

    fn placeholder(&self) -> String {
        "ADDRESS".into()
    }
}

/// An address to listen on: a host, with a port if it is not the common one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenAddress {
    /// IP address or host name, without brackets.
    pub host: String,
    /// Its own port; `None` takes `--port`.
    pub port: Option<u16>,
    /// Whether TLS protects its connections; `None`: as others of the process.
    pub tls: Option<bool>,
}

impl ListenAddress {
    /// Reads `host`, `host:port`, `::1`, `[::1]` or `[::1]:port`, perhaps after `tls:` or `notls:`.
    pub fn read(text: &str) -> Option<Self> {
        let (tls, text) = without_tls_prefix(text);
        if text.parse::<Ipv6Addr>().is_ok() {
            return Some(Self { host: text.into(), port: None, tls });
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (host, port) = rest.split_once(']')?;
            host.parse::<Ipv6Addr>().ok()?;
            let port = match port.strip_prefix(':') {
                Some(port) => Some(port_number(port)?),
                None if port.is_empty() => None,
                None => return None,
            };
            return Some(Self { host: host.into(), port, tls });
        }
        let (host, port) = match text.split_once(':') {
            Some((host, port)) => (host, Some(port_number(port)?)),
            None => (text, None),
        };
        is_host(host).then(|| Self { host: host.into(), port, tls })
    }
}

/// Reads `host:port` or `[::1]:port` as an address to listen on: port 0 lets the kernel pick one.
pub fn host_port(text: &str) -> Option<HostPort> {
    let ListenAddress { host, port, tls } = ListenAddress::read(text)?;
    Some(HostPort { tls, ..HostPort::new(host, port?) })
}

/// Digits only: `parse` alone would take a sign.
fn port_number(text: &str) -> Option<u16> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok())?
}

/// A name that could be looked up; what exactly is a host name is the resolver's business.
fn is_host(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-_".contains(&byte))
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, tls } = self;
        if let Some(port) = port {
            return HostPort { tls: *tls, ..HostPort::new(host, *port) }.fmt(f);
        }
        f.write_str(tls_prefix(*tls))?;
        if host.contains(':') { write!(f, "[{host}]") } else { f.write_str(host) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Option<(String, Option<u16>)> {
        ListenAddress::read(text).map(|address| (address.host, address.port))
    }

    #[test]
    fn hosts_stand_alone_or_with_a_port() {
        assert_eq!(read("127.0.0.1"), Some(("127.0.0.1".into(), None)));
        assert_eq!(read("cache-1.example:11300"), Some(("cache-1.example".into(), Some(11_300))));
        assert_eq!(read("::1"), Some(("::1".into(), None)));
        assert_eq!(read("[::1]"), Some(("::1".into(), None)));
        assert_eq!(read("[::1]:0"), Some(("::1".into(), Some(0))));
    }

    #[test]
    fn a_prefix_says_whether_tls_protects_an_address_and_is_written_as_it_is_read() {
        for (text, tls) in [("notls:a", false), ("notls:a:1", false), ("tls:[::1]", true), ("tls:[::1]:1", true)] {
            let address = ListenAddress::read(text).expect("an address");
            assert_eq!((address.tls, address.to_string().as_str()), (Some(tls), text));
        }
        assert_eq!(read("tls:11211"), Some(("tls".into(), Some(11_211))));
    }

    #[test]
    fn what_no_resolver_could_take_is_refused() {
        for text in
            ["", ":11211", "a b", "host:", "host:70000", "host:+1", "[::1", "[::1]x", "[host]:1", "/run/x", "notls:"]
        {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn a_host_port_needs_its_port() {
        assert_eq!(host_port("127.0.0.1"), None);
        assert_eq!(host_port("[::1]:80").map(|address| address.to_string()), Some("[::1]:80".into()));
    }
}
