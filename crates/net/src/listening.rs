//! The side that listens.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with};

use crate::socket::Socket;
use crate::transport::Transport;

/// Takes the next connection of a non-blocking `listener`, not blocking either, and with the peer's address if it is TCP. `None`:
/// none waits. A stage between this and whoever reads the connection may come; bytes sent before it are not protected.
///
/// # Errors
/// Those of accept(2): of the one connection, or of the process, which may be out of descriptors or memory.
pub fn accept(listener: impl AsFd) -> Result<Option<(Transport, Option<SocketAddr>)>, Errno> {
    match acceptfrom_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
        Ok((socket, address)) => {
            let address = address.and_then(|address| SocketAddr::try_from(address).ok());
            Ok(Some((Transport::Plain(Socket::new(socket)), address)))
        }
        Err(Errno::AGAIN) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a process listens on the Unix socket `path`.
///
/// # Errors
/// When the file is there and cannot be connected to for another reason than that nothing listens.
pub fn is_listening(path: &Path) -> io::Result<bool> {
    match UnixStream::connect(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_listener_gives_its_connections_one_by_one_and_then_none() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (_, address) = accept(&listener).unwrap().expect("one waits");
        assert_eq!(address, client.local_addr().ok());
        assert!(accept(&listener).unwrap().is_none());
    }

    #[test]
    fn a_socket_file_that_nothing_listens_on_is_told_from_one_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        assert!(is_listening(&path).unwrap());
        drop(listener);
        assert!(!is_listening(&path).unwrap());
        assert_eq!(is_listening(&folder.path().join("other")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
