//! The two sides of a TLS connection as one: ciphertext in, plaintext and ciphertext out.
//!
//! This is `rustls` without buffers of its own, so that an idle connection holds none.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus};
use rustls::{CommonState, Error};

/// Most bytes of plaintext in a record (RFC 8446, 5.1).
pub(super) const RECORD: usize = 16 * 1024;
/// Most bytes that a record adds to its plaintext: header, and what the oldest of our suites adds (RFC 8446, 5.2).
pub(super) const OVERHEAD: usize = 5 + 256;

/// One side of a connection.
pub(super) enum Side {
    /// It connected.
    Client(UnbufferedClientConnection),
    /// It accepted.
    Server(UnbufferedServerConnection),
}

/// How far [`Side::process`] came.
pub(super) struct Processed {
    /// Bytes of ciphertext to remove from the front, however it ended.
    pub(super) consumed: usize,
    /// Whether the other side said that it sends no more, or why there is no going on.
    pub(super) result: Result<bool, Error>,
}

impl Side {
    /// What both have.
    pub(super) fn state(&self) -> &CommonState {
        match self {
            Self::Client(connection) => connection,
            Self::Server(connection) => connection,
        }
    }

    /// Takes ciphertext as far as it goes: plaintext goes to `take`, what has to be sent after `outgoing`.
    pub(super) fn process(
        &mut self,
        incoming: &mut [u8],
        outgoing: &mut Vec<u8>,
        take: impl FnMut(&[u8]),
    ) -> Processed {
        match self {
            Self::Client(connection) => process(connection, incoming, outgoing, take),
            Self::Server(connection) => process(connection, incoming, outgoing, take),
        }
    }

    /// Enciphers `message` into `outgoing`, which has room for its records, after what has to be sent before it; returns the
    /// number of bytes written. `partial`: ciphertext that was processed as far as it goes.
    pub(super) fn encipher(
        &mut self,
        message: &Message<'_>,
        partial: &mut [u8],
        outgoing: &mut [u8],
    ) -> Result<usize, Error> {
        match self {
            Self::Client(connection) => encipher(connection, message, partial, outgoing),
            Self::Server(connection) => encipher(connection, message, partial, outgoing),
        }
    }
}

/// What is enciphered.
pub(super) enum Message<'a> {
    /// Bytes.
    Plain(&'a [u8]),
    /// No more will come.
    Goodbye,
}

trait Records {
    type Data;

    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Records for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Records for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn step<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

fn process<R: Records>(
    records: &mut R,
    incoming: &mut [u8],
    outgoing: &mut Vec<u8>,
    mut take: impl FnMut(&[u8]),
) -> Processed {
    let (mut consumed, mut ended) = (0, false);
    loop {
        let UnbufferedStatus { mut discard, state } = records.step(&mut incoming[consumed..]);
        let goes_on = match state {
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(Ok(record)) = traffic.next_record() {
                    take(record.payload);
                    discard += record.discard;
                }
                true
            }
            Ok(ConnectionState::EncodeTlsData(data)) => {
                encode(data, outgoing);
                true
            }
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                true
            }
            Ok(ConnectionState::PeerClosed) => {
                ended = true;
                true
            }
            Ok(_) => false,
            Err(error) => {
                consumed += discard;
                // An alert, if there is one, comes before all else.
                let last = records.step(&mut incoming[consumed..]);
                if let Ok(ConnectionState::EncodeTlsData(data)) = last.state {
                    encode(data, outgoing);
                }
                return Processed { consumed, result: Err(error) };
            }
        };
        consumed += discard;
        if !goes_on {
            return Processed { consumed, result: Ok(ended) };
        }
    }
}

fn encode<D>(mut data: EncodeTlsData<'_, D>, outgoing: &mut Vec<u8>) {
    let begin = outgoing.len();
    if let Err(EncodeError::InsufficientSize(lacks)) = data.encode(&mut []) {
        outgoing.resize(begin + lacks.required_size, 0);
        let written = data.encode(&mut outgoing[begin..]).unwrap_or(0);
        outgoing.truncate(begin + written);
    }
}

fn encipher<R: Records>(
    records: &mut R,
    message: &Message<'_>,
    partial: &mut [u8],
    outgoing: &mut [u8],
) -> Result<usize, Error> {
    let mut written = 0;
    loop {
        // Not an empty slice: messages that have begun are found where they were.
        match records.step(partial).state? {
            ConnectionState::WriteTraffic(mut traffic) => {
                let room = &mut outgoing[written..];
                let result = match message {
                    Message::Plain(plain) => traffic.encrypt(plain, room),
                    Message::Goodbye => traffic.queue_close_notify(room),
                };
                return match result {
                    Ok(bytes) => Ok(written + bytes),
                    Err(EncryptError::EncryptExhausted) => Err(Error::EncryptError),
                    Err(EncryptError::InsufficientSize(_)) => Err(Error::General("no room for a record".into())),
                };
            }
            ConnectionState::EncodeTlsData(mut data) => match data.encode(&mut outgoing[written..]) {
                Ok(bytes) => written += bytes,
                Err(_) => return Err(Error::General("no room for a message".into())),
            },
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => {}
            _ => return Err(Error::HandshakeNotComplete),
        }
    }
}
