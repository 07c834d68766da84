//! What a server answers, free of its protocol.

use std::borrow::Cow;

use moneta_item::{ErrorCode, Expiry, ItemMeta, Version};

/// A decoding step.
#[derive(Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// The reply is not all there.
    Partial {
        /// Bytes from the start of the reply with which it is worth trying again.
        needed: usize,
    },
    /// A whole reply.
    Answer {
        /// What it says.
        answer: Answer<'a>,
        /// Its length in bytes.
        consumed: usize,
    },
    /// An item whose value is longer than the reader takes.
    Oversized {
        /// Length of the reply in bytes, the value included: to be thrown away as it comes.
        skip: usize,
    },
}

/// What a server answered.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer<'a> {
    /// A read found an item.
    Hit(Seen<'a>),
    /// A read found nothing.
    Miss,
    /// Stored.
    Stored {
        /// CAS value of the new version; 0 where the protocol does not tell.
        cas: u64,
    },
    /// The write's condition did not hold.
    NotStored,
    /// The CAS value to compare with is not the item's.
    Exists,
    /// By version: something newer is there, or was deleted or flushed.
    Superseded {
        /// The version that won; [`Version::ZERO`] where the server does not tell.
        by: Version,
    },
    /// By version: this very item is there.
    Unchanged {
        /// Its version.
        cas: u64,
    },
    /// Nothing there to change.
    NotFound,
    /// Deleted, or marked.
    Deleted,
    /// A number after arithmetic.
    Number {
        /// Its value.
        number: u64,
        /// CAS value of the item; 0 where the protocol does not tell.
        cas: u64,
        /// Seconds that the item had left to live, -1 for ever; `None` where the protocol does not tell.
        ttl: Option<i64>,
    },
    /// Done.
    Done,
    /// The newest version that the server has made or seen; 0: it does not tell.
    Newest(Version),
    /// Statistics, by name.
    Statistics(Vec<(String, String)>),
    /// Arithmetic on what is no number.
    NonNumeric,
    /// The value is longer than the server takes. What the key held before is gone.
    TooLarge,
    /// The server has no room.
    OutOfMemory,
    /// The server would not or could not.
    Refused(Refusal, String),
}

/// Whose fault the server says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// `ERROR`: it does not know the command.
    Unknown,
    /// `CLIENT_ERROR`: it does not understand the request.
    Client,
    /// `SERVER_ERROR`: it failed.
    Server,
    /// `SERVER_ERROR` of a Moneta that says what a peer understands. The words are without the code.
    Told(ErrorCode),
}

/// An item as a reply shows it. What the protocol does not tell is at its default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen<'a> {
    /// The value, as it lies in the reply; empty where only its length was asked for.
    pub value: Cow<'a, [u8]>,
    /// Length of the value in bytes.
    pub size: usize,
    /// Opaque client flags.
    pub flags: u32,
    /// CAS value; 0 where a brief read shows the version only.
    pub cas: u64,
    /// Seconds it had left to live before this request, -1 for ever; `None` where the protocol does not tell.
    pub ttl: Option<i64>,
    /// Its version, 0 if it has none; `None` where the server does not tell.
    pub version: Option<Version>,
    /// When it was to die before this request; `None` where the server does not tell.
    pub expiry: Option<Expiry>,
    /// Seconds since it was last read or written.
    pub idle: Option<u32>,
    /// It had been read before.
    pub fetched: bool,
    /// Marked as stale.
    pub stale: bool,
    /// Another client has won its recache.
    pub token_sent: bool,
    /// This request has won its recache.
    pub won: bool,
}

impl Answer<'_> {
    /// The answer without the reply that it was read from.
    pub fn into_owned(self) -> Answer<'static> {
        match self {
            Self::Hit(seen) => Answer::Hit(seen.into_owned()),
            Self::Miss => Answer::Miss,
            Self::Newest(version) => Answer::Newest(version),
            Self::Stored { cas } => Answer::Stored { cas },
            Self::NotStored => Answer::NotStored,
            Self::Exists => Answer::Exists,
            Self::Superseded { by } => Answer::Superseded { by },
            Self::Unchanged { cas } => Answer::Unchanged { cas },
            Self::NotFound => Answer::NotFound,
            Self::Deleted => Answer::Deleted,
            Self::Number { number, cas, ttl } => Answer::Number { number, cas, ttl },
            Self::Done => Answer::Done,
            Self::Statistics(list) => Answer::Statistics(list),
            Self::NonNumeric => Answer::NonNumeric,
            Self::TooLarge => Answer::TooLarge,
            Self::OutOfMemory => Answer::OutOfMemory,
            Self::Refused(refusal, words) => Answer::Refused(refusal, words),
        }
    }
}

impl Seen<'_> {
    /// The item without the reply that it was read from.
    pub fn into_owned(self) -> Seen<'static> {
        Seen { value: Cow::Owned(self.value.into_owned()), ..self }
    }

    /// All but key and value at `now`, in Unix seconds, as if the request had changed nothing. An expiration time that the
    /// protocol does not tell becomes never, an unknown last access `now`.
    pub fn meta(&self, now: u32) -> ItemMeta {
        let expiry = self.expiry.unwrap_or_else(|| expiry(self.ttl, now));
        ItemMeta {
            flags: self.flags,
            cas: if self.cas == 0 { self.version.map_or(0, |version| version.0) } else { self.cas },
            unversioned: self.version.is_none_or(|version| version == Version::ZERO),
            expiry,
            expiry_before: expiry,
            last_access: now.saturating_sub(self.idle.unwrap_or(0)),
            fetched: self.fetched,
            stale: self.stale,
            token_sent: self.token_sent,
            won: self.won,
        }
    }
}

/// The moment at which an item dies that has `ttl` seconds left at `now`.
pub fn expiry(ttl: Option<i64>, now: u32) -> Expiry {
    match ttl {
        Some(ttl) if ttl >= 0 => Expiry(now.saturating_add(u32::try_from(ttl).unwrap_or(u32::MAX)).max(1)),
        _ => Expiry::NEVER,
    }
}
