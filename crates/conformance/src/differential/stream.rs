//! What is sent: commands in batches, and how their bytes are split.

use std::fmt;

/// Which generator made a stream, and how its replies are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// The classic text commands.
    Text,
    /// The meta commands, with some classic ones between them.
    Meta,
    /// The binary protocol.
    Binary,
}

impl Protocol {
    /// Every protocol, in the order they are tested.
    pub const ALL: [Self; 3] = [Self::Text, Self::Meta, Self::Binary];
}

/// A part of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// Bytes that are the same for both servers.
    Bytes(Vec<u8>),
    /// The CAS value that this server gave the item of `key`, plus `offset` to make it a wrong one. Each server counts
    /// its own CAS values, so the bytes can only be known when the batch is about to be sent.
    CasOf {
        /// The key, as written in the text protocol.
        key: Vec<u8>,
        /// 0 for the right value.
        offset: u64,
        /// Eight bytes rather than decimal digits.
        binary: bool,
    },
    /// The data block of a line that is refused: 1.6.45 and Moneta skip it, 1.6.18 takes it for commands and is not sent it (rule
    /// `data block of a refused line`).
    Skipped(Vec<u8>),
}

/// What a command does to items, as far as the order of writes and replies in the reference depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Its reply may refer to an item until it is written.
    Retrieval,
    /// It changes a number in place, unless a reply still refers to the item (rule `arithmetic behind an unread reply`).
    Arithmetic,
    /// Neither.
    Other,
}

/// One command with its data block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Command {
    /// Its bytes.
    pub pieces: Vec<Piece>,
    /// What it does to items.
    pub role: Role,
    /// The replies of everything before are read before this command is sent.
    pub starts_batch: bool,
    /// The server must close the connection after it; nothing more is sent.
    pub awaits_close: bool,
    /// Its lengths are wrong, so it may take what follows for its own data.
    pub may_swallow: bool,
}

impl Command {
    /// A command of fixed bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            pieces: vec![Piece::Bytes(bytes.into())],
            role: Role::Other,
            starts_batch: false,
            awaits_close: false,
            may_swallow: false,
        }
    }

    /// About how many bytes it has; a CAS value counts as eight.
    pub fn length(&self) -> usize {
        let lengths = self.pieces.iter().map(|piece| match piece {
            Piece::Bytes(bytes) | Piece::Skipped(bytes) => bytes.len(),
            Piece::CasOf { .. } => 8,
        });
        lengths.sum()
    }
}

impl fmt::Display for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.starts_batch {
            formatter.write_str("(all replies read) ")?;
        }
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(bytes) => formatter.write_str(&printable(bytes))?,
                Piece::Skipped(bytes) => write!(formatter, "<skipped: {}>", printable(bytes))?,
                Piece::CasOf { key, offset: 0, .. } => write!(formatter, "<CAS of {}>", printable(key))?,
                Piece::CasOf { key, offset, .. } => write!(formatter, "<CAS of {} + {offset}>", printable(key))?,
            }
        }
        Ok(())
    }
}

/// How the bytes of a batch are cut into writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Splits {
    /// Seed of the cutting points.
    pub seed: u64,
    /// Mean bytes a write; 0 for one write a batch.
    pub mean_bytes: usize,
}

/// Everything one connection sends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Which protocol it speaks.
    pub protocol: Protocol,
    /// What it sends.
    pub commands: Vec<Command>,
    /// How its bytes are cut.
    pub splits: Splits,
}

impl Stream {
    /// The commands in batches.
    pub fn batches(&self) -> impl Iterator<Item = &[Command]> {
        self.commands.chunk_by(|command, next| !command.awaits_close && !next.starts_batch)
    }
}

/// Longer runs of one byte, and longer texts, are abbreviated when printed.
const PRINTED_RUN: usize = 12;
const PRINTED_BYTES: usize = 400;

/// Bytes as readable text: escaped, long runs counted, long texts cut.
pub fn printable(bytes: &[u8]) -> String {
    let mut text = String::new();
    let mut rest = bytes;
    while let Some(&first) = rest.first() {
        let run = rest.iter().take_while(|&&byte| byte == first).count();
        let unit = first.escape_ascii().to_string();
        if run > PRINTED_RUN {
            text.push_str(&format!("<{unit} x {run}>"));
        } else {
            text.push_str(&unit.repeat(run));
        }
        rest = &rest[run..];
        if text.len() > PRINTED_BYTES {
            text.push_str(&format!("<{} more bytes>", rest.len()));
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_start_where_commands_say_so() {
        let mut commands = vec![Command::new("a"), Command::new("b"), Command::new("c")];
        commands[2].starts_batch = true;
        let stream = Stream { protocol: Protocol::Text, commands, splits: Splits { seed: 0, mean_bytes: 0 } };
        assert_eq!(stream.batches().map(<[Command]>::len).collect::<Vec<_>>(), [2, 1]);
    }

    #[test]
    fn long_runs_are_counted() {
        assert_eq!(printable(b"set a\r\n\x80"), "set a\\r\\n\\x80");
        assert_eq!(printable(&[b'x'; 300]), "<x x 300>");
    }
}
