//! The value of a version not yet stored: borrowed from where its parts lie, or the digits of a number.

use std::fmt::Write as _;

use moneta_item::{Rest, Value};

/// Digits of the largest 64-bit number.
const DIGITS_MAX: usize = 20;

/// A value in at most two runs, neither of which has been copied yet.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    head: Head<'a>,
    tail: Tail<'a>,
}

/// The first run.
#[derive(Clone, Copy, Debug)]
enum Head<'a> {
    Borrowed(&'a [u8]),
    Number(Digits),
}

/// What follows the first run.
#[derive(Clone, Copy, Debug)]
enum Tail<'a> {
    Borrowed(&'a [u8]),
    /// That many spaces, with which a shorter number fills the place of a longer one.
    Spaces(usize),
}

/// A number's decimal digits.
#[derive(Clone, Copy, Debug)]
struct Digits {
    bytes: [u8; DIGITS_MAX],
    used: u8,
}

impl std::fmt::Write for Digits {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        let used = usize::from(self.used);
        let room = self.bytes.get_mut(used..used + text.len()).ok_or(std::fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len() as u8;
        Ok(())
    }
}

impl<'a> Content<'a> {
    /// A value in one run.
    pub fn whole(value: &'a [u8]) -> Self {
        Self::joined(value, &[])
    }

    /// A value in two runs.
    pub fn joined(first: &'a [u8], second: &'a [u8]) -> Self {
        Self { head: Head::Borrowed(first), tail: Tail::Borrowed(second) }
    }

    /// A number's digits and as many spaces as make up `length`.
    pub fn number(number: u64, length: usize) -> Self {
        let mut digits = Digits { bytes: [0; DIGITS_MAX], used: 0 };
        write!(digits, "{number}").expect("20 digits hold any 64-bit number");
        let spaces = length.saturating_sub(usize::from(digits.used));
        Self { head: Head::Number(digits), tail: Tail::Spaces(spaces) }
    }

    /// The first run.
    #[inline]
    pub fn first(&self) -> &[u8] {
        match &self.head {
            Head::Borrowed(bytes) => bytes,
            Head::Number(digits) => &digits.bytes[..usize::from(digits.used)],
        }
    }

    /// Both runs, for a caller that writes them one after the other; `None` for a number that is filled up with spaces.
    #[inline]
    pub fn runs(&self) -> Option<[&[u8]; 2]> {
        match self.tail {
            Tail::Borrowed(tail) => Some([self.first(), tail]),
            Tail::Spaces(0) => Some([self.first(), &[]]),
            Tail::Spaces(_) => None,
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.first().len() + self.tail.len()
    }

    /// Whether the value has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the whole value to `room`.
    ///
    /// # Panics
    /// If `room` is not exactly as long as the value.
    pub fn write_to(&self, room: &mut [u8]) {
        let first = self.first();
        let (head, tail) = room.split_at_mut(first.len());
        head.copy_from_slice(first);
        match self.tail {
            Tail::Borrowed(bytes) => tail.copy_from_slice(bytes),
            Tail::Spaces(count) => {
                assert_eq!(tail.len(), count, "the room is as long as the value");
                tail.fill(b' ');
            }
        }
    }

    /// The value as stores take and show it.
    pub fn value(&self) -> Value<'_> {
        if self.tail.is_empty() { Value::whole(self.first()) } else { Value::split(self.first(), &self.tail) }
    }
}

impl Rest for Tail<'_> {
    fn len(&self) -> usize {
        match self {
            Self::Borrowed(bytes) => bytes.len(),
            Self::Spaces(count) => *count,
        }
    }

    fn copy_to(&self, out: &mut Vec<u8>) {
        match self {
            Self::Borrowed(bytes) => out.extend_from_slice(bytes),
            Self::Spaces(count) => out.resize(out.len() + count, b' '),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(content: &Content<'_>) -> Vec<u8> {
        let mut room = vec![0; content.len()];
        content.write_to(&mut room);
        assert_eq!(room, content.value().to_vec());
        room
    }

    #[test]
    fn runs_come_out_in_order() {
        assert_eq!(written(&Content::whole(b"")), b"");
        assert_eq!(written(&Content::whole(b"one")), b"one");
        assert_eq!(written(&Content::joined(b"one", b"two")), b"onetwo");
        assert_eq!(written(&Content::joined(b"", b"two")), b"two");
    }

    #[test]
    fn numbers_fill_their_place_with_spaces() {
        assert_eq!(written(&Content::number(0, 1)), b"0");
        assert_eq!(written(&Content::number(99, 5)), b"99   ");
        assert_eq!(written(&Content::number(u64::MAX, 0)), u64::MAX.to_string().as_bytes());
    }
}
