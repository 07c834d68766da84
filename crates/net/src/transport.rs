//! What a connection reads and writes through.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::Timeout;

use crate::certificate_names::CertificateNames;
use crate::opening::Opening;
use crate::received::Received;
use crate::socket::Socket;
use crate::tls::encrypted::{Encrypted, TlsSummary};
use crate::transport_error::TransportError;

/// What a connection reads and writes through: a socket, and what protects it. Bytes are those that both ends mean, whatever the
/// wire carries; counts of bytes are counts of these.
///
/// The rules that its users keep, so that a transport may encrypt:
/// - It is open once [`Transport::open`] said so; until then its events only have `open` called again. Accepted transports are
///   open.
/// - It may hold bytes that no event of the socket tells of: [`Transport::receive`] is called again until it is drained.
/// - What [`Transport::send`] did not take is offered again first, unchanged, though perhaps at another place in memory and with
///   more after it: a record may be encrypted already and wait for room. Bytes count as taken when the kernel has all of their
///   record.
/// - An end is one that the other side declared. One that breaks off is an end or an error; each protocol knows where a reply
///   ends.
#[derive(Debug)]
pub enum Transport {
    /// Bytes go over the socket as they are.
    Plain(Socket),
    /// TLS protects them.
    Tls(Box<Encrypted>),
}

impl Transport {
    /// Goes on with connecting, after an event of the socket.
    ///
    /// # Errors
    /// When the other side cannot be reached or refuses.
    pub fn open(&mut self) -> Result<Opening, TransportError> {
        match self {
            Self::Plain(socket) => Ok(if socket.is_connected()? { Opening::Done } else { Opening::UnderWay }),
            Self::Tls(encrypted) => encrypted.open(),
        }
    }

    /// Opens a connection of a blocking socket, and waits at most `patience` for it.
    pub(crate) fn open_within(&mut self, patience: Option<Duration>) -> io::Result<()> {
        if !self.is_protected() {
            return Ok(());
        }
        let until = patience.map(|patience| Instant::now() + patience);
        self.set_blocking(false)?;
        while self.open()? == Opening::UnderWay {
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let left = left.and_then(|left| Timespec::try_from(left).ok());
            let writes = matches!(self, Self::Tls(encrypted) if encrypted.holds_ciphertext());
            let events = if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
            match poll(&mut [PollFd::new(self.socket(), events)], left.as_ref()) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        self.set_blocking(true)
    }

    /// Receives once into the spare room of `buffer`, which has some.
    ///
    /// # Errors
    /// When the connection is lost.
    #[inline]
    pub fn receive(&mut self, buffer: &mut Vec<u8>) -> Result<Received, TransportError> {
        let room = buffer.capacity() - buffer.len();
        match self {
            Self::Plain(socket) => Ok(received(socket.receive(buffer)?, room)),
            Self::Tls(encrypted) => encrypted.receive(room, |bytes| buffer.extend_from_slice(bytes)),
        }
    }

    /// Receives once into `buffer`, which is not empty.
    ///
    /// # Errors
    /// When the connection is lost.
    #[inline]
    pub fn receive_into(&mut self, buffer: &mut [u8]) -> Result<Received, TransportError> {
        match self {
            Self::Plain(socket) => Ok(received(socket.receive_into(buffer)?, buffer.len())),
            Self::Tls(encrypted) => {
                let mut end = 0;
                encrypted.receive(buffer.len(), |bytes| {
                    buffer[end..][..bytes.len()].copy_from_slice(bytes);
                    end += bytes.len();
                })
            }
        }
    }

    /// Sends what the socket has room for; returns how many bytes it took. If these are not all, an event tells of room.
    ///
    /// # Errors
    /// When the connection is lost.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Result<usize, TransportError> {
        match self {
            Self::Plain(socket) => Ok(socket.send(bytes)?),
            Self::Tls(encrypted) => encrypted.send(bytes),
        }
    }

    /// Says goodbye and ends both directions; a transport that is dropped says goodbye too. That the other side has gone before
    /// is fine.
    pub fn shut_down(&mut self) {
        match self {
            Self::Plain(socket) => drop(socket.shut_down()),
            Self::Tls(encrypted) => encrypted.shut_down(),
        }
    }

