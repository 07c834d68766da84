//! A connected stream socket, and the calls of the system on it. TCP sockets send small packets at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send,
    shutdown, socket_with,
};

use crate::keep_alive::keep_alive;
use crate::opening::Opening;

/// The shortest wait that the kernel is asked for; zero would be for ever.
const WAIT_MIN: Duration = Duration::from_millis(1);

/// A connected stream socket.
#[derive(Debug)]
pub struct Socket(OwnedFd);

impl Socket {
    /// A socket that is connected, or that connects.
    pub(crate) fn new(socket: OwnedFd) -> Self {
        Self(socket)
    }

    /// Connects to a Unix socket at once, without blocking.
    pub(crate) fn unix(path: &Path) -> Result<Self, Errno> {
        let socket = Self(stream(AddressFamily::UNIX, SocketFlags::NONBLOCK)?);
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok(socket)
    }

    /// Begins to connect over TCP without blocking.
    pub(crate) fn begin_tcp(address: &SocketAddr, silence: Option<Duration>) -> Result<(Self, Opening), Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = Self(stream(family, SocketFlags::NONBLOCK)?);
        sockopt::set_tcp_nodelay(&socket, true)?;
        keep_alive(&socket, silence)?;
        match connect(&socket, address) {
            Ok(()) => Ok((socket, Opening::Done)),
            Err(Errno::INPROGRESS) => Ok((socket, Opening::UnderWay)),
            Err(error) => Err(error),
        }
    }

    /// Whether TCP has shaken hands.
    pub(crate) fn is_connected(&self) -> Result<bool, Errno> {
        sockopt::socket_error(self)??;
        match rustix::net::getpeername(self) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A blocking socket connected to a Unix socket; waits at most `patience` for room in its backlog.
    pub(crate) fn connect_unix(path: &Path, patience: Option<Duration>) -> io::Result<Self> {
        let (socket, address) = (Self(stream(AddressFamily::UNIX, SocketFlags::empty())?), SocketAddrUnix::new(path)?);
        let until = patience.map(|patience| Instant::now() + patience);
        loop {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            socket.set_wait(Timeout::Send, left)?;
            match connect(&socket, &address) {
                Ok(()) => return Ok(socket),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Err(io::ErrorKind::TimedOut.into()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A blocking socket connected over TCP; waits at most `patience` for that.
    pub(crate) fn connect_tcp(
        address: &SocketAddr,
        silence: Option<Duration>,
        patience: Option<Duration>,
    ) -> io::Result<Self> {
        let until = patience.map(|patience| Instant::now() + patience);
        let (socket, _) = Self::begin_tcp(address, silence)?;
        while !socket.is_connected()? {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            match poll(&mut [PollFd::new(&socket, PollFlags::OUT)], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        socket.set_blocking(true)?;
        Ok(socket)
    }

    /// Whether calls wait.
    pub(crate) fn set_blocking(&self, blocks: bool) -> Result<(), Errno> {
        rustix::io::ioctl_fionbio(self, !blocks)
    }

    /// How long one call of a blocking socket may wait; `None` is for ever.
    pub(crate) fn set_wait(&self, of: Timeout, wait: Option<Duration>) -> Result<(), Errno> {
        sockopt::set_socket_timeout(self, of, wait.map(|wait| wait.max(WAIT_MIN)))
    }

    /// Receives into the spare room of `buffer`, which has some; `None` where nothing is there, 0 bytes at the end.
    #[inline]
    pub(crate) fn receive(&self, buffer: &mut Vec<u8>) -> Result<Option<usize>, Errno> {
        retried(|| recv(self, spare_capacity(buffer), RecvFlags::empty()).map(|(bytes, _)| bytes))
    }

    /// The same into all of `buffer`.
    #[inline]
    pub(crate) fn receive_into(&self, buffer: &mut [u8]) -> Result<Option<usize>, Errno> {
        retried(|| recv(self, &mut *buffer, RecvFlags::empty()).map(|(bytes, _)| bytes))
    }

    /// Sends what the kernel takes; 0 where it has no room.
    #[inline]
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        Ok(retried(|| send(self, bytes, SendFlags::NOSIGNAL))?.unwrap_or(0))
    }

    /// Ends both directions.
    pub(crate) fn shut_down(&self) -> Result<(), Errno> {
        shutdown(self, Shutdown::Both)
    }
}

impl AsFd for Socket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

fn stream(family: AddressFamily, flags: SocketFlags) -> Result<OwnedFd, Errno> {
    socket_with(family, SocketType::STREAM, flags | SocketFlags::CLOEXEC, None)
}

/// Makes a call until no signal interrupts it; `None` where it would have to wait.
#[inline]
fn retried(mut call: impl FnMut() -> Result<usize, Errno>) -> Result<Option<usize>, Errno> {
    loop {
        match call() {
            Ok(bytes) => return Ok(Some(bytes)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error),
        }
    }
}
