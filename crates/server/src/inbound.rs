//! Bytes that a connection has received and not yet executed.
//!
//! A read goes to the worker's shared buffer. An incomplete request waits in a private buffer, which grows as bytes arrive: the
//! length that a client announces is trusted up to [`TRUST`] only, and beyond that the buffer at most doubles.

use moneta_net::{Received, Transport, TransportError};

use crate::client_memory::SMALL_REQUEST;

/// An incomplete request up to this length is copied back to the shared buffer before the next read, which then has all of that
/// buffer; a longer one stays, and the read appends to it.
const SMALL: usize = 2048;
/// Bytes reserved for an announced length before any of them has arrived. The kernel allocates only touched pages.
const TRUST: usize = 1024 * 1024;
/// Room beyond the awaited request, so that a read which empties the socket comes back short.
const SLACK: usize = 4096;

/// Received bytes of one connection; owns no memory while there are none.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    private: Vec<u8>,
    /// Executed bytes at the front of the private buffer. They stay until the next read, so that a long run of requests executed a
    /// few at a time is not moved each time.
    executed: usize,
    /// Bytes the session needs to continue; 0 when it waits for something else.
    needed: usize,
    /// The bytes are in the worker's buffer; true only within a turn.
    shared: bool,
}

impl Inbound {
    /// Whether nothing is left over from earlier turns.
    pub(crate) fn is_empty(&self) -> bool {
        self.left() == 0
    }

    /// Whether it owns memory.
    #[inline]
    pub(crate) fn owns_memory(&self) -> bool {
        self.private.capacity() > 0
    }

    /// Bytes of memory it owns; for a large request, those it will own when complete.
    pub(crate) fn held(&self) -> usize {
        let announced = if self.private.is_empty() || self.needed <= SMALL_REQUEST { 0 } else { self.needed };
        self.private.capacity().max(announced)
    }

    /// Private bytes not executed.
    fn left(&self) -> usize {
        self.private.len() - self.executed
    }

    /// Whether what is left over can be executed without another read.
    pub(crate) fn is_executable(&self) -> bool {
        !self.is_empty() && self.left() >= self.needed
    }

    /// Reads once, into `buffer` or after the bytes of the private buffer.
    #[inline]
    pub(crate) fn read(&mut self, transport: &mut Transport, buffer: &mut Vec<u8>) -> Result<Received, TransportError> {
        self.shared = self.left() <= SMALL && self.needed <= buffer.capacity();
        let target = if self.shared {
            buffer.clear();
            buffer.extend_from_slice(&self.private[self.executed..]);
            buffer
        } else {
            self.private.drain(..std::mem::take(&mut self.executed));
            let lacking = self.needed.saturating_sub(self.private.len());
            self.private.reserve_exact(lacking.min(self.private.len().max(TRUST)) + SLACK);
            &mut self.private
        };
        let received = transport.receive(target)?;
        if !matches!(received, Received::Some { bytes: 1.., .. }) {
            // Nothing came into the shared buffer: the private bytes stay valid.
            self.shared = false;
        }
        Ok(received)
    }

    /// Whether the session's needed bytes are complete; if not, keeps them for the next read.
    pub(crate) fn is_enough(&mut self, buffer: &[u8]) -> bool {
        let enough = self.bytes(buffer).len() >= self.needed;
        if !enough {
            self.consume(buffer, 0, self.needed);
        }
        enough
    }

    /// All bytes received and not consumed.
    pub(crate) fn bytes<'a>(&'a self, buffer: &'a [u8]) -> &'a [u8] {
        if self.shared { buffer } else { &self.private[self.executed..] }
    }

    /// Drops `consumed` bytes from the front and keeps the rest; `needed` of them must be there for the next step.
    #[inline]
    pub(crate) fn consume(&mut self, buffer: &[u8], consumed: usize, needed: usize) {
        // Most often whole requests came, and nothing was left over from earlier ones.
        if self.shared && consumed == buffer.len() && !self.owns_memory() {
            (self.needed, self.shared) = (0, false);
            return;
        }
        self.keep(buffer, consumed, needed);
    }

    #[inline(never)]
    fn keep(&mut self, buffer: &[u8], consumed: usize, needed: usize) {
        if self.shared {
            self.private = buffer[consumed..].to_vec();
            self.executed = 0;
            self.shared = false;
        } else {
            self.executed += consumed;
        }
        self.needed = needed;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    /// A connection's two ends, the inbound side of one of them, and a worker's buffer.
    fn pair() -> (UnixStream, Transport, Inbound, Vec<u8>) {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        (client, server.into(), Inbound::default(), Vec::with_capacity(1024))
    }

    #[test]
    fn consumed_bytes_leave_no_memory_behind() {
        let (mut client, mut server, mut inbound, mut buffer) = pair();
        client.write_all(b"get a\r\nget").unwrap();
        assert_eq!(inbound.read(&mut server, &mut buffer), Ok(Received::Some { bytes: 10, drained: true }));
        inbound.consume(&buffer, 7, 4);
        assert_eq!((inbound.private.as_slice(), inbound.is_executable()), (&b"get"[..], false));
        client.write_all(b" a\r\n").unwrap();
        inbound.read(&mut server, &mut buffer).unwrap();
        assert!(inbound.is_enough(&buffer));
        assert_eq!(inbound.bytes(&buffer), b"get a\r\n");
        inbound.consume(&buffer, 7, 0);
        assert!(inbound.is_empty() && inbound.private.capacity() == 0);
    }

    #[test]
    fn a_promise_of_much_sets_little_aside() {
        let (mut client, mut server, mut inbound, mut buffer) = pair();
        client.write_all(b"set a 0 0 1000000000\r\n").unwrap();
        inbound.read(&mut server, &mut buffer).unwrap();
        inbound.consume(&buffer, 0, 1_000_000_024);
        client.write_all(&[0; 5000]).unwrap();
        inbound.read(&mut server, &mut buffer).unwrap();
        assert!(!inbound.is_enough(&buffer));
        assert!(inbound.private.capacity() <= 2 * TRUST, "{}", inbound.private.capacity());
        assert_eq!(inbound.private.len(), 5022);
    }

    #[test]
    fn a_full_buffer_says_that_there_may_be_more_and_an_empty_socket_that_there_is_not() {
        let (mut client, mut server, mut inbound, mut buffer) = pair();
        client.write_all(&[b'x'; 1500]).unwrap();
        assert_eq!(inbound.read(&mut server, &mut buffer), Ok(Received::Some { bytes: 1024, drained: false }));
        inbound.consume(&buffer, 1024, 0);
        assert_eq!(inbound.read(&mut server, &mut buffer), Ok(Received::Some { bytes: 476, drained: true }));
        inbound.consume(&buffer, 0, 477);
        assert_eq!(inbound.read(&mut server, &mut buffer), Ok(Received::Nothing));
        assert_eq!(inbound.private.len(), 476, "a read of nothing loses nothing");
        drop(client);
        assert_eq!(inbound.read(&mut server, &mut buffer), Ok(Received::End));
    }

    #[test]
    fn what_waits_for_something_else_than_bytes_can_be_executed_again() {
        let (mut client, mut server, mut inbound, mut buffer) = pair();
        client.write_all(b"get a\r\nget b\r\n").unwrap();
        inbound.read(&mut server, &mut buffer).unwrap();
        inbound.consume(&buffer, 7, 0);
        assert!(inbound.is_executable());
        assert_eq!(inbound.bytes(&[]), b"get b\r\n");
    }
}
