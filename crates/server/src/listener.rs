//! Binding the sockets that clients connect to, and cleaning up after them.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moneta_net::{TlsAcceptor, is_listening, keep_alive};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, getsockname, listen, socket_with, sockopt,
};

use crate::config::{Door, ListenAddress, Listener, ListenerLimits, Policy, ServerConfig};
use crate::error::ServerError;

/// A listening socket. Dropping it closes it and removes a Unix socket's file.
#[derive(Debug)]
pub(crate) struct Bound {
    socket: OwnedFd,
    /// The address, with the port that the kernel picked if it was 0.
    pub(crate) address: ListenAddress,
    /// How its requests treat the tiers.
    pub(crate) policy: Policy,
    /// Where its requests come in.
    pub(crate) door: Door,
    /// Its name in the file of users.
    pub(crate) name: Arc<str>,
    /// Whether its clients have to be users, where there are any.
    pub(crate) users: bool,
    /// Its limits, where they differ from the server's.
    pub(crate) limits: ListenerLimits,
    /// What protects its connections.
    pub(crate) tls: Option<TlsAcceptor>,
    _file: Option<SocketFile>,
}

impl Bound {
    /// Listens as `listener` and `config` say.
    pub(crate) fn new(listener: &Listener, config: &ServerConfig) -> Result<Self, ServerError> {
        let backlog = i32::try_from(config.backlog).unwrap_or(i32::MAX);
        let failed = |source: io::Error| ServerError::Listen { address: listener.address.clone(), source };
        let (socket, address, file) = match &listener.address {
            ListenAddress::Tcp(address) => {
                let (socket, address) = bind_tcp(*address, backlog, config.tcp_keepalive).map_err(failed)?;
                (socket, ListenAddress::Tcp(address), None)
            }
            ListenAddress::Unix { path, mode } => {
                remove_stale(path).map_err(failed)?.then_some(()).ok_or_else(|| in_use(path))?;
                let (socket, file) = bind_unix(path, *mode, backlog).map_err(failed)?;
                (socket, listener.address.clone(), Some(file))
            }
        };
        let Listener { policy, door, limits, users, .. } = *listener;
        let (name, tls) = (Arc::from(listener.name.as_str()), listener.tls.clone());
        Ok(Self { socket, address, policy, door, name, users, limits, tls, _file: file })
    }
}

impl AsFd for Bound {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn in_use(path: &Path) -> ServerError {
    ServerError::SocketInUse(path.display().to_string())
}

/// Sets options that accepted sockets inherit here, once, rather than on every connection.
fn bind_tcp(address: SocketAddr, backlog: i32, keepalive: Option<Duration>) -> io::Result<(OwnedFd, SocketAddr)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // As memcached does: `::` and `0.0.0.0` can then be used side by side.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    keep_alive(&socket, keepalive)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    bind(&socket, &address)?;
    listen(&socket, backlog)?;
    let bound = SocketAddr::try_from(getsockname(&socket)?)?;
    Ok((socket, bound))
}

/// Sets the mode between `bind` and `listen`: no client can connect before `listen`, so the wrong users never can, and the
/// process-wide umask stays unchanged.
fn bind_unix(path: &Path, mode: u32, backlog: i32) -> io::Result<(OwnedFd, SocketFile)> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    let metadata = fs::symlink_metadata(path)?;
    let file = SocketFile { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() };
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    listen(&socket, backlog)?;
    Ok((socket, file))
}

/// Removes a stale socket file; false if a process is listening on it. A file that is not a socket stays, and makes `bind` fail.
fn remove_stale(path: &Path) -> io::Result<bool> {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.file_type().is_socket() => {}
        Ok(_) => return Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
        Err(error) => return Err(error),
    }
    if is_listening(path)? {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}

/// A Unix socket's file, removed when the listener is dropped, unless another file is in its place by then.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_ours =
            fs::symlink_metadata(&self.path).is_ok_and(|found| (found.dev(), found.ino()) == (self.device, self.inode));
        if is_ours && let Err(error) = fs::remove_file(&self.path) {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket's file");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use rustix::net::accept;

    use super::*;

    #[test]
    fn accepted_connections_end_when_their_client_has_vanished() {
        let listener = Listener::tcp(SocketAddr::from(([127, 0, 0, 1], 0)));
        let config = ServerConfig { tcp_keepalive: Some(Duration::from_secs(60)), ..ServerConfig::default() };
        let bound = Bound::new(&listener, &config).unwrap();
        let ListenAddress::Tcp(address) = bound.address else { panic!("it is TCP") };
        let _client = TcpStream::connect(address).unwrap();
        let accepted = accept(&bound).unwrap();
        assert!(sockopt::socket_keepalive(&accepted).unwrap() && sockopt::tcp_nodelay(&accepted).unwrap());
        assert_eq!(sockopt::tcp_keepidle(&accepted).unwrap(), Duration::from_secs(60));
        assert_eq!(sockopt::tcp_keepintvl(&accepted).unwrap(), Duration::from_secs(10));
        assert_eq!(sockopt::tcp_keepcnt(&accepted).unwrap(), 3);
        assert_eq!(sockopt::tcp_user_timeout(&accepted).unwrap(), 90_000);
    }
}
