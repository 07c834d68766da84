//! Whether two addresses mean one server, as far as that can be seen without asking it: names are looked up, paths followed.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use moneta_net::{Address, HostPort};

/// Longest wait for the addresses behind a name. A name server that takes longer leaves the question open.
const LOOKUP_MAX: Duration = Duration::from_secs(10);

/// Where both `one` and `other` lead. `None`: nowhere, or a name cannot be looked up, or only the server itself could tell, as
/// when it listens at several addresses.
pub fn common_place(one: &Address, other: &Address) -> Option<String> {
    match (one, other) {
        (Address::Unix(one), Address::Unix(other)) => {
            let one = real(one)?;
            (Some(&one) == real(other).as_ref()).then(|| one.display().to_string())
        }
        (Address::Tcp(one), Address::Tcp(other)) if one.port == other.port => {
            let others = reached(other);
            reached(one).into_iter().find(|address| others.contains(address)).map(|address| address.to_string())
        }
        _ => None,
    }
}

/// A path without links; none where there is no file yet.
fn real(path: &Path) -> Option<PathBuf> {
    path.canonicalize().ok()
}

/// The addresses that connections to `place` may end at.
fn reached(place: &HostPort) -> Vec<SocketAddr> {
    place.resolve_within(LOOKUP_MAX).unwrap_or_default().into_iter().map(plain).collect()
}

/// One form for addresses that the system connects to one place: the unspecified address is the machine itself.
fn plain(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip().to_canonical() {
        ip if !ip.is_unspecified() => ip,
        ip if ip.is_ipv4() => Ipv4Addr::LOCALHOST.into(),
        _ => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(one: &str, other: &str) -> Option<String> {
        let address = |text: &str| text.parse().expect("an address");
        common_place(&address(one), &address(other))
    }

    #[test]
    fn a_server_is_known_under_several_names() {
        let here = Some("127.0.0.1:11311".to_owned());
        assert_eq!(common("127.0.0.1:11311", "127.0.0.1:11311"), here);
        assert_eq!(common("127.0.0.1:11311", "0.0.0.0:11311"), here);
        assert_eq!(common("[::ffff:127.0.0.1]:11311", "127.0.0.1:11311"), here);
        assert_eq!(common("[::]:11311", "[::1]:11311").as_deref(), Some("[::1]:11311"));
        let by_name = ["127.0.0.1:11311", "[::1]:11311"].map(|number| common("localhost:11311", number));
        assert!(by_name.iter().any(Option::is_some), "{by_name:?}");
    }

    #[test]
    fn servers_that_may_be_two_are_two() {
        assert_eq!(common("127.0.0.1:11311", "127.0.0.1:11312"), None);
        assert_eq!(common("localhost:11311", "localhost:11312"), None);
        assert_eq!(common("127.0.0.1:11311", "127.0.0.2:11311"), None);
        assert_eq!(common("127.0.0.1:11311", "/run/moneta.sock"), None);
        // No resolver is asked for such a name.
        assert_eq!(common("no\0where:11311", "127.0.0.1:11311"), None);
        assert_eq!(common("no\0where:11311", "no\0body:11311"), None);
    }

    #[test]
    fn links_to_a_socket_are_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let _listener = std::os::unix::net::UnixListener::bind(path("l1")).expect("a socket");
        std::os::unix::fs::symlink(path("l1"), path("l2")).expect("a link");
        let found = common_place(&Address::Unix(path("l1")), &Address::Unix(path("l2")));
        assert_eq!(found, path("l1").canonicalize().ok().map(|path| path.display().to_string()));
        assert_eq!(common_place(&Address::Unix(path("l3")), &Address::Unix(path("l4"))), None);
    }
}
