//! What cannot be executed: the error to answer, and what follows from it for the stream.

use moneta_item::Version;

use crate::command::BinaryStyle;
use crate::status::Status;

/// A request that the decoder refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refusal<'a> {
    /// What to answer; `None` where `noreply` hides it.
    pub message: Option<Message>,
    /// A key whose value is to be dropped: an over-large write must not leave the old value behind.
    pub forget: Option<Forget<'a>>,
    /// Close once the answer is written: what follows cannot be told apart from the refused request.
    pub close: bool,
    /// The value is over the limit.
    pub too_large: bool,
}

/// A key whose value is to be dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forget<'a> {
    /// The key, as sent.
    pub key: &'a [u8],
    /// It was sent as base64.
    pub base64: bool,
    /// The write had a version: what is older goes. Other copies may take the value, so it does not count as deleted itself.
    pub older_than: Option<Version>,
}

/// An error in the words of its protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// A line of text, without its end.
    Text(&'static str),
    /// A binary status.
    Binary(BinaryStyle, Status),
}

impl<'a> Refusal<'a> {
    pub(crate) const fn text(line: &'static str) -> Self {
        Self { message: Some(Message::Text(line)), forget: None, close: false, too_large: false }
    }

    pub(crate) const fn binary(style: BinaryStyle, status: Status) -> Self {
        Self { message: Some(Message::Binary(style, status)), forget: None, close: false, too_large: false }
    }

    pub(crate) const fn then_close(mut self) -> Self {
        self.close = true;
        self
    }

    pub(crate) const fn hidden_if(mut self, hidden: bool) -> Self {
        if hidden {
            self.message = None;
        }
        self
    }

    /// The same for a value that there is no memory for, though it is within the limit.
    pub(crate) const fn for_want_of_memory(mut self) -> Self {
        self.too_large = false;
        self.message = match self.message {
            Some(Message::Text(_)) => Some(Message::Text(lines::OUT_OF_MEMORY)),
            Some(Message::Binary(style, _)) => Some(Message::Binary(style, Status::OutOfMemory)),
            None => None,
        };
        self
    }

    pub(crate) const fn forgetting(mut self, key: &'a [u8], base64: bool) -> Self {
        self.forget = Some(Forget { key, base64, older_than: None });
        self
    }

    pub(crate) const fn only_older_than(mut self, version: Version) -> Self {
        if let Some(forget) = &mut self.forget {
            forget.older_than = Some(version);
        }
        self
    }

    pub(crate) const fn over_the_limit(mut self) -> Self {
        self.too_large = true;
        self
    }
}

/// Lines that memcached answers errors with.
pub mod lines {
    /// No such command, or not in this form.
    pub const ERROR: &str = "ERROR";
    /// A key, number or length that is none.
    pub const BAD_FORMAT: &str = "CLIENT_ERROR bad command line format";
    /// The data block does not end where it should.
    pub const BAD_DATA_CHUNK: &str = "CLIENT_ERROR bad data chunk";
    /// The value is over the limit.
    pub const TOO_LARGE: &str = "SERVER_ERROR object too large for cache";
    /// No memory, and evictions are off.
    pub const OUT_OF_MEMORY: &str = "SERVER_ERROR out of memory storing object";
    /// `incr` by something that is no number.
    pub const BAD_DELTA: &str = "CLIENT_ERROR invalid numeric delta argument";
    /// `incr` of something that is no number.
    pub const NON_NUMERIC: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";
    /// `touch` or `gat` with an expiration time that is none.
    pub const BAD_EXPTIME: &str = "CLIENT_ERROR invalid exptime argument";
    /// `delete` with other than a key and a number.
    pub const DELETE_USAGE: &str = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    /// A meta flag given twice.
    pub const DUPLICATE_FLAG: &str = "CLIENT_ERROR duplicate flag";
    /// A meta flag that does not exist.
    pub const INVALID_FLAG: &str = "CLIENT_ERROR invalid flag";
    /// A meta flag that does not exist, in `md` and `ma`.
    pub const INVALID_OR_DUPLICATE_FLAG: &str = "CLIENT_ERROR invalid or duplicate flag";
    /// A meta flag whose argument is no number.
    pub const BAD_TOKEN: &str = "CLIENT_ERROR bad token in command line format";
    /// Meta `O` with more than 31 bytes after it.
    pub const OPAQUE_TOO_LONG: &str = "CLIENT_ERROR opaque token too long";
    /// More than 20 tokens on a meta line.
    pub const TOO_MANY_FLAGS: &str = "CLIENT_ERROR options flags are too long";
    /// A key that is not base64 under meta `b`.
    pub const BAD_BASE64: &str = "CLIENT_ERROR error decoding key";
    /// Meta `M` with other than one byte after it.
    pub const BAD_MODE_LENGTH: &str = "CLIENT_ERROR incorrect length for M token";
    /// `ms` with a mode that does not exist.
    pub const BAD_SET_MODE: &str = "CLIENT_ERROR invalid mode for ms M token";
    /// `ma` with a mode that does not exist.
    pub const BAD_ARITHMETIC_MODE: &str = "CLIENT_ERROR invalid mode for ma M token";
    /// Meta `J` without a number.
    pub const BAD_INITIAL: &str = "CLIENT_ERROR invalid numeric initial value";
    /// Meta `E` where clients must not choose CAS values.
    pub const NO_CHOSEN_CAS: &str = "CLIENT_ERROR CAS values cannot be chosen on this server";
    /// Meta `V` with 0, which stands for items without a version.
    pub const BAD_VERSION: &str = "CLIENT_ERROR a version is not 0";
    /// Meta `V` beside a flag that contradicts it.
    pub const NOT_WITH_VERSION: &str = "CLIENT_ERROR flag does not go with a version";
    /// Meta `D` without a number.
    pub const BAD_META_DELTA: &str = "CLIENT_ERROR invalid numeric delta value";
}
