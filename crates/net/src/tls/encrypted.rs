//! A connection that TLS protects.
//!
//! ```text
//!  receive   socket ──recv──> scratch of the thread ──deciphered in place──> the caller's buffer
//!                                 │ the begin of a record                        │ what it has no room for
//!                                 v                                              v
//!                              `partial`                                      `plain`
//!
//!  send      caller's bytes ──records of up to 64 KiB──> scratch of the thread ──send──> socket
//!                                                            │ what the kernel does not take
//!                                                            v
//!                                                        `outgoing`
//! ```
//! So a batch of replies is one call of the kernel, as without TLS, and a connection that waits holds none of the three.

use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;

use rustls::pki_types::UnixTime;
use rustls::{HandshakeKind, ProtocolVersion};

use super::admission::Admission;
use super::names::names;
use super::records::{Message, OVERHEAD, Processed, RECORD, Side};
use crate::certificate_names::CertificateNames;
use crate::opening::Opening;
use crate::received::Received;
use crate::socket::Socket;
use crate::transport_error::TransportError;

/// Plaintext that is enciphered for one call of the kernel.
const SENT_AT_ONCE: usize = 4 * RECORD;
/// Bytes of a thread's scratch: what is sent at once, and small messages before it.
const SCRATCH: usize = SENT_AT_ONCE + 8 * (RECORD / 4);
/// Most ciphertext that waits for the rest of its record or message: two records.
const PARTIAL_MAX: usize = 2 * (RECORD + OVERHEAD);
/// Most bytes that the other side may send before the handshake is done: chains of certificates are a few KiB.
const HANDSHAKE_MAX: usize = 96 * 1024;
/// Bytes that are received at once in a handshake.
const HANDSHAKE_READ: usize = 4096;

thread_local! {
    /// Where records are deciphered and enciphered: no more than one at a time on a thread.
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A connection that TLS protects.
pub struct Encrypted {
    socket: Socket,
    side: Side,
    /// Received and not deciphered; what it begins with was looked at, so it stays as it is until more comes.
    partial: Vec<u8>,
    /// Deciphered; the caller had no room for it. Taken up to `taken`.
    plain: Vec<u8>,
    taken: usize,
    /// Enciphered; the kernel had no room for it. Sent up to `sent`.
    outgoing: Vec<u8>,
    sent: usize,
    /// Bytes at the front of the caller's next offer whose records are the end of `outgoing`.
    owed: usize,
    /// Received before the handshake was done.
    before_open: usize,
    is_connected: bool,
    is_open: bool,
    has_ended: bool,
    /// Why nothing can be made of what comes; nothing is sent either then.
    failed: Option<Box<rustls::Error>>,
    has_said_goodbye: bool,
    /// What a client's certificate has to hold against, also where a ticket brings it; dropped when the connection is open.
    admission: Option<Admission>,
    names: Option<Arc<CertificateNames>>,
}

/// What is said of a protected connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsSummary {
    /// `1.2` or `1.3`.
    pub version: &'static str,
    /// The suite's name, as in the registry of IANA.
    pub suite: Option<&'static str>,
    /// A ticket took the place of certificates and most of the work.
    pub is_resumed: bool,
}

