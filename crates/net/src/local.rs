//! Which of the machine's addresses others see.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use crate::host_port::HostPort;

/// How long a name may be looked up for it.
const PATIENCE: Duration = Duration::from_secs(2);

/// The address of this machine from which a server is reached. Nothing is sent.
///
/// # Errors
/// When the server's name is not known, or no route leads there.
pub fn local_towards(server: &HostPort) -> io::Result<IpAddr> {
    let found = server.resolve_within(PATIENCE)?;
    let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for address in found {
        match towards(address) {
            Ok(local) => return Ok(local),
            Err(error) => failure = error,
        }
    }
    Err(failure)
}

fn towards(address: SocketAddr) -> io::Result<IpAddr> {
    let any: IpAddr = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    Ok(socket.local_addr()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_is_reached_by_its_loopback() {
        assert_eq!(local_towards(&HostPort::new("127.0.0.1", 1)).unwrap(), IpAddr::from(Ipv4Addr::LOCALHOST));
        assert!(local_towards(&HostPort::unheld()).is_err());
    }
}
