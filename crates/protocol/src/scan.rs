//! Finding the end of a token: eight bytes at a time, without a call, since keys are short.

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH: u64 = u64::from_ne_bytes([0x80; 8]);
/// One more than the space: bytes below this end a token or need a closer look.
const BOUND: u64 = ONES * (b' ' as u64 + 1);

/// Index of the first byte that is a space or a control byte below it; the length where there is none.
///
/// "Determine if a word has a byte less than n" from Sean Anderson's Bit Twiddling Hacks; in little-endian order the lowest
/// bit set is exact.
// Part of the shortest way of a get, see `text::fast`.
#[inline(always)]
pub fn find_at_most_space(bytes: &[u8]) -> usize {
    let mut index = 0;
    while let Some(chunk) = bytes[index..].first_chunk::<8>() {
        let word = u64::from_le_bytes(*chunk);
        let found = word.wrapping_sub(BOUND) & !word & HIGH;
        if found != 0 {
            return index + (found.trailing_zeros() / 8) as usize;
        }
        index += 8;
    }
    while index < bytes.len() && bytes[index] > b' ' {
        index += 1;
    }
    index
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_what_a_loop_over_bytes_finds() {
        for byte in 0..=255u8 {
            for position in 0..20 {
                let mut bytes = [0xe9u8; 20];
                bytes[19] = b'z';
                bytes[position] = byte;
                let expected = bytes.iter().position(|&byte| byte <= b' ').unwrap_or(bytes.len());
                assert_eq!(find_at_most_space(&bytes), expected, "{byte} at {position}");
                assert_eq!(find_at_most_space(&bytes[..position]), position);
            }
        }
    }
}
