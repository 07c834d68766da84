//! What a client's event queue tells of a connection.

use std::os::fd::{AsFd, OwnedFd};

use moneta_net::TransportError;
use rustix::event::epoll::{self, EventData, EventFlags};

/// Has `queue` tell of what comes, each time anew, and of room to send if that is waited for. Room is not watched otherwise: a
/// Unix socket tells of it with every reply. Closing the connection removes it from the queue.
pub(super) fn watch(connection: impl AsFd, queue: &OwnedFd, room: bool) -> Result<(), TransportError> {
    Ok(epoll::add(queue, connection, EventData::new_u64(0), flags(room))?)
}

/// Changes whether room is waited for.
pub(super) fn watch_room(connection: impl AsFd, queue: &OwnedFd, room: bool) -> Result<(), TransportError> {
    Ok(epoll::modify(queue, connection, EventData::new_u64(0), flags(room))?)
}

fn flags(room: bool) -> EventFlags {
    let receive = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
    if room { receive | EventFlags::OUT } else { receive }
}
