//! The one command type: every protocol decodes to it, the session executes it.
//!
//! A command borrows from the receive buffer. Its `reply` field says in which protocol and shape the answer goes out, so
//! that nothing but the encoder looks at the protocol again.

use moneta_item::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_item::{Newer, Version};

/// What a connection can ask for by a word that follows `version`. The reply that grants it has the same word after the version.
/// memcached answers such a request as a plain `version`, so asking it changes nothing. For Moneta as a client of Moneta.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grant {
    /// Expiration times have 64 bits: items may outlive 2038.
    WideTimes,
    /// Replies to meta commands name the code of a failure, where it has one ([`moneta_item::ErrorCode`]).
    ErrorCodes,
}

impl Grant {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::WideTimes, Self::ErrorCodes];

    /// The word that asks for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::WideTimes => "wide-times",
            Self::ErrorCodes => "error-codes",
        }
    }
}

/// How a command's answer is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style<'a> {
    /// Classic text.
    Text(TextStyle),
    /// Meta: a short code and the flags asked for, in the order asked.
    Meta(MetaStyle<'a>),
    /// Binary: a 24-byte header and a body.
    Binary(BinaryStyle),
}

/// Shape of a classic text reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// `noreply` was the last token: say nothing.
    pub noreply: bool,
    /// `gets` and `gats`: the CAS value follows the length.
    pub with_cas: bool,
    /// The line of a `get` goes on after the keys of this command: `END` is not due yet.
    pub more: bool,
}

/// Shape of a meta reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MetaStyle<'a> {
    /// The flag tokens of the request line, checked by the decoder and separated by single or repeated spaces; the
    /// encoder walks them again to echo and return in request order.
    pub flags: &'a [u8],
    /// `q`: hide the nominal reply.
    pub quiet: bool,
    /// `b`: the key came as base64 and goes out so. The command's key is then still as it was sent, checked to decode
    /// with [`crate::base64::decode_key`].
    pub base64_key: bool,
    /// `v`: the value is wanted.
    pub value: bool,
    /// `C` on a read: leave the value out if the item's CAS value is this one.
    pub unless_cas: Option<u64>,
    /// `ms`: a `c` is answered also where nothing is stored, by 0.
    pub stores: bool,
    /// A failure is told with its code.
    pub coded: bool,
}

/// Shape of a binary reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BinaryStyle {
    /// Opcode of the request, echoed.
    pub opcode: u8,
    /// Opaque of the request, echoed.
    pub opaque: u32,
    /// Quiet form: success (of mutations) or a miss (of reads) is not told.
    pub quiet: bool,
    /// The key goes with the value (GETK and kin).
    pub with_key: bool,
    /// The value is left out (TOUCH).
    pub without_value: bool,
}

