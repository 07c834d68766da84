//! Until when a certificate holds. What verifies certificates keeps that to itself.

/// Tags of DER (X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// Of the version, which may be there.
const EXPLICIT_0: u8 = 0xa0;
const DAY: u64 = 86_400;

/// The Unix second up to which a certificate holds (`notAfter`: RFC 5280, 4.1); none if it cannot be read.
pub(super) fn not_after(certificate: &[u8]) -> Option<u64> {
    let (_, certificate, _) = element(certificate)?;
    let (_, mut rest, _) = element(certificate)?;
    if rest.first() == Some(&EXPLICIT_0) {
        rest = element(rest)?.2;
    }
    // Its number, the algorithm of its signature, and who gave it.
    for tag in [INTEGER, SEQUENCE, SEQUENCE] {
        let (found, _, after) = element(rest)?;
        rest = if found == tag { after } else { return None };
    }
    let (_, validity, _) = element(rest)?;
    let (_, _, after) = element(validity)?;
    let (tag, time, _) = element(after)?;
    seconds(tag, time)
}

/// The first element: its tag, its contents, and what comes after it.
fn element(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, mut rest) = rest.split_first()?;
    let mut length = usize::from(first);
    if first & 0x80 != 0 {
        let digits = usize::from(first & 0x7f);
        let (head, after) = rest.split_at_checked(digits)?;
        length = head.iter().try_fold(0usize, |sum, &digit| sum.checked_mul(256)?.checked_add(digit.into()))?;
        rest = after;
    }
    let (contents, after) = rest.split_at_checked(length)?;
    Some((tag, contents, after))
}

/// `YYMMDDhhmmssZ` or `YYYYMMDDhhmmssZ` (RFC 5280, 4.1.2.5).
fn seconds(tag: u8, text: &[u8]) -> Option<u64> {
    let digits = text.strip_suffix(b"Z")?;
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |from: usize, length: usize| -> Option<u64> {
        Some(digits.get(from..from + length)?.iter().fold(0, |sum, digit| sum * 10 + u64::from(digit - b'0')))
    };
    let (year, at) = match tag {
        UTC_TIME => (number(0, 2).map(|year| if year < 50 { 2000 + year } else { 1900 + year })?, 2),
        GENERALIZED_TIME => (number(0, 4)?, 4),
        _ => return None,
    };
    let (month, day) = (number(at, 2)?, number(at + 2, 2)?);
    let (hour, minute, second) = (number(at + 4, 2)?, number(at + 6, 2)?, number(at + 8, 2)?);
    let days = days_before(year, month)?.checked_add(day.checked_sub(1)?)?;
    Some(days * DAY + hour * 3600 + minute * 60 + second)
}

/// Days from 1970 on before the first of a month.
fn days_before(year: u64, month: u64) -> Option<u64> {
    if !(1..=12).contains(&month) || year < 1970 {
        return None;
    }
    // Years begin in March, so that the odd day is a year's last.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let leap_days = year / 4 - year / 100 + year / 400;
    (year * 365 + leap_days + (month * 153 + 2) / 5).checked_sub(719_468)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, UNIX_EPOCH};

    use moneta_certificates::{Authority, Wanted};
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;

    use super::*;

    #[test]
    fn times_are_read_in_both_forms() {
        assert_eq!(seconds(UTC_TIME, b"700101000000Z"), Some(0));
        assert_eq!(seconds(UTC_TIME, b"261124150000Z"), Some(1_795_532_400));
        assert_eq!(seconds(GENERALIZED_TIME, b"20500101000000Z"), Some(2_524_608_000));
        assert_eq!(seconds(GENERALIZED_TIME, b"20240229235959Z"), Some(1_709_251_199));
        assert_eq!(seconds(UTC_TIME, b"2611241500"), None);
        assert_eq!(seconds(UTC_TIME, b"261324150000Z"), None);
    }

    #[test]
    fn the_end_of_a_certificate_is_found_and_nonsense_has_none() {
        let end = UNIX_EPOCH + Duration::from_secs(1_935_792_000);
        let wanted = Wanted { holds: Some((UNIX_EPOCH, end)), ..Wanted::hosts(["a.example"]) };
        let issued = Authority::new("test").unwrap().issue(&wanted).unwrap();
        let whole = CertificateDer::from_pem_slice(issued.certificate.as_bytes()).unwrap();
        assert_eq!(not_after(&whole), Some(1_935_792_000));
        for end in 0..whole.len() {
            assert_eq!(not_after(&whole[..end]), None);
        }
    }
}
