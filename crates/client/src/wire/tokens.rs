//! Lines and the words on them.

use super::{Answer, Broken, Decoded, LINE_MAX, Refusal};

/// The next word of `line`, which loses it.
pub(super) fn next<'a>(line: &mut &'a [u8]) -> Option<&'a [u8]> {
    let start = line.iter().position(|byte| *byte != b' ')?;
    let rest = &line[start..];
    let end = memchr::memchr(b' ', rest).unwrap_or(rest.len());
    *line = &rest[end..];
    Some(&rest[..end])
}

/// A decimal number of plain digits.
pub(super) fn number(word: &[u8]) -> Option<u64> {
    if word.is_empty() || word.len() > 20 {
        return None;
    }
    word.iter().try_fold(0u64, |number, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 { None } else { number.checked_mul(10)?.checked_add(digit.into()) }
    })
}

/// The first line of `input`, without its end, and its length with it. `Err` says what to answer in its absence.
pub(super) fn line(input: &[u8]) -> Result<Result<(&[u8], usize), Decoded>, Broken> {
    let searched = &input[..input.len().min(LINE_MAX)];
    match memchr::memchr(b'\n', searched) {
        Some(end) => {
            let line = &input[..end];
            Ok(Ok((line.strip_suffix(b"\r").unwrap_or(line), end + 1)))
        }
        None if searched.len() < LINE_MAX => Ok(Err(Decoded::Partial { needed: input.len() + 1 })),
        None => Err(Broken("a line without an end")),
    }
}

/// What an error in words means; `None`: the line is none.
pub(super) fn error(line: &[u8]) -> Option<Answer> {
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
        _ => Answer::Refused(refusal, readable(words)),
    })
}

/// Words of a server as a client may see them.
pub(super) fn readable(words: &[u8]) -> String {
    let shown = &words[..words.len().min(200)];
    String::from_utf8_lossy(shown).chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}
