//! Free ports for processes that are started again on the same ones.
//!
//! A port that the system picks for a listener (port 0) is one that it also gives to outgoing connections: while the process is
//! away, any program may get it. So ports are taken from below that range. Each is claimed by an abstract Unix socket, which
//! processes of one network namespace share as they share ports; two that choose at the same time choose different ones.

use std::fs;
use std::io;
use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

/// What the system takes for outgoing connections.
const SYSTEM_RANGE: &str = "/proc/sys/net/ipv4/ip_local_port_range";
/// Below are ports of services that are well known.
const FIRST: u16 = 10_240;
/// Where the system's range begins unless it was set.
const USUAL_END: u16 = 32_768;
/// Fewer than these are not worth choosing from: then those above the system's range are taken.
const FEW: usize = 1_000;

/// Ports that no other caller gets while this lives.
#[derive(Debug)]
pub struct Claimed {
    /// In the order of their claim.
    pub ports: Vec<u16>,
    _claims: Vec<UnixListener>,
}

/// Claims `count` ports of 127.0.0.1 that nothing listens on.
///
/// # Errors
/// If there are too few.
pub fn claim(count: usize) -> io::Result<Claimed> {
    let system = fs::read_to_string(SYSTEM_RANGE).unwrap_or_default();
    let range = outside(&system);
    let mut claimed = Claimed { ports: Vec::with_capacity(count), _claims: Vec::with_capacity(count) };
    // Where one begins to look differs, so that ports of processes that are away are seldom met.
    let from = getrandom::u32().map_err(io::Error::other)? as usize;
    for step in 0..range.len() {
        if claimed.ports.len() == count {
            break;
        }
        let port = range.start + ((from + step) % range.len()) as u16;
        if let Ok(name) = SocketAddr::from_abstract_name(format!("moneta-port-{port}"))
            && let Ok(claim) = UnixListener::bind_addr(&name)
            && TcpListener::bind(("127.0.0.1", port)).is_ok()
        {
            claimed.ports.push(port);
            claimed._claims.push(claim);
        }
    }
    if claimed.ports.len() < count {
        let why = format!("there are no {count} free ports in {range:?}");
        return Err(io::Error::new(io::ErrorKind::AddrNotAvailable, why));
    }
    Ok(claimed)
}

/// Ports outside of the system's range, which it writes as the first and the last one.
pub fn outside(system: &str) -> Range<u16> {
    let mut words = system.split_whitespace().map(str::parse::<u16>);
    let (Some(Ok(first)), Some(Ok(last))) = (words.next(), words.next()) else { return FIRST..USUAL_END };
    let below = FIRST..first.max(FIRST);
    if below.len() < FEW { last.saturating_add(1)..u16::MAX } else { below }
}
