//! The short way: `get KEY` and `set KEY FLAGS EXPTIME LENGTH [noreply]` as clients send them, read in one pass from left to
//! right without first looking for the end of the line. Whatever looks the least unusual goes the long way.

use super::write::{Header, with_block};
use crate::command::{Command, Keys, ReadVerb, Style, TextStyle};
use crate::decoder::{Decoded, Decoder};
use crate::request::{Exptime, KEY_MAX, Retrieve, Write, WriteMode};
use crate::scan::find_at_most_space;

/// Decodes a command in its usual form; `None` says nothing about it.
#[inline]
pub(super) fn decode<'a>(decoder: &mut Decoder, input: &'a [u8]) -> Option<Decoded<'a>> {
    match input.first_chunk::<4>()? {
        b"get " => get(input),
        b"set " => set(decoder, input),
        _ => None,
    }
}

#[inline]
fn get(input: &[u8]) -> Option<Decoded<'_>> {
    let rest = &input[4..];
    let length = find_at_most_space(rest);
    if length == 0 || length > KEY_MAX || rest.get(length..length + 2)? != b"\r\n" {
        return None;
    }
    let command = Command::Get {
        keys: Keys::One(&rest[..length]),
        request: Retrieve::default(),
        verb: ReadVerb::Get,
        style: Style::Text(TextStyle::default()),
    };
    Some(Decoded::Command { command, consumed: length + 6 })
}

#[inline]
fn set<'a>(decoder: &mut Decoder, input: &'a [u8]) -> Option<Decoded<'a>> {
    let rest = &input[4..];
    let length = find_at_most_space(rest);
    if length == 0 || length > KEY_MAX {
        return None;
    }
    let (key, rest) = rest.split_at(length);
    let (flags, rest) = digits(rest.strip_prefix(b" ")?)?;
    let (exptime, rest) = digits(rest.strip_prefix(b" ")?)?;
    let (length, rest) = digits(rest.strip_prefix(b" ")?)?;
    let (noreply, rest) = match rest.strip_prefix(b" noreply") {
        Some(rest) => (true, rest),
        None => (false, rest),
    };
    let rest = rest.strip_prefix(b"\r\n")?;
    let flags = u32::try_from(flags).ok()?;
    let exptime = Exptime(exptime as i64);
    let request = Write { mode: WriteMode::Set, flags, exptime, ..Write::default() };
    let line = input.len() - rest.len();
    Some(with_block(decoder, input, Header { key, request, length, noreply, line }))
}

/// One to nine digits, so that every number fits every field.
#[inline]
fn digits(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number = 0;
    let mut count = 0;
    while let Some(&byte) = bytes.get(count) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        number = number * 10 + u64::from(digit);
        count += 1;
        if count > 9 {
            return None;
        }
    }
    if count == 0 { None } else { Some((number, &bytes[count..])) }
}
