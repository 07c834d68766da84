//! How a peer that has vanished is found out.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt;

/// Times that a silent peer is asked whether it is still there.
const PROBES: u32 = 3;

/// Has the kernel ask a silent peer of a TCP socket whether it is still there, after `silence` or else the system's two hours.
/// Sockets accepted on a listener inherit it. With a `silence`, a peer that has vanished is gone after half as long again, be it
/// that nothing is under way, that what was sent is not acknowledged, or that it is not taken.
///
/// # Errors
/// Those of setsockopt(2).
pub fn keep_alive(socket: impl AsFd, silence: Option<Duration>) -> Result<(), Errno> {
    let socket = socket.as_fd();
    sockopt::set_socket_keepalive(socket, true)?;
    let Some(silence) = silence else { return Ok(()) };
    let probe = (silence / 6).max(Duration::from_secs(1));
    let gone = silence + PROBES * probe;
    sockopt::set_tcp_keepidle(socket, silence)?;
    sockopt::set_tcp_keepintvl(socket, probe)?;
    sockopt::set_tcp_keepcnt(socket, PROBES)?;
    sockopt::set_tcp_user_timeout(socket, u32::try_from(gone.as_millis()).unwrap_or(u32::MAX))
}
