//! The unsent part of a connection's output.

use moneta_net::{Transport, TransportError};

/// Sent bytes at the front of the buffer are removed once they are this many and at least half of it.
const COMPACT: usize = 64 * 1024;

/// Unsent output of one connection; owns no memory while there is none.
#[derive(Debug)]
pub(crate) struct Backlog {
    bytes: Vec<u8>,
    sent: usize,
    /// The transport has not refused bytes since the last event that said the socket is writable.
    pub(crate) writable: bool,
}

impl Default for Backlog {
    fn default() -> Self {
        Self { bytes: Vec::new(), sent: 0, writable: true }
    }
}

impl Backlog {
    /// Unsent bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Bytes of memory it owns.
    pub(crate) fn held(&self) -> usize {
        self.bytes.capacity()
    }

    /// Whether everything is sent.
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sends as much as the socket takes; returns the number of bytes.
    #[inline]
    pub(crate) fn flush(&mut self, transport: &mut Transport) -> Result<usize, TransportError> {
        if self.is_empty() || !self.writable { Ok(0) } else { self.flush_unsent(transport) }
    }

    #[inline(never)]
    fn flush_unsent(&mut self, transport: &mut Transport) -> Result<usize, TransportError> {
        let sent = self.offer(transport, None)?;
        self.sent += sent;
        if self.is_empty() {
            self.bytes = Vec::new();
            self.sent = 0;
        } else if self.sent >= COMPACT && self.sent * 2 >= self.bytes.len() {
            self.bytes.drain(..self.sent);
            self.bytes.shrink_to_fit();
            self.sent = 0;
        }
        Ok(sent)
    }

    /// Sends unsent bytes, then `output`, keeps what the socket does not take, and leaves `output` empty; returns the number of
    /// bytes sent.
    pub(crate) fn send(&mut self, transport: &mut Transport, output: &mut Vec<u8>) -> Result<usize, TransportError> {
        if !self.is_empty() {
            self.bytes.append(output);
            return self.flush(transport);
        }
        let sent = if self.writable { self.offer(transport, Some(output))? } else { 0 };
        if sent == output.len() {
            output.clear();
        } else if output.len() - sent >= output.capacity() / 2 {
            // Mostly unsent: keep the buffer itself, and leave the worker a new one.
            self.bytes = std::mem::take(output);
            self.sent = sent;
        } else {
            self.bytes = output[sent..].to_vec();
            self.sent = 0;
            output.clear();
        }
        Ok(sent)
    }

    /// Offers `bytes`, or the unsent bytes. Notes when the transport takes no more.
    fn offer(&mut self, transport: &mut Transport, bytes: Option<&[u8]>) -> Result<usize, TransportError> {
        let bytes = bytes.unwrap_or(&self.bytes[self.sent..]);
        let sent = transport.send(bytes)?;
        self.writable = sent == bytes.len();
        Ok(sent)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn what_a_socket_does_not_take_comes_later_in_order_and_leaves_no_memory_behind() {
        let (mut client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut server = Transport::from(server);
        let mut backlog = Backlog::default();
        let first: Vec<u8> = (0..1_000_000u32).map(|index| (index % 253) as u8).collect();
        let second = vec![b'z'; 10_000];
        let mut output = first.clone();
        let mut sent = backlog.send(&mut server, &mut output).unwrap();
        assert!(output.is_empty() && sent < first.len() && !backlog.writable);
        output.extend_from_slice(&second);
        sent += backlog.send(&mut server, &mut output).unwrap();
        assert_eq!(backlog.len(), first.len() + second.len() - sent);

        let mut received = Vec::new();
        let mut buffer = vec![0; 100_000];
        while received.len() < first.len() + second.len() {
            let bytes = client.read(&mut buffer).unwrap();
            received.extend_from_slice(&buffer[..bytes]);
            // As an event would set it.
            backlog.writable = true;
            backlog.flush(&mut server).unwrap();
        }
        assert!(received == [first, second].concat());
        assert!(backlog.is_empty() && backlog.bytes.capacity() == 0);
    }

    #[test]
    fn a_full_socket_is_not_asked_again_before_an_event() {
        let (client, server) = UnixStream::pair().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut server = Transport::from(server);
        let mut backlog = Backlog::default();
        backlog.send(&mut server, &mut vec![0; 1_000_000]).unwrap();
        let unsent = backlog.len();
        drop(client);
        // The socket is known to be full, so no call is made.
        assert_eq!(backlog.flush(&mut server), Ok(0));
        assert_eq!(backlog.len(), unsent);
        backlog.writable = true;
        assert!(backlog.flush(&mut server).is_err());
    }
}
