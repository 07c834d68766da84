//! From bytes to commands: picks the protocol, keeps the stream in step, remembers how far a partial line was searched.

use crate::refusal::Refusal;
pub use crate::stream::{Decoded, Decoder, LongGet, Protocol, Shortcut};
use crate::{binary, text};

impl Decoder {
    /// Most bytes that [`Decoded::Partial`] ever asks for, where the largest value has `item_max` bytes and input comes in
    /// pieces of up to 64 KiB: a front (a line of text, or header, extras and key of a packet) and a value with its line end.
    pub const fn needed_max(item_max: usize) -> usize {
        let value = if item_max > binary::SASL_DATA_MAX { item_max } else { binary::SASL_DATA_MAX };
        text::WHOLE_LINE_MAX + value + 2
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

    #[cold]
    fn throw_away<'a>(&mut self, input: &[u8]) -> Decoded<'a> {
        let consumed = usize::try_from(self.swallow).map_or(input.len(), |swallow| swallow.min(input.len()));
        self.swallow -= consumed as u64;
        Decoded::Swallowed { consumed }
    }
}