/// A decoded command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command<'a> {
    /// Read one or more items.
    Get {
        /// The keys; more than one only in classic text.
        keys: Keys<'a>,
        /// What to do to each item read.
        request: Retrieve,
        /// Which command it was, for the counters.
        verb: ReadVerb,
        /// How to answer.
        style: Style<'a>,
    },
    /// Write an item.
    Set {
        /// The key, as sent.
        key: &'a [u8],
        /// The data block, without its line end.
        value: &'a [u8],
        /// How to write it.
        request: Write,
        /// How to answer.
        style: Style<'a>,
    },
    /// Delete an item.
    Delete {
        /// The key, as sent.
        key: &'a [u8],
        /// How to delete it.
        request: Delete,
        /// How to answer.
        style: Style<'a>,
    },
    /// `ms` with `V`: store an item if it is newer than what is there.
    PutNewer {
        /// The key, as sent.
        key: &'a [u8],
        /// The data block, without its line end.
        value: &'a [u8],
        /// The rest of the item.
        item: Newer,
        /// How to answer.
        style: Style<'a>,
    },
    /// `md` with `V`: delete what is older than a version, and remember that.
    Bury {
        /// The key, as sent.
        key: &'a [u8],
        /// The version of the delete, which is not 0.
        version: Version,
        /// How to answer.
        style: Style<'a>,
    },
    /// `mf`: take a flush that was commanded elsewhere.
    Floor {
        /// When it was commanded; not 0.
        version: Version,
        /// The Unix second it takes effect.
        second: u32,
        /// How to answer.
        style: Style<'a>,
    },
    /// `mv`: what the server knows of versions.
    Versions(Style<'a>),
    /// Add to or subtract from a number.
    Arithmetic {
        /// The key, as sent.
        key: &'a [u8],
        /// What to compute.
        request: Arithmetic,
        /// How to answer.
        style: Style<'a>,
    },
    /// `me`: the internals of an item, for people.
    MetaDebug {
        /// The key, as sent.
        key: &'a [u8],
        /// How to answer.
        style: Style<'a>,
    },
    /// Expire everything, now or after a delay.
    FlushAll {
        /// As the client sent it: 0 now, else like an expiration time.
        delay: moneta_item::request::Exptime,
        /// How to answer.
        style: Style<'a>,
    },
    /// `mn`, binary NOOP.
    Noop(Style<'a>),
    /// `version`.
    Version(Style<'a>),
    /// `version WORD`: from here on the connection has what it asks for.
    Grant(Grant),
    /// `verbosity N`.
    Verbosity {
        /// The new level.
        level: u32,
        /// How to answer.
        style: Style<'a>,
    },
    /// `refresh_certs`: certificates are read again.
    RefreshCerts(Style<'a>),
    /// `quit`: close without a word (binary QUIT answers first, QUITQ does not).
    Quit(Style<'a>),
    /// `stats`, with its arguments as sent: empty for the general group.
    Stats {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
        /// How to answer.
        style: Style<'a>,
    },
    /// `cache_memlimit MEBIBYTES`.
    CacheMemlimit {
        /// The new limit in MiB.
        mebibytes: u64,
        /// How to answer.
        style: Style<'a>,
    },
    /// `watch` and its arguments as sent.
    Watch {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
    },
    /// `changes` and its arguments as sent.
    Changes {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
    },
    /// `board` and its arguments as sent: what proxies tell each other.
    Board {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
    },
    /// `lru_crawler metadump|mgdump all|hash|CLASSES`, and the rest of `lru_crawler`.
    LruCrawler {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
        /// How to answer.
        style: Style<'a>,
    },
    /// `lru ...`: accepted where it has a meaning here.
    Lru {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
        /// How to answer.
        style: Style<'a>,
    },
    /// `slabs ...`: there are no slab classes; answered as memcached does with reassignment off.
    Slabs {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
        /// How to answer.
        style: Style<'a>,
    },
    /// `shutdown`, `shutdown graceful`.
    Shutdown {
        /// Everything after the command word, trimmed.
        arguments: &'a [u8],
    },
    /// Binary SASL list, auth or step.
    Sasl {
        /// Which of the three.
        step: SaslStep,
        /// Mechanism name (the key of the packet).
        mechanism: &'a [u8],
        /// Client's data (the value of the packet).
        data: &'a [u8],
        /// How to answer.
        style: BinaryStyle,
    },
}

/// The commands that read, as the counters tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadVerb {
    /// `get`, `gets`, binary GET and kin.
    Get,
    /// `gat`, `gats`, binary GAT and kin.
    GetAndTouch,
    /// `touch`.
    Touch,
    /// `mg`.
    Meta,
}

/// The binary SASL opcodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SaslStep {
    /// 0x20: which mechanisms are there.
    List,
    /// 0x21: first step.
    Auth,
    /// 0x22: further step.
    Step,
}

/// The keys of a read: one, or a text line's tokens, split while they are read so that any number costs no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keys<'a> {
    /// One key.
    One(&'a [u8]),
    /// Keys separated by spaces; each checked by the decoder to be at most [`moneta_item::request::KEY_MAX`] long.
    Line(&'a [u8]),
}

impl<'a> Keys<'a> {
    /// Takes the first key off.
    #[inline]
    pub fn split_first(&mut self) -> Option<&'a [u8]> {
        match *self {
            Self::One(key) => {
                *self = Self::Line(&[]);
                Some(key)
            }
            Self::Line(mut line) => {
                while let [b' ', rest @ ..] = line {
                    line = rest;
                }
                if line.is_empty() {
                    *self = Self::Line(line);
                    return None;
                }
                let (key, rest) = line.split_at(crate::text::line::token_end(line));
                *self = Self::Line(rest);
                Some(key)
            }
        }
    }

    /// Bytes not yet taken.
    #[inline]
    pub fn remaining(&self) -> usize {
        match self {
            Self::One(key) => key.len(),
            Self::Line(line) => line.len(),
        }
    }
}
