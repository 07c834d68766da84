//! Plays a stream against one server and keeps what came back.
//!
//! Every batch is followed by a sentinel, a command whose reply nothing else can produce; the replies of the batch end
//! where the sentinel's reply begins. A command whose lengths are wrong may swallow what follows it as its own data, so
//! such a batch gets padding before the sentinel. After the stream a second connection reads every key back, so what
//! quiet commands did is compared too.

use super::stream::{Command, Piece, Protocol, Splits, Stream};
use super::words;
use crate::binary::{HEADER_BYTES, REPLY_MAGIC, REQUEST_MAGIC, Request, opcode};
use crate::client::Client;
use crate::options::Kind;
use crate::server::Server;
use anyhow::{Result, ensure};
use fastrand::Rng;
use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// The limit of a batch for a start. Only hangs reach it.
pub const BATCH_LIMIT: Duration = Duration::from_secs(30);
/// The padding is longer than any length is wrong by.
const PADDING_COMMANDS: usize = 2 * words::LENGTH_ERROR / 4;
const BINARY_PADDING_COMMANDS: usize = 2 * words::LENGTH_ERROR / HEADER_BYTES;
const SENTINEL_OPAQUE: u32 = 0x5e17_1e15;
const READ_BYTES: usize = 64 * 1024;

/// How the replies of a batch ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// With the sentinel: the connection is in step.
    Sentinel,
    /// The server closed the connection.
    Closed,
    /// Neither came.
    TimedOut,
}

/// The replies to one batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replies {
    /// Everything received, the sentinel's reply excluded.
    pub bytes: Vec<u8>,
    /// How it ended.
    pub end: End,
}

/// Everything one server answered to a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transcript {
    /// Per batch; shorter than the stream if the connection ended early.
    pub batches: Vec<Replies>,
    /// The text replies of a second connection that read every key afterwards.
    pub afterwards: Replies,
}

impl Transcript {
    /// Whether a reply never came.
    pub fn hangs(&self) -> bool {
        self.batches.iter().chain([&self.afterwards]).any(|replies| replies.end == End::TimedOut)
    }
}

/// Plays streams against one server.
#[derive(Debug)]
pub struct Player<'a> {
    server: &'a Server,
    control: Client,
    /// How long a batch may take before the server counts as hanging.
    pub batch_limit: Duration,
}

impl<'a> Player<'a> {
    /// A player with a separate connection for resets and lookups.
    pub fn new(server: &'a Server) -> Result<Self> {
        Ok(Self { server, control: server.enter(false)?, batch_limit: BATCH_LIMIT })
    }

    /// Empties the server, plays the stream on a new connection, then reads every key back on another.
    pub fn play(&mut self, stream: &Stream) -> Result<Transcript> {
        let reply = self.control.ask("flush_all\r\n")?;
        ensure!(reply == "OK", "flush_all answered {reply:?}");
        let mut client = self.server.enter(stream.protocol == Protocol::Binary)?;
        let mut rng = Rng::with_seed(stream.splits.seed);
        let mut batches = Vec::new();
        for (index, commands) in stream.batches().enumerate() {
            let mut bytes = self.resolve(commands)?;
            if index == 0 && stream.protocol == Protocol::Binary {
                // The first byte picks the protocol, and a broken first request must not pick text.
                bytes.splice(0..0, Request::new(opcode::NOOP, b"", b"", b"").bytes());
            }
            let sentinel = close_batch(&mut bytes, stream.protocol, commands);
            let replies = drive(&mut client, &bytes, stream.splits, &mut rng, sentinel.as_deref(), self.batch_limit)?;
            let end = replies.end;
            batches.push(replies);
            if end != End::Sentinel {
                break;
            }
        }
        Ok(Transcript { batches, afterwards: self.read_back()? })
    }

    /// The bytes of a batch, with this server's own CAS values filled in.
    fn resolve(&mut self, commands: &[Command]) -> Result<Vec<u8>> {
        let mut known: HashMap<&[u8], u64> = HashMap::new();
        let mut bytes = Vec::new();
        for piece in commands.iter().flat_map(|command| &command.pieces) {
            match piece {
                Piece::Bytes(fixed) => bytes.extend_from_slice(fixed),
                Piece::Skipped(block) if self.server.kind() == Kind::Moneta => bytes.extend_from_slice(block),
                Piece::Skipped(_) => {}
                Piece::CasOf { key, offset, binary } => {
                    if !known.contains_key(key.as_slice()) {
                        known.insert(key, self.cas_of(key)?);
                    }
                    let cas = known[key.as_slice()] + offset;
                    if *binary {
                        bytes.extend_from_slice(&cas.to_be_bytes());
                    } else {
                        bytes.extend_from_slice(cas.to_string().as_bytes());
                    }
                }
            }
        }
        Ok(bytes)
    }

