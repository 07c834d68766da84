//! Decimal numbers as memcached reads them: an optional sign, digits to the end of the token, nothing else.

/// An unsigned number; `+` may stand before it. `None` for anything else and for what does not fit.
#[inline]
pub fn unsigned(token: &[u8]) -> Option<u64> {
    let digits = match token {
        [b'+', digits @ ..] => digits,
        digits => digits,
    };
    if digits.is_empty() || digits.len() > 20 {
        return None;
    }
    let mut number: u64 = 0;
    for &byte in digits {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        number = number.checked_mul(10)?.checked_add(u64::from(digit))?;
    }
    Some(number)
}

/// An unsigned number of 32 bits.
#[inline]
pub fn unsigned_32(token: &[u8]) -> Option<u32> {
    unsigned(token).and_then(|number| u32::try_from(number).ok())
}

/// A number that may have a sign.
#[inline]
pub fn signed(token: &[u8]) -> Option<i64> {
    match token {
        [b'-', b'+', ..] => None,
        [b'-', digits @ ..] => unsigned(digits).and_then(|number| 0i64.checked_sub_unsigned(number)),
        _ => unsigned(token).and_then(|number| i64::try_from(number).ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn takes_whole_decimal_tokens_only() {
        assert_eq!(unsigned(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(unsigned(b"+7"), Some(7));
        for bad in [&b"18446744073709551616"[..], b"", b"+", b"-1", b"1x", b"x1", b"0x1", b"1 ", b"++1"] {
            assert_eq!(unsigned(bad), None, "{bad:?}");
        }
        assert_eq!(unsigned_32(b"4294967295"), Some(u32::MAX));
        assert_eq!(unsigned_32(b"4294967296"), None);
        assert_eq!(signed(b"-1"), Some(-1));
        assert_eq!(signed(b"9223372036854775808"), None);
        assert_eq!(signed(b"-9223372036854775808"), Some(i64::MIN));
        assert_eq!(signed(b"-+1"), None);
    }
}