impl Encrypted {
    pub(super) fn new(socket: Socket, side: Side, admission: Option<Admission>) -> Self {
        Self {
            socket,
            side,
            partial: Vec::new(),
            plain: Vec::new(),
            taken: 0,
            outgoing: Vec::new(),
            sent: 0,
            owed: 0,
            before_open: 0,
            is_connected: false,
            is_open: false,
            has_ended: false,
            failed: None,
            has_said_goodbye: false,
            admission,
            names: None,
        }
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// The names in the other side's certificate; none if it showed none.
    pub(crate) fn names(&self) -> Option<&Arc<CertificateNames>> {
        self.names.as_ref()
    }

    pub(crate) fn summary(&self) -> TlsSummary {
        let state = self.side.state();
        let version = if state.protocol_version() == Some(ProtocolVersion::TLSv1_2) { "1.2" } else { "1.3" };
        TlsSummary {
            version,
            suite: state.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()),
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }

    /// Bytes of memory that it owns beside the state of TLS.
    pub(crate) fn held(&self) -> usize {
        self.partial.capacity() + self.plain.capacity() + self.outgoing.capacity()
    }

    /// Whether there is plaintext that no event of the socket tells of.
    pub(crate) fn holds_plaintext(&self) -> bool {
        self.taken < self.plain.len()
    }

    /// Whether ciphertext waits for room in the socket.
    pub(crate) fn holds_ciphertext(&self) -> bool {
        self.sent < self.outgoing.len()
    }

    /// Goes on with connecting and the handshake.
    pub(crate) fn open(&mut self) -> Result<Opening, TransportError> {
        self.check()?;
        if !self.is_connected {
            if !self.socket.is_connected()? {
                return Ok(Opening::UnderWay);
            }
            self.is_connected = true;
        }
        loop {
            self.process_partial()?;
            if !self.flush()? {
                return Ok(Opening::UnderWay);
            }
            if !self.side.state().is_handshaking() {
                return self.admit().map(|()| Opening::Done);
            }
            if self.has_ended {
                return Err(TransportError::Truncated);
            }
            let before = self.partial.len();
            self.partial.resize(before + HANDSHAKE_READ, 0);
            let received = self.socket.receive_into(&mut self.partial[before..]);
            self.partial.truncate(before + received.as_ref().map_or(0, |bytes| bytes.unwrap_or(0)));
            match received? {
                None => return Ok(Opening::UnderWay),
                Some(0) => return Err(TransportError::Truncated),
                Some(bytes) => self.before_open += bytes,
            }
            if self.before_open > HANDSHAKE_MAX {
                return Err(self.fail(rustls::Error::General("the handshake is too long".into())));
            }
        }
    }

    /// Deciphers what has been received; an alert that says why it cannot be is sent if the socket has room.
    fn process_partial(&mut self) -> Result<(), TransportError> {
        let Self { side, partial, plain, outgoing, .. } = self;
        let Processed { consumed, result } = side.process(partial, outgoing, |bytes| plain.extend_from_slice(bytes));
        partial.drain(..consumed);
        if partial.is_empty() {
            *partial = Vec::new();
        }
        match result {
            Ok(ended) => self.has_ended |= ended,
            Err(error) => {
                drop(self.flush());
                return Err(self.fail(error));
            }
        }
        Ok(())
    }

    /// Notes that TLS is over.
    #[cold]
    fn fail(&mut self, error: rustls::Error) -> TransportError {
        self.failed = Some(Box::new(error.clone()));
        error.into()
    }

    #[inline]
    fn check(&self) -> Result<(), TransportError> {
        self.failed.as_ref().map_or(Ok(()), |error| Err(rustls::Error::clone(error).into()))
    }

    /// Looks at who is there. A ticket proves only that a certificate was good when the ticket was given.
    fn admit(&mut self) -> Result<(), TransportError> {
        let state = self.side.state();
        let chain = state.peer_certificates().unwrap_or_default();
        if let Some(admission) = self.admission.take() {
            match chain.split_first() {
                Some((own, others)) if state.handshake_kind() == Some(HandshakeKind::Resumed) => {
                    if let Err(error) = admission.verifier.verify_client_cert(own, others, UnixTime::now()) {
                        return Err(self.fail(error));
                    }
                }
                None if admission.is_required => return Err(self.fail(rustls::Error::NoCertificatesPresented)),
                _ => {}
            }
        }
        self.names = chain.first().and_then(names).map(Arc::new);
        self.is_open = true;
        Ok(())
    }

    /// Receives once; at most `room` bytes go to `put`.
    pub(crate) fn receive(&mut self, room: usize, mut put: impl FnMut(&[u8])) -> Result<Received, TransportError> {
        if self.holds_plaintext() {
            let bytes = room.min(self.plain.len() - self.taken);
            put(&self.plain[self.taken..][..bytes]);
            self.taken += bytes;
            if self.taken == self.plain.len() {
                (self.plain, self.taken) = (Vec::new(), 0);
            }
            return Ok(Received::Some { bytes, drained: false });
        }
        self.check()?;
        if self.has_ended {
            return Ok(Received::End);
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(SCRATCH, 0);
            self.receive_through(buffer, room, put)
        })
    }

