//! Keys: which number a key has, and how that number is written with a fixed length.

/// What a key is used for. The uses never share a key, so that a value read can always be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeySpace {
    /// Values that are read, stored whole and deleted.
    Value,
    /// Decimal numbers for incr and decr.
    Counter,
    /// Values that append and prepend grow.
    Growing,
    /// Keys that are asked for once and never again.
    Once,
    /// Keys of a trace.
    Trace,
}

impl KeySpace {
    const fn letter(self) -> u8 {
        match self {
            Self::Value => b'k',
            Self::Counter => b'c',
            Self::Growing => b'g',
            Self::Once => b'o',
            Self::Trace => b't',
        }
    }
}

/// One key: its space and its number there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// What it is used for.
    pub space: KeySpace,
    /// Its number.
    pub number: u64,
}

impl Key {
    /// A number that differs for every key, of whatever space.
    #[inline]
    pub fn identity(self) -> u64 {
        self.number ^ (u64::from(self.space.letter()) << 56)
    }
}

/// The longest key of the protocol, in bytes.
pub const MAX_KEY_LENGTH: usize = 250;

/// A key written out: the letter of its space, then its number in hexadecimal, padded with zeros.
#[derive(Debug, Clone)]
pub struct KeyText {
    bytes: [u8; MAX_KEY_LENGTH],
    length: usize,
}

impl KeyText {
    /// A writer of keys that are all `length` bytes long.
    ///
    /// # Panics
    /// When `length` is 0 or above [`MAX_KEY_LENGTH`].
    pub fn new(length: usize) -> Self {
        assert!((1..=MAX_KEY_LENGTH).contains(&length), "a key has 1 to 250 bytes");
        Self { bytes: [b'0'; MAX_KEY_LENGTH], length }
    }

    /// Writes a key; the text is valid until the next call.
    #[inline]
    pub fn write(&mut self, key: Key) -> &[u8] {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let text = &mut self.bytes[..self.length];
        text[0] = key.space.letter();
        let mut number = key.number;
        for digit in text[1..].iter_mut().rev().take(16) {
            *digit = DIGITS[(number & 15) as usize];
            number >>= 4;
        }
        text
    }
}

/// The shortest key length, in bytes, that tells `count` keys apart.
pub fn shortest_length(count: u64) -> usize {
    let highest = count.saturating_sub(1).max(1);
    1 + (64 - highest.leading_zeros() as usize).div_ceil(4)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_the_length_asked_for_and_differ() {
        let mut text = KeyText::new(30);
        let first = text.write(Key { space: KeySpace::Value, number: 0xabc }).to_vec();
        assert_eq!(first, b"k00000000000000000000000000abc");
        assert_ne!(text.write(Key { space: KeySpace::Counter, number: 0xabc }), first);
        assert_eq!(text.write(Key { space: KeySpace::Value, number: 1 }), b"k00000000000000000000000000001");
    }

    #[test]
    fn shortest_length_is_the_shortest_that_keeps_keys_apart() {
        for (count, length) in [(1, 2), (16, 2), (17, 3), (256, 3), (257, 4), (1 << 48, 13)] {
            assert_eq!(shortest_length(count), length, "{count} keys");
        }
    }
}
