//! Lines and the words on them.

use moneta_item::ErrorCode;

use super::answer::{Answer, Decoded, Refusal};
use super::failure::Broken;
use super::limits::LINE_MAX;

/// Bytes of a line that are searched eight at a time.
const SHORT_LINE: usize = 96;

/// The next word of `line`, which loses it.
pub fn next<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = line.iter().position(|byte| *byte != b' ')?;
    let rest = &line[start..];
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    *line = &rest[end..];
    Some(&rest[..end])
}

/// A flag of a reply: a letter, and what follows it.
pub(super) struct Flag<'a> {
    pub(super) letter: u8,
    pub(super) argument: &'a [u8],
    /// The argument as [`number`] reads it.
    pub(super) number: Option<u64>,
}

/// The next flag of `line`, which loses it.
#[inline]
pub(super) fn next_flag<'a>(line: &mut &'a [u8]) -> Option<Flag<'a>> {
    let mut rest = *line;
    let letter = loop {
        let (first, behind) = rest.split_first()?;
        rest = behind;
        if *first != b' ' {
            break *first;
        }
    };
    let (value, digits) = match *rest {
        // Most have one digit.
        [digit @ b'0'..=b'9', b' ', ..] => (u64::from(digit - b'0'), 1),
        _ => digits(rest),
    };
    let is_number = (1..20).contains(&digits) && rest.get(digits).is_none_or(|byte| *byte == b' ');
    let (number, end) = if is_number { (Some(value), digits) } else { word(rest) };
    *line = &rest[end..];
    Some(Flag { letter, argument: &rest[..end], number })
}

/// The number that the first word of `rest` is, if it is one, and the word's length.
#[cold]
fn word(rest: &[u8]) -> (Option<u64>, usize) {
    let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
    (number(&rest[..end]), end)
}

/// The number that the digits at the front of `word` make, and how many these are. Eight at a time: versions have nineteen. Wrong
/// if there are more.
#[inline]
fn digits(word: &[u8]) -> (u64, usize) {
    const ZEROS: u64 = u64::from_le_bytes([b'0'; 8]);
    let (mut value, mut count) = (0u64, 0);
    while let Some(chunk) = word[count..].first_chunk::<8>() {
        let chunk = u64::from_le_bytes(*chunk);
        // All upper halves are that of '0', and so they are with 6 more: no byte is above '9'.
        let above = chunk.wrapping_add(u64::from_le_bytes([6; 8]));
        if (chunk | above) & u64::from_le_bytes([0xf0; 8]) != ZEROS || chunk & ZEROS != ZEROS {
            break;
        }
        // Neighbours are put together: to pairs, to fours, to eight. The first digit is in the lowest byte.
        let pairs = (chunk - ZEROS).wrapping_mul(10 * 256 + 1) >> 8 & 0x00ff_00ff_00ff_00ff;
        let fours = pairs.wrapping_mul(100 * 65_536 + 1) >> 16 & 0x0000_ffff_0000_ffff;
        let eight = fours.wrapping_mul((10_000 << 32) + 1) >> 32;
        value = value.wrapping_mul(100_000_000).wrapping_add(eight);
        count += 8;
    }
    for byte in &word[count..] {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        value = value.wrapping_mul(10).wrapping_add(digit.into());
        count += 1;
    }
    (value, count)
}

/// A decimal number of plain digits.
pub fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    word.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
    })
}

