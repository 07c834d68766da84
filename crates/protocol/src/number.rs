//! Decimal numbers as memcached reads them: an optional sign, digits to the end of the token, nothing else.

use moneta_item::request::Exptime;

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

/// An expiration time that an item is stored with. What 31 bits do not hold is negative, as it is to memcached, which keeps the
/// low 32 bits: clients write -1 as 4294967295. With `wide`, which a connection asks for by [`Grant::WideTimes`], it is the second that
/// it names.
///
/// [`Grant::WideTimes`]: crate::command::Grant::WideTimes
#[inline]
pub fn exptime_to_store(token: &[u8], wide: bool) -> Option<Exptime> {
    let seconds = signed(token)?;
    let fits = wide || seconds <= i64::from(i32::MAX);
    Some(Exptime(if fits { seconds } else { -1 }))
}

/// An expiration time of any other command: `touch`, `gat`, `flush_all`, flags of meta commands. What 32 bits and a sign do not
/// hold is refused, unless `wide`.
#[inline]
pub fn exptime(token: &[u8], wide: bool) -> Option<Exptime> {
    signed(token).filter(|&seconds| wide || i32::try_from(seconds).is_ok()).map(Exptime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiration_times_of_32_bits_are_negative_when_stored_and_refused_elsewhere() {
        for wide in [b"2147483648", b"4294967295", b"9999999999"] {
            let seconds = signed(wide).unwrap();
            assert_eq!(exptime_to_store(wide, false), Some(Exptime(-1)));
            assert_eq!(exptime_to_store(wide, true), Some(Exptime(seconds)));
            assert_eq!((exptime(wide, false), exptime(wide, true)), (None, Some(Exptime(seconds))));
        }
        for narrow in [&b"2147483647"[..], b"0", b"-1", b"-2147483648"] {
            let seconds = Some(Exptime(signed(narrow).unwrap()));
            assert_eq!((exptime_to_store(narrow, false), exptime(narrow, false)), (seconds, seconds));
        }
        assert_eq!(exptime_to_store(b"99999999999999999999", false), None, "no number of 64 bits");
    }

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
