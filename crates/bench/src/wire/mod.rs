//! The client's side of the three protocols: requests to bytes, and replies found at the front of a receive buffer.
//!
//! It is written apart from the server's decoder on purpose: a checker must not share the mistakes of what it checks.

mod binary;
mod meta;
mod text;

use clap::ValueEnum;
use serde::Serialize;

use crate::operation::Operation;

/// A memcached protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// Classic text commands: get, set, delete …
    Text,
    /// Meta text commands: mg, ms, md, ma.
    Meta,
    /// The binary protocol.
    Binary,
}

/// The parts of a single-key command besides its value.
#[derive(Debug, Clone, Copy)]
pub struct Command<'a> {
    /// What to do.
    pub operation: Operation,
    /// With which key.
    pub key: &'a [u8],
    /// Expiration time in seconds, for the operations that have one.
    pub ttl: u32,
    /// Length of the value that follows, for the operations that store.
    pub value_length: usize,
}

/// What kind of reply is expected next on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// The answer to a read of one key.
    Value,
    /// The answers to a multi-get.
    Values,
    /// One status.
    Status,
}

/// What a reply, or one part of the reply to a multi-get, says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A value; `key` is empty where the protocol does not repeat it.
    Hit {
        /// The key as the server sent it back.
        key: &'a [u8],
        /// The value.
        data: &'a [u8],
    },
    /// No more values: keys not answered so far are misses.
    End,
    /// Done as asked.
    Done,
    /// There is no such key.
    Missing,
    /// The key's state did not allow it: add of an existing key, append to a missing one.
    NotStored,
    /// The server refused or failed, in its own words.
    Failed(&'a [u8]),
}

/// A part of the receive buffer that has been understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply<'a> {
    /// What it says.
    pub answer: Answer<'a>,
    /// Bytes it takes up in the buffer.
    pub length: usize,
    /// Whether the request is now answered in full.
    pub last: bool,
}

/// The result of looking for a reply: none yet, one, or a reason why the bytes cannot be one.
pub type Parsed<'a> = Result<Option<Reply<'a>>, String>;

impl Protocol {
    /// Appends a command up to the place of its value; commands that store nothing are complete.
    #[inline]
    pub fn begin(self, out: &mut Vec<u8>, command: Command<'_>) {
        match self {
            Self::Text => text::begin(out, command),
            Self::Meta => meta::begin(out, command),
            Self::Binary => binary::begin(out, command),
        }
    }

    /// Appends what follows the value of a command that stores.
    #[inline]
    pub fn end_value(self, out: &mut Vec<u8>) {
        if self != Self::Binary {
            out.extend_from_slice(b"\r\n");
        }
    }

    /// Appends the start of a multi-get.
    #[inline]
    pub fn begin_multiget(self, out: &mut Vec<u8>) {
        if self == Self::Text {
            out.extend_from_slice(b"get");
        }
    }

    /// Appends one key of a multi-get.
    #[inline]
    pub fn multiget_key(self, out: &mut Vec<u8>, key: &[u8]) {
        match self {
            Self::Text => {
                out.push(b' ');
                out.extend_from_slice(key);
            }
            Self::Meta => meta::multiget_key(out, key),
            Self::Binary => binary::multiget_key(out, key),
        }
    }

    /// Appends the end of a multi-get.
    #[inline]
    pub fn end_multiget(self, out: &mut Vec<u8>) {
        match self {
            Self::Text => out.extend_from_slice(b"\r\n"),
            Self::Meta => out.extend_from_slice(b"mn\r\n"),
            Self::Binary => binary::noop(out),
        }
    }

    /// Looks for a reply at the front of `buffer`.
    ///
    /// # Errors
    /// A reason, when no continuation of the bytes can be the reply that is expected.
    #[inline]
    pub fn parse(self, buffer: &[u8], expected: Expected) -> Parsed<'_> {
        match self {
            Self::Text => text::parse(buffer, expected),
            Self::Meta => meta::parse(buffer, expected),
            Self::Binary => binary::parse(buffer, expected),
        }
    }
}

/// Appends a number in decimal.
#[inline]
fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[start..]);
}

/// Longest line a reply may have, in bytes; a longer one is not a reply.
const MAX_LINE: usize = 4096;

/// The first line of `buffer` without its end, and the length with it.
#[inline]
fn line(buffer: &[u8]) -> Result<Option<(&[u8], usize)>, String> {
    let window = &buffer[..buffer.len().min(MAX_LINE)];
    match memchr::memchr(b'\n', window) {
        Some(end) if end > 0 && buffer[end - 1] == b'\r' => Ok(Some((&buffer[..end - 1], end + 1))),
        Some(end) => Err(format!("a line without carriage return: {}", excerpt(&buffer[..end]))),
        None if window.len() == MAX_LINE => Err(format!("a line without end: {}", excerpt(buffer))),
        None => Ok(None),
    }
}

/// The value of `length` bytes that follows a line of `head` bytes, and the length of both; none until all has arrived.
#[inline]
fn data_block(buffer: &[u8], head: usize, length: usize) -> Result<Option<(&[u8], usize)>, String> {
    let end = head + length;
    match buffer.get(end..end + 2) {
        Some(b"\r\n") => Ok(Some((&buffer[head..end], end + 2))),
        Some(other) => Err(format!("a data block that does not end in CRLF but in {}", excerpt(other))),
        None => Ok(None),
    }
}

/// Reads a decimal number of at most 20 digits.
#[inline]
fn number(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 20 {
        return None;
    }
    text.iter().try_fold(0u64, |sum, byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        sum.checked_mul(10)?.checked_add(digit)
    })
}

/// Whether a line reports an error in either text protocol.
fn is_error(line: &[u8]) -> bool {
    line == b"ERROR" || [&b"ERROR "[..], b"CLIENT_ERROR", b"SERVER_ERROR"].iter().any(|start| line.starts_with(start))
}

/// A few bytes of what came, for messages.
fn excerpt(bytes: &[u8]) -> String {
    bytes[..bytes.len().min(60)].escape_ascii().to_string()
}

#[cfg(test)]
mod tests;