    /// A missing item has no CAS value; 1 stands in.
    fn cas_of(&mut self, key: &[u8]) -> Result<u64> {
        self.control.send(&[b"mg ", key, b" c\r\n"].concat())?;
        let reply = self.control.line()?;
        let digits = reply.strip_prefix("HD c").map(|rest| rest.split(' ').next().unwrap_or(rest));
        Ok(digits.map_or(Ok(1), str::parse)?)
    }

    fn read_back(&self) -> Result<Replies> {
        let mut bytes = Vec::new();
        for key in words::keys() {
            bytes.extend_from_slice(&[b"mg ", key.as_slice(), b" k c f t s v\r\n"].concat());
        }
        for key in words::base64_keys() {
            bytes.extend_from_slice(&[b"mg ", key.as_slice(), b" b c f t s v\r\n"].concat());
        }
        let sentinel = close_batch(&mut bytes, Protocol::Text, &[]);
        let mut client = self.server.enter(false)?;
        drive(
            &mut client,
            &bytes,
            Splits { seed: 0, mean_bytes: 0 },
            &mut Rng::with_seed(0),
            sentinel.as_deref(),
            self.batch_limit,
        )
    }
}

/// Appends padding, where needed, and the sentinel; returns the sentinel's reply, or nothing where a close is awaited.
fn close_batch(bytes: &mut Vec<u8>, protocol: Protocol, commands: &[Command]) -> Option<Vec<u8>> {
    if commands.iter().any(|command| command.awaits_close) {
        return None;
    }
    let pad = commands.iter().any(|command| command.may_swallow);
    match protocol {
        Protocol::Text | Protocol::Meta => {
            if pad {
                bytes.extend_from_slice(&b"mn\r\n".repeat(PADDING_COMMANDS));
            }
            // Stored already expired, so that it leaves nothing behind.
            bytes.extend_from_slice(b"ms sentinel 1 T-1 k O5e171e15\r\nx\r\n");
            Some(b"HD ksentinel O5e171e15\r\n".to_vec())
        }
        Protocol::Binary => {
            let mut noop = Request::new(opcode::NOOP, b"", b"", b"");
            if pad {
                bytes.extend_from_slice(&noop.bytes().repeat(BINARY_PADDING_COMMANDS));
            }
            noop.opaque = SENTINEL_OPAQUE;
            bytes.extend_from_slice(&noop.bytes());
            let mut reply = noop.bytes();
            debug_assert_eq!(reply[0], REQUEST_MAGIC);
            reply[0] = REPLY_MAGIC;
            Some(reply)
        }
    }
}

/// Writes all bytes, split as asked, and reads until the sentinel's reply, a close or the limit. Reading and writing take
/// turns, so neither side can block the other by full buffers.
fn drive(
    client: &mut Client,
    bytes: &[u8],
    splits: Splits,
    rng: &mut Rng,
    sentinel: Option<&[u8]>,
    limit: Duration,
) -> Result<Replies> {
    client.set_nonblocking(true)?;
    let start = Instant::now();
    let mut received = Vec::new();
    let mut buffer = vec![0; READ_BYTES];
    // Over TLS, what was offered and not taken is offered again, with more behind it or not.
    let (mut sent, mut offered) = (0, 0);
    let end = loop {
        wait(client, sent < bytes.len())?;
        if sent < bytes.len() {
            let length = segment(rng, splits, bytes.len() - sent).max(offered);
            match client.write_some(&bytes[sent..sent + length]) {
                Ok(count) => (sent, offered) = (sent + count, length - count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => offered = length,
                // The server closed; what it said before is still to be read.
                Err(_) => sent = bytes.len(),
            }
        }
        match client.read_some(&mut buffer) {
            Ok(0) => break End::Closed,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {}
            Err(_) => break End::Closed,
        }
        if let Some(sentinel) = sentinel
            && sent == bytes.len()
            && received.ends_with(sentinel)
        {
            received.truncate(received.len() - sentinel.len());
            break End::Sentinel;
        }
        if start.elapsed() > limit {
            break End::TimedOut;
        }
    };
    client.set_nonblocking(false)?;
    Ok(Replies { bytes: received, end })
}

fn segment(rng: &mut Rng, splits: Splits, left: usize) -> usize {
    if splits.mean_bytes == 0 {
        return left;
    }
    left.min(1 + rng.usize(..2 * splits.mean_bytes))
}

/// Waits until the socket can be read, or written if there is something to write.
fn wait(client: &Client, writing: bool) -> Result<()> {
    let events = if writing { libc::POLLIN | libc::POLLOUT } else { libc::POLLIN };
    let mut descriptor = libc::pollfd { fd: client.as_raw_fd(), events, revents: 0 };
    // SAFETY: one valid pollfd is passed, and it outlives the call.
    let result = unsafe { libc::poll(&raw mut descriptor, 1, 100) };
    ensure!(result >= 0, "poll failed: {}", std::io::Error::last_os_error());
    Ok(())
}