    /// Whether bytes are protected on the wire.
    pub fn is_protected(&self) -> bool {
        matches!(self, Self::Tls(_))
    }

    /// Whether [`Transport::receive`] has bytes that no event of the socket tells of.
    #[inline]
    pub fn holds_received(&self) -> bool {
        matches!(self, Self::Tls(encrypted) if encrypted.holds_plaintext())
    }

    /// Bytes of buffers that it owns.
    #[inline]
    pub fn held(&self) -> usize {
        match self {
            Self::Plain(_) => 0,
            Self::Tls(encrypted) => encrypted.held(),
        }
    }

    /// The names in the certificate that the other side has shown and that was verified.
    pub fn certificate_names(&self) -> Option<&Arc<CertificateNames>> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(encrypted) => encrypted.names(),
        }
    }

    /// How it is protected.
    pub fn tls(&self) -> Option<TlsSummary> {
        match self {
            Self::Plain(_) => None,
            Self::Tls(encrypted) => Some(encrypted.summary()),
        }
    }

    fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(encrypted) => encrypted.socket(),
        }
    }

    /// Whether calls wait.
    pub(crate) fn set_blocking(&self, blocks: bool) -> io::Result<()> {
        Ok(self.socket().set_blocking(blocks)?)
    }

    /// How long one wait of a blocking transport may be.
    pub(crate) fn set_wait(&self, of: Timeout, wait: Option<Duration>) -> io::Result<()> {
        Ok(self.socket().set_wait(of, wait)?)
    }
}

/// A short read has emptied the socket: epoll(7).
#[inline]
fn received(bytes: Option<usize>, room: usize) -> Received {
    match bytes {
        None => Received::Nothing,
        Some(0) => Received::End,
        Some(bytes) => Received::Some { bytes, drained: bytes < room },
    }
}

/// The socket, to wait for its events.
impl AsFd for Transport {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket().as_fd()
    }
}

impl AsRawFd for Transport {
    #[inline]
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}

/// One end of a pair, for tests.
impl From<std::os::unix::net::UnixStream> for Transport {
    fn from(stream: std::os::unix::net::UnixStream) -> Self {
        Self::Plain(Socket::new(stream.into()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (UnixStream, Transport) {
        let (peer, own) = UnixStream::pair().unwrap();
        own.set_nonblocking(true).unwrap();
        (peer, own.into())
    }

    #[test]
    fn a_full_buffer_says_that_there_may_be_more_and_an_empty_socket_that_there_is_not() {
        let (mut peer, mut transport) = pair();
        let mut buffer = Vec::with_capacity(4);
        assert_eq!(transport.receive(&mut buffer), Ok(Received::Nothing));
        peer.write_all(b"abcdef").unwrap();
        assert_eq!(transport.receive(&mut buffer), Ok(Received::Some { bytes: 4, drained: false }));
        assert_eq!(transport.receive_into(&mut [0; 8]), Ok(Received::Some { bytes: 2, drained: true }));
        assert_eq!(buffer, b"abcd");
        drop(peer);
        assert_eq!(transport.receive_into(&mut [0]), Ok(Received::End));
    }

    #[test]
    fn a_full_socket_takes_a_part_and_then_nothing() {
        let (mut peer, mut transport) = pair();
        let bytes: Vec<u8> = (0..1_000_000u32).map(|number| number as u8).collect();
        let sent = transport.send(&bytes).unwrap();
        assert!(sent > 0 && sent < bytes.len(), "{sent}");
        assert_eq!(transport.send(&bytes[sent..]), Ok(0));
        let mut taken = vec![0; sent];
        peer.read_exact(&mut taken).unwrap();
        assert!(taken == bytes[..sent]);
        assert!(transport.send(&bytes[sent..]).unwrap() > 0);
    }

    #[test]
    fn after_the_end_of_both_directions_nothing_is_sent() {
        let (mut peer, mut transport) = pair();
        transport.shut_down();
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
        assert_eq!(transport.send(b"a"), Err(TransportError::System(Errno::PIPE)));
    }

    #[test]
    fn a_transport_is_two_words() {
        assert_eq!(size_of::<Transport>(), 2 * size_of::<usize>());
        assert_eq!(size_of::<Result<(), TransportError>>(), 2 * size_of::<usize>());
    }
}
