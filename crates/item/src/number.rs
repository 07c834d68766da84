//! Which values `incr` and `decr` take for a number.

/// Longest value, in bytes, that can be taken for a number. memcached refuses values it keeps in chunks, which are those
/// over 512 KiB unless it was told otherwise.
pub const NUMBER_VALUE_MAX: usize = 512 << 10;

/// The number a value holds: decimal digits that make less than 2^64, then nothing, or white space or a zero byte and whatever
/// follows it.
///
/// White space is taken because `decr` itself pads with it, a zero byte because it ends what memcached hands to C's `strtoull`.
/// That also takes leading white space and a sign; no client can mean those.
pub fn parse_number(value: &[u8]) -> Option<u64> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends_well = value.get(digits).is_none_or(|byte| *byte == 0 || is_space(*byte));
    if value.len() > NUMBER_VALUE_MAX || digits == 0 || !ends_well {
        return None;
    }
    value[..digits].iter().try_fold(0u64, |number, digit| number.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// White space as C's `isspace` has it; Rust's own leaves out the vertical tab.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_digits_that_make_less_than_two_to_the_64th() {
        assert_eq!(parse_number(b"0"), Some(0));
        assert_eq!(parse_number(b"007"), Some(7));
        assert_eq!(parse_number(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_number(b"18446744073709551616"), None);
        assert_eq!(parse_number(b"99999999999999999999"), None);
        assert_eq!(parse_number(b"000000000000000000007"), Some(7));
        assert_eq!(parse_number(&[b"0".repeat(1000).as_slice(), b"12"].concat()), Some(12));
        assert_eq!(parse_number(&b"9".repeat(1000)), None);
    }

    #[test]
    fn takes_what_white_space_ends() {
        assert_eq!(parse_number(b"9 "), Some(9));
        assert_eq!(parse_number(b"9    "), Some(9));
        assert_eq!(parse_number(b"9\x0b"), Some(9));
        assert_eq!(parse_number(b"5 abc"), Some(5));
    }

    #[test]
    fn takes_what_a_zero_byte_ends() {
        assert_eq!(parse_number(b"0\0\x82<*n"), Some(0));
        assert_eq!(parse_number(b"12\0"), Some(12));
        assert_eq!(parse_number(b"\x0012"), None);
    }

    #[test]
    fn refuses_everything_else() {
        for text in [&b""[..], b" ", b"abc", b"5a", b"0x10", b"-5", b"1.5", b"5,0"] {
            assert_eq!(parse_number(text), None, "{text:?}");
        }
    }
}