    fn receive_through(
        &mut self,
        buffer: &mut [u8],
        room: usize,
        mut put: impl FnMut(&[u8]),
    ) -> Result<Received, TransportError> {
        let held = self.partial.len();
        let asked = room.max(RECORD + OVERHEAD).min(buffer.len() - held);
        let Some(bytes) = self.socket.receive_into(&mut buffer[held..held + asked])? else {
            return Ok(Received::Nothing);
        };
        if bytes == 0 {
            // Many clients just go. Where this side asked, a reply may have been cut short.
            let is_whole = held == 0 && matches!(self.side, Side::Server(_));
            return if is_whole { Ok(Received::End) } else { Err(TransportError::Truncated) };
        }
        buffer[..held].copy_from_slice(&self.partial);
        let incoming = &mut buffer[..held + bytes];
        let (mut given, Self { side, plain, outgoing, .. }) = (0, &mut *self);
        let Processed { consumed, result } = side.process(incoming, outgoing, |bytes| {
            let (now, later) = bytes.split_at(bytes.len().min(room - given));
            put(now);
            given += now.len();
            plain.extend_from_slice(later);
        });
        let left = &incoming[consumed..];
        self.partial.clear();
        if !left.is_empty() {
            self.partial.extend_from_slice(left);
        } else if self.partial.capacity() > 0 {
            self.partial = Vec::new();
        }
        if self.holds_ciphertext() {
            // Its answer to a message of TLS. If there is no room it goes before what is sent next.
            self.flush()?;
        }
        match result {
            Ok(ended) => self.has_ended |= ended,
            // What came before it is given out; then there is no more.
            Err(error) if given > 0 => drop(self.fail(error)),
            Err(error) => return Err(self.fail(error)),
        }
        if self.partial.len() > PARTIAL_MAX {
            return Err(self.fail(rustls::Error::General("a message is too long".into())));
        }
        let drained = bytes < asked && self.failed.is_none();
        if given == 0 && self.has_ended {
            return Ok(Received::End);
        }
        Ok(Received::Some { bytes: given, drained: drained && !self.holds_plaintext() && !self.has_ended })
    }

    /// Sends what the kernel takes; returns how many bytes of `bytes` are on their way.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> Result<usize, TransportError> {
        self.check()?;
        if !self.flush()? {
            return Ok(0);
        }
        let mut done = std::mem::take(&mut self.owed);
        debug_assert!(done <= bytes.len(), "bytes that were offered are not offered again");
        if done >= bytes.len() {
            return Ok(bytes.len());
        }
        BUFFER.with_borrow_mut(|buffer| {
            buffer.resize(SCRATCH, 0);
            while done < bytes.len() {
                let now = &bytes[done..][..SENT_AT_ONCE.min(bytes.len() - done)];
                let written = self.side.encipher(&Message::Plain(now), &mut self.partial, buffer)?;
                let sent = self.socket.send(&buffer[..written])?;
                if sent < written {
                    self.outgoing.extend_from_slice(&buffer[sent..written]);
                    self.owed = now.len();
                    break;
                }
                done += now.len();
            }
            Ok(done)
        })
    }

    /// Sends ciphertext that the kernel had no room for; true if none is left.
    fn flush(&mut self) -> Result<bool, TransportError> {
        while self.holds_ciphertext() {
            match self.socket.send(&self.outgoing[self.sent..])? {
                0 => return Ok(false),
                sent => self.sent += sent,
            }
        }
        if self.sent > 0 {
            (self.outgoing, self.sent) = (Vec::new(), 0);
        }
        Ok(true)
    }

    /// Says that no more is sent, if the socket has room, and ends both directions.
    pub(crate) fn shut_down(&mut self) {
        self.say_goodbye();
        self.socket.shut_down().ok();
    }

    fn say_goodbye(&mut self) {
        if !self.is_open
            || self.failed.is_some()
            || std::mem::replace(&mut self.has_said_goodbye, true)
            || self.holds_ciphertext()
        {
            return;
        }
        let mut record = [0; 64 + OVERHEAD];
        if let Ok(written) = self.side.encipher(&Message::Goodbye, &mut self.partial, &mut record) {
            self.socket.send(&record[..written]).ok();
        }
    }
}

impl Drop for Encrypted {
    fn drop(&mut self) {
        self.say_goodbye();
    }
}

impl fmt::Debug for Encrypted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.is_open { "open" } else { "opening" };
        formatter.debug_struct("Encrypted").field("socket", &self.socket).field("state", &state).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_adds_little_to_the_state_of_tls() {
        let own = size_of::<Encrypted>() - size_of::<Side>();
        assert!(own <= 192, "{own} of {} bytes", size_of::<Encrypted>());
    }
}
