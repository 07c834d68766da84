//! What is known of a connection's stream between two commands, and what its front was found to hold.

use moneta_item::request::Exptime;

use crate::command::{Command, Grant};
use crate::refusal::Refusal;

/// What the front of the input holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decoded<'a> {
    /// A command to execute.
    Command {
        /// The command; it borrows from the input.
        command: Command<'a>,
        /// Bytes it takes.
        consumed: usize,
    },
    /// Not all there yet.
    Partial {
        /// Bytes that must be there before decoding again makes sense; always more than are there.
        needed: usize,
    },
    /// Cannot be executed.
    Refused {
        /// What to answer and do.
        refusal: Refusal<'a>,
        /// Bytes it takes.
        consumed: usize,
    },
    /// Bytes of a refused value, thrown away.
    Swallowed {
        /// How many; at least one.
        consumed: usize,
    },
    /// Not a protocol known here, or a line without end: close without a word.
    Close,
}

/// The two commands that most requests are, in their plainest form and complete; small enough to be kept in registers,
/// which a [`Command`] is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shortcut<'a> {
    /// `get KEY`.
    Get {
        /// The key.
        key: &'a [u8],
        /// Bytes the command takes.
        consumed: usize,
    },
    /// `set KEY FLAGS EXPTIME LENGTH [noreply]`.
    Set {
        /// The key.
        key: &'a [u8],
        /// The data block, without its line end.
        value: &'a [u8],
        /// Client flags.
        flags: u32,
        /// Expiration time.
        exptime: Exptime,
        /// Say nothing.
        noreply: bool,
        /// Bytes the command takes.
        consumed: usize,
    },
}

/// Which protocols a decoder takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocol {
    /// The first byte of the connection picks one: 0x80 binary, anything else text.
    #[default]
    Any,
    /// Classic text and meta.
    Text,
    /// Binary.
    Binary,
}

/// A `get` line that is executed in parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongGet {
    /// `gets`, `gats`.
    pub with_cas: bool,
    /// `gat`, `gats`.
    pub touch: Option<Exptime>,
    /// Bytes up to and with the end of the line, where it has been seen and its keys checked.
    pub checked: Option<usize>,
}

/// Decodes one connection's stream.
#[derive(Debug)]
pub struct Decoder {
    pub(crate) protocol: Protocol,
    /// Largest value, in bytes.
    pub(crate) item_max: usize,
    /// Bytes at the front of the input that were searched for a line end without finding one.
    pub(crate) searched: usize,
    /// Bytes still to be thrown away.
    pub(crate) swallow: u64,
    /// The line being executed in parts.
    pub(crate) long_get: Option<LongGet>,
    /// Only what leads to a log-in is decoded (binary).
    login_required: bool,
    /// Expiration times in text have 64 bits.
    wide_times: bool,
    /// Failures are told with their codes.
    error_codes: bool,
    /// Clients must not choose CAS values.
    refuses_chosen_cas: bool,
}

impl Decoder {
    /// A decoder for a new connection that takes values of up to `item_max` bytes.
    pub fn new(protocol: Protocol, item_max: usize) -> Self {
        Self {
            protocol,
            item_max,
            searched: 0,
            swallow: 0,
            long_get: None,
            login_required: false,
            wide_times: false,
            error_codes: false,
            refuses_chosen_cas: false,
        }
    }

    /// The protocol, once known.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Leaves the `get` line of the last command unfinished. The caller takes back the last `rest` bytes of what that
    /// command consumed, which begin with the keys it has not executed; the next call decodes them again. `more` is the
    /// one of the command's style.
    pub fn resume_get(&mut self, with_cas: bool, touch: Option<Exptime>, more: bool, rest: usize) {
        let checked = if more { None } else { Some(rest) };
        self.long_get = Some(LongGet { with_cas, touch, checked });
    }

    /// Refuses every binary request but SASL and VERSION, before its value is waited for; until called with false.
    pub fn require_login(&mut self, required: bool) {
        self.login_required = required;
    }

    /// Refuses meta `E`, by which a client chooses a CAS value. The binary protocol has no such request.
    pub fn refuse_chosen_cas(&mut self, refuse: bool) {
        self.refuses_chosen_cas = refuse;
    }

    pub(crate) fn refuses_chosen_cas(&self) -> bool {
        self.refuses_chosen_cas
    }

    pub(crate) fn login_required(&self) -> bool {
        self.login_required
    }

    pub(crate) fn wide_times(&self) -> bool {
        self.wide_times
    }

    pub(crate) fn error_codes(&self) -> bool {
        self.error_codes
    }

    pub(crate) fn grant(&mut self, grant: Grant) {
        match grant {
            Grant::WideTimes => self.wide_times = true,
            Grant::ErrorCodes => self.error_codes = true,
        }
    }

    pub(crate) fn item_max(&self) -> usize {
        self.item_max
    }

    pub(crate) fn swallow(&mut self, bytes: u64) {
        self.swallow = bytes;
    }

    pub(crate) fn long_get(&self) -> Option<LongGet> {
        self.long_get
    }

    pub(crate) fn set_long_get(&mut self, long_get: Option<LongGet>) {
        self.long_get = long_get;
    }
}
