//! Binary packets: writing requests, reading replies.
//!
//! ```text
//!  byte  0     1       2..4     4          5          6..8             8..12        12..16  16..24
//!       +-----+-------+--------+----------+----------+----------------+------------+-------+-----+
//!       |magic|opcode |key len |extras len|data type |vbucket / status|body length |opaque | CAS |
//!       +-----+-------+--------+----------+----------+----------------+------------+-------+-----+
//! ```

use crate::client::Client;
use anyhow::{Result, ensure};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 24;
/// First byte of a request.
pub const REQUEST_MAGIC: u8 = 0x80;
/// First byte of a reply.
pub const REPLY_MAGIC: u8 = 0x81;

/// Opcodes the harness itself uses.
pub mod opcode {
    /// Answers nothing but itself, after everything before it.
    pub const NOOP: u8 = 0x0a;
    /// Fetches a value.
    pub const GET: u8 = 0x00;
    /// Stores a value.
    pub const SET: u8 = 0x01;
    /// Asks for the server's version.
    pub const VERSION: u8 = 0x0b;
    /// Asks for statistics.
    pub const STAT: u8 = 0x10;
    /// Lists the SASL mechanisms.
    pub const SASL_LIST: u8 = 0x20;
    /// Starts authentication.
    pub const SASL_AUTH: u8 = 0x21;
}

/// A request whose every header field can be set, rightly or wrongly.
#[derive(Clone, Debug)]
pub struct Request {
    /// Normally [`REQUEST_MAGIC`].
    pub magic: u8,
    /// What is asked.
    pub opcode: u8,
    /// Normally 0.
    pub data_type: u8,
    /// Normally 0.
    pub vbucket: u16,
    /// Comes back unchanged.
    pub opaque: u32,
    /// Item version the command is for; 0 for any.
    pub cas: u64,
    /// Fixed fields of the command.
    pub extras: Vec<u8>,
    /// The key.
    pub key: Vec<u8>,
    /// The value.
    pub value: Vec<u8>,
    /// What the header says in place of the true key length.
    pub claimed_key_length: Option<u16>,
    /// What the header says in place of the true extras length.
    pub claimed_extras_length: Option<u8>,
    /// What the header says in place of the true body length.
    pub claimed_body_length: Option<u32>,
}

impl Request {
    /// A well-formed request.
    pub fn new(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Self {
        Self {
            magic: REQUEST_MAGIC,
            opcode,
            data_type: 0,
            vbucket: 0,
            opaque: 0,
            cas: 0,
            extras: extras.to_vec(),
            key: key.to_vec(),
            value: value.to_vec(),
            claimed_key_length: None,
            claimed_extras_length: None,
            claimed_body_length: None,
        }
    }

    /// The bytes up to and excluding the CAS field.
    pub fn head(&self) -> Vec<u8> {
        let key_length = self.claimed_key_length.unwrap_or(self.key.len() as u16);
        let extras_length = self.claimed_extras_length.unwrap_or(self.extras.len() as u8);
        let body = (self.extras.len() + self.key.len() + self.value.len()) as u32;
        let mut bytes = vec![self.magic, self.opcode];
        bytes.extend_from_slice(&key_length.to_be_bytes());
        bytes.extend_from_slice(&[extras_length, self.data_type]);
        bytes.extend_from_slice(&self.vbucket.to_be_bytes());
        bytes.extend_from_slice(&self.claimed_body_length.unwrap_or(body).to_be_bytes());
        bytes.extend_from_slice(&self.opaque.to_be_bytes());
        bytes
    }

    /// The bytes after the header.
    pub fn body(&self) -> Vec<u8> {
        [self.extras.as_slice(), &self.key, &self.value].concat()
    }

    /// The whole packet.
    pub fn bytes(&self) -> Vec<u8> {
        [self.head(), self.cas.to_be_bytes().to_vec(), self.body()].concat()
    }
}

/// A parsed reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// The opcode it answers.
    pub opcode: u8,
    /// 0 is success.
    pub status: u16,
    /// The request's opaque.
    pub opaque: u32,
    /// The item's version.
    pub cas: u64,
    /// Fixed fields.
    pub extras: Vec<u8>,
    /// The key, when the command returns it.
    pub key: Vec<u8>,
    /// The value, or an error's text.
    pub value: Vec<u8>,
}

impl Reply {
    /// Takes one reply off the front of `bytes`: the reply and its length, or `None` when `bytes` holds no whole one.
    pub fn parse(bytes: &[u8]) -> Option<(Self, usize)> {
        let header = bytes.get(..HEADER_BYTES)?;
        if header[0] != REPLY_MAGIC {
            return None;
        }
        let key_length = usize::from(u16::from_be_bytes([header[2], header[3]]));
        let extras_length = usize::from(header[4]);
        let body_length = u32::from_be_bytes(header[8..12].try_into().ok()?) as usize;
        let body = bytes.get(HEADER_BYTES..HEADER_BYTES + body_length)?;
        let reply = Self {
            opcode: header[1],
            status: u16::from_be_bytes([header[6], header[7]]),
            opaque: u32::from_be_bytes(header[12..16].try_into().ok()?),
            cas: u64::from_be_bytes(header[16..24].try_into().ok()?),
            extras: body.get(..extras_length)?.to_vec(),
            key: body.get(extras_length..extras_length + key_length)?.to_vec(),
            value: body.get(extras_length + key_length..)?.to_vec(),
        };
        Some((reply, HEADER_BYTES + body_length))
    }
}

/// Sends a request and reads its one reply.
pub fn ask(client: &mut Client, request: &Request) -> Result<Reply> {
    client.send(&request.bytes())?;
    read(client)
}

/// Reads one reply.
pub fn read(client: &mut Client) -> Result<Reply> {
    let mut bytes = client.bytes(HEADER_BYTES)?;
    ensure!(bytes[0] == REPLY_MAGIC, "a reply starts with {:#04x}", bytes[0]);
    let body = u32::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) as usize;
    bytes.extend(client.bytes(body)?);
    let parsed = Reply::parse(&bytes);
    ensure!(parsed.is_some(), "a reply whose lengths do not fit: {bytes:?}");
    Ok(parsed.expect("just checked").0)
}
