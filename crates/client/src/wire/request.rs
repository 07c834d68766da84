//! What can be asked of a server.

use moneta_item::request::{Arithmetic, Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_item::{Newer, Version};

/// A request, borrowed.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// What is asked.
    pub verb: Verb,
    /// Of which key; empty where none is concerned.
    pub key: &'a [u8],
    /// The value to write; empty where none is.
    pub value: &'a [u8],
}

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// An item, with side effects.
    Read(Read),
    /// An item, with as few side effects as the protocol has a form for: none in meta, but that an item marked as stale gives
    /// away its recache; in text and binary a plain read.
    Peek {
        /// Whether the value is wanted, and not only its length. Text and binary always send it.
        value: bool,
    },
    /// Store.
    Write(Write),
    /// Store if that is newer than what is there.
    PutNewer(Newer),
    /// Delete or mark.
    Delete(Delete),
    /// Delete what is older than a version.
    Bury(Version),
    /// Add or subtract.
    Arithmetic(Arithmetic),
    /// Drop everything, now or then.
    Flush(Exptime),
    /// Take a flush that was commanded elsewhere.
    Floor {
        /// When it was commanded.
        version: Version,
        /// The Unix second it takes effect.
        second: u32,
    },
    /// The newest version that the server has made or seen.
    Newest,
    /// All general statistics.
    Statistics,
    /// Nothing; the answer says that all before it is answered.
    Noop,
}

/// A read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// Its options. `claim` is not sent: every meta read claims, no other does.
    pub retrieve: Retrieve,
    /// Whether the value is wanted, and not only its length. Text and binary always send it.
    pub value: bool,
}

impl Read {
    /// Whether it neither touches nor creates the item, nor asks for a recache before the item ends. It may still win the recache
    /// of a stale item.
    #[inline]
    pub(super) fn is_plain(&self) -> bool {
        let Retrieve { touch, vivify, recache, .. } = &self.retrieve;
        touch.is_none() && vivify.is_none() && recache.is_none()
    }
}

/// What has to be known of a request to understand its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expect {
    pub(super) kind: Kind,
    /// The number that the reply must carry; for a text read a hash of the key it must name.
    pub(super) number: u32,
}

impl Expect {
    /// Whether a value went out with the request.
    pub fn brings_value(&self) -> bool {
        matches!(self.kind, Kind::Write { .. } | Kind::PutNewer)
    }
}

/// How a reply is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read { value: bool },
    Write { mode: WriteMode, compared: bool },
    PutNewer,
    Delete,
    Bury,
    Arithmetic,
    Flush,
    Floor,
    Newest,
    Statistics,
    Noop,
}

impl Verb {
    pub(super) fn kind(&self) -> Kind {
        match self {
            Self::Read(Read { value, .. }) | Self::Peek { value } => Kind::Read { value: *value },
            Self::Write(write) => Kind::Write { mode: write.mode, compared: write.compare.is_some() },
            Self::PutNewer(_) => Kind::PutNewer,
            Self::Delete(_) => Kind::Delete,
            Self::Bury(_) => Kind::Bury,
            Self::Arithmetic(_) => Kind::Arithmetic,
            Self::Flush(_) => Kind::Flush,
            Self::Floor { .. } => Kind::Floor,
            Self::Newest => Kind::Newest,
            Self::Statistics => Kind::Statistics,
            Self::Noop => Kind::Noop,
        }
    }

    /// Whether asking twice is as good as asking once: nothing is changed but when the item was read.
    pub fn is_idempotent(&self) -> bool {
        match self {
            Self::Read(read) => read.is_plain() && !read.retrieve.claim,
            Self::Peek { .. } | Self::Newest | Self::Statistics | Self::Noop => true,
            // Those by version end in one state however often they come, but not in one answer.
            Self::PutNewer(_) | Self::Bury(_) | Self::Floor { .. } => false,
            Self::Write(_) | Self::Delete(_) | Self::Arithmetic(_) | Self::Flush(_) => false,
        }
    }
}
