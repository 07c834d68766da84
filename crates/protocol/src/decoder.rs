//! From bytes to commands: picks the protocol, keeps the stream in step, remembers how far a partial line was searched.

use moneta_item::request::Exptime;

use crate::command::Command;
use crate::refusal::Refusal;
use crate::{binary, text};

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
    protocol: Protocol,
    /// Largest value, in bytes.
    item_max: usize,
    /// Bytes at the front of the input that were searched for a line end without finding one.
    pub(crate) searched: usize,
    /// Bytes still to be thrown away.
    swallow: u64,
    /// The line being executed in parts.
    long_get: Option<LongGet>,
    /// Only what leads to a log-in is decoded (binary).
    login_required: bool,
    /// Expiration times in text have 64 bits.
    wide_times: bool,
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
            refuses_chosen_cas: false,
        }
    }

    /// Most bytes that [`Decoded::Partial`] ever asks for, where the largest value has `item_max` bytes and input comes in
    /// pieces of up to 64 KiB: a front (a line of text, or header, extras and key of a packet) and a value with its line end.
    pub const fn needed_max(item_max: usize) -> usize {
        let value = if item_max > binary::SASL_DATA_MAX { item_max } else { binary::SASL_DATA_MAX };
        text::WHOLE_LINE_MAX + value + 2
    }

    /// The protocol, once known.
    pub fn protocol(&self) -> Protocol {
        self.protocol
    }

    /// Decodes the front of `input` if it is one of the commonest commands in its plainest form; else changes nothing, and
    /// [`Decoder::decode`] has the answer. Both agree wherever this one answers.
    #[inline]
    pub fn shortcut<'a>(&mut self, input: &'a [u8]) -> Option<Shortcut<'a>> {
        let between_commands = self.searched == 0 && self.swallow == 0 && self.long_get.is_none();
        if self.protocol != Protocol::Text || !between_commands {
            return None;
        }
        text::fast::decode(input, self.item_max)
    }

    /// Decodes the front of `input`, which is what was not consumed before and whatever came since.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Decoded<'a> {
        let Some(&first) = input.first() else {
            return Decoded::Partial { needed: 1 };
        };
        if self.swallow > 0 {
            return self.throw_away(input);
        }
        match self.protocol {
            Protocol::Text => text::decode(self, input),
            Protocol::Binary => binary::decode(self, input),
            Protocol::Any => {
                self.protocol = if first == binary::REQUEST_MAGIC { Protocol::Binary } else { Protocol::Text };
                self.decode(input)
            }
        }
    }

    /// Refuses the request at the front of `input` for want of memory, as one whose value is too large, and swallows its value;
    /// `None` if it has no value to refuse. For a request whose front [`Decoder::decode`] found to be all there.
    pub fn refuse_value<'a>(&mut self, input: &'a [u8]) -> Option<(Refusal<'a>, usize)> {
        let (item_max, swallow) = (std::mem::replace(&mut self.item_max, 0), self.swallow);
        let decoded = self.decode(input);
        self.item_max = item_max;
        match decoded {
            Decoded::Refused { refusal, consumed } if refusal.too_large => {
                Some((refusal.for_want_of_memory(), consumed))
            }
            _ => {
                self.swallow = swallow;
                None
            }
        }
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

    pub(crate) fn take_wide_times(&mut self) {
        self.wide_times = true;
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

    #[cold]
    fn throw_away<'a>(&mut self, input: &[u8]) -> Decoded<'a> {
        let consumed = usize::try_from(self.swallow).map_or(input.len(), |swallow| swallow.min(input.len()));
        self.swallow -= consumed as u64;
        Decoded::Swallowed { consumed }
    }
}