/// The first line of `input`, without its end, and its length with it. `Err` says what to answer in its absence.
///
/// # Errors
/// When a line is longer than [`LINE_MAX`].
pub fn line(input: &[u8]) -> Result<Result<(&[u8], usize), Decoded<'static>>, Broken> {
    let searched = &input[..input.len().min(LINE_MAX)];
    match end_of_line(searched) {
        Some(end) => {
            let line = &input[..end];
            Ok(Ok((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
        }
        None if searched.len() < LINE_MAX => Ok(Err(Decoded::Partial { needed: input.len() + 1 })),
        None => Err(Broken("a line without an end")),
    }
}

/// Where the first line ends. Most lines are shorter than what a call of the library's search costs.
#[inline]
fn end_of_line(input: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let (chunks, _) = input[..input.len().min(SHORT_LINE)].as_chunks::<8>();
    for (index, chunk) in chunks.iter().enumerate() {
        // The lowest byte of which the highest bit is set is that of the first zero (Mycroft 1987).
        let differs = u64::from_le_bytes(*chunk) ^ (ONES * u64::from(b'\n'));
        let zeros = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        if zeros != 0 {
            return Some(index * 8 + zeros.trailing_zeros() as usize / 8);
        }
    }
    let searched = chunks.len() * 8;
    memchr::memchr(b'\n', &input[searched..]).map(|end| searched + end)
}

/// What an error in words means; `None`: the line is none.
pub fn error(line: &[u8]) -> Option<Answer<'static>> {
    let refusal = if line.starts_with(b"SERVER_ERROR") {
        Refusal::Server
    } else if line.starts_with(b"CLIENT_ERROR") {
        Refusal::Client
    } else if line == b"ERROR" || line.starts_with(b"ERROR ") {
        Refusal::Unknown
    } else {
        return None;
    };
    let words = line.splitn(2, |byte| *byte == b' ').nth(1).unwrap_or_default();
    Some(match refusal {
        Refusal::Server if words.starts_with(b"object too large") => Answer::TooLarge,
        Refusal::Server if words.starts_with(b"out of memory") || words.starts_with(b"Out of memory") => {
            Answer::OutOfMemory
        }
        Refusal::Client if words.starts_with(b"cannot increment or decrement non-numeric") => Answer::NonNumeric,
        Refusal::Server => server_error(words),
        _ => Answer::Refused(refusal, readable(words)),
    })
}

/// What the words of a `SERVER_ERROR` mean to a peer.
pub fn server_error(words: &[u8]) -> Answer<'static> {
    let words = readable(words);
    match ErrorCode::read(&words) {
        (Some(code), sentence) => Answer::Refused(Refusal::Told(code), sentence.to_owned()),
        (None, sentence) => Answer::Refused(Refusal::Server, sentence.to_owned()),
    }
}

/// The first words of a server as a client may see them.
pub fn readable(words: &[u8]) -> String {
    statistic(&words[..words.len().min(200)])
}

/// A statistic, all of it: one that is cut reads as another number.
pub fn statistic(words: &[u8]) -> String {
    String::from_utf8_lossy(words).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_ends_at_its_first_newline() {
        for length in 0..200 {
            let mut input = vec![b'a'; length];
            assert_eq!(end_of_line(&input), None);
            // What differs from it by one bit, and by a borrow of the byte before.
            input.extend_from_slice(b"\x0b\x8a\n\x0b\n");
            input.extend_from_slice(&[b'b'; 20]);
            assert_eq!(end_of_line(&input), Some(length + 2));
        }
    }

    #[test]
    fn flags_are_read_as_words_and_numbers_are() {
        let mut lines: Vec<Vec<u8>> = vec![
            b"c18446744073709551615 f0 t-1 h1 l12345678 V1763871234567890123 D0  O7 X k12345678z".to_vec(),
            b"c18446744073709551616 c123456789012345678901 f f00000000000000000000 f/ f: f1234567: f12345/78 f1234567\xb1".to_vec(),
            b" W ".to_vec(),
            b"".to_vec(),
        ];
        for length in 1..24 {
            lines.push([&b"c"[..], &b"9876543210987654321098765"[..length], b" f1"].concat());
        }
        for other in 0..=255u8 {
            lines.push([&b"c123"[..], &[other], b"5678 f123456781", &[other]].concat());
        }
        for line in &lines {
            let (mut flags, mut words) = (&line[..], &line[..]);
            while let Some(word) = next(&mut words) {
                let flag = next_flag(&mut flags).expect("a flag for each word");
                let (letter, argument) = (word[0], &word[1..]);
                assert_eq!((flag.letter, flag.argument, flag.number), (letter, argument, number(argument)));
                assert_eq!(flags, words);
            }
            assert!(next_flag(&mut flags).is_none());
        }
    }
}
