//! A non-blocking socket to a server.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv, send, socket_with,
    sockopt,
};

/// A non-blocking socket to a server. Closing it removes it from the event queue.
#[derive(Debug)]
pub(crate) struct Socket(OwnedFd);

/// How far connecting came.
pub(crate) enum Connecting {
    Done,
    UnderWay,
}

impl Socket {
    /// Begins to connect to a Unix socket, and is through at once, as a rule.
    pub(crate) fn unix(path: &Path) -> Result<(Self, Connecting), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        Ok((Self(socket), Connecting::Done))
    }

    /// Begins to connect over TCP.
    pub(crate) fn tcp(address: &SocketAddr) -> Result<(Self, Connecting), Errno> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let socket = socket_with(family, SocketType::STREAM, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC, None)?;
        sockopt::set_tcp_nodelay(&socket, true)?;
        sockopt::set_socket_keepalive(&socket, true)?;
        let connecting = match connect(&socket, address) {
            Ok(()) => Connecting::Done,
            Err(Errno::INPROGRESS) => Connecting::UnderWay,
            Err(error) => return Err(error),
        };
        Ok((Self(socket), connecting))
    }

    /// Whether connecting is through.
    pub(crate) fn is_connected(&self) -> Result<bool, Errno> {
        sockopt::socket_error(&self.0)??;
        match rustix::net::getpeername(&self.0) {
            Ok(_) => Ok(true),
            Err(Errno::NOTCONN) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Has `queue` tell of what comes, each time anew, and of room to send if that is waited for. Room is not watched
    /// otherwise: a Unix socket tells of it with every reply.
    pub(crate) fn watch(&self, queue: &OwnedFd, room: bool) -> Result<(), Errno> {
        epoll::add(queue, &self.0, EventData::new_u64(0), flags(room))
    }

    /// Changes whether room is waited for.
    pub(crate) fn watch_room(&self, queue: &OwnedFd, room: bool) -> Result<(), Errno> {
        epoll::modify(queue, &self.0, EventData::new_u64(0), flags(room))
    }

    /// Sends what the kernel takes of `bytes`; 0 where it has no room.
    pub(crate) fn send(&self, bytes: &[u8]) -> Result<usize, Errno> {
        loop {
            match send(&self.0, bytes, SendFlags::NOSIGNAL) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(0),
                sent => return sent,
            }
        }
    }

    /// Receives into the spare room of `buffer`; `None` where nothing is there. 0: the other side has closed.
    pub(crate) fn receive(&self, buffer: &mut Vec<u8>) -> Result<Option<usize>, Errno> {
        loop {
            match recv(&self.0, spare_capacity(buffer), RecvFlags::empty()) {
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(None),
                Ok((bytes, _)) => return Ok(Some(bytes)),
                Err(error) => return Err(error),
            }
        }
    }
}

fn flags(room: bool) -> EventFlags {
    let receive = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    if room { receive | EventFlags::OUT } else { receive }
}
