//! The short way: `get KEY` and `set KEY FLAGS EXPTIME LENGTH [noreply]` as clients send them, read in one pass from left to
//! right without first looking for the end of the line. Whatever looks the least unusual goes the long way.

use moneta_item::request::{Exptime, KEY_MAX};

use crate::scan::find_at_most_space;
use crate::stream::Shortcut;

/// Decodes a command in its usual form whose value, if any, is there and not over `item_max` bytes.
// Both are inlined always: a call costs 25 instructions, 1 % of a get, and a second caller is enough to get one.
#[inline(always)]
pub(crate) fn decode(input: &[u8], item_max: usize) -> Option<Shortcut<'_>> {
    match input.first_chunk::<4>()? {
        b"get " => get(input),
        b"set " => set(input, item_max),
        _ => None,
    }
}

#[inline(always)]
fn get(input: &[u8]) -> Option<Shortcut<'_>> {
    let rest = &input[4..];
    let length = find_at_most_space(rest);
    if length == 0 || length > KEY_MAX || rest.get(length..length + 2)? != b"\r\n" {
        return None;
    }
    Some(Shortcut::Get { key: &rest[..length], consumed: length + 6 })
}

#[inline]
fn set(input: &[u8], item_max: usize) -> Option<Shortcut<'_>> {
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
    let length = length as usize;
    if length > item_max || rest.get(length..length + 2)? != b"\r\n" {
        return None;
    }
    let consumed = input.len() - rest.len() + length + 2;
    let exptime = Exptime(i64::from(exptime));
    Some(Shortcut::Set { key, value: &rest[..length], flags, exptime, noreply, consumed })
}

/// One to nine digits, so that every number fits every field.
#[inline]
fn digits(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let mut number: u32 = 0;
    let mut count = 0;
    while let Some(&byte) = bytes.get(count) {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            break;
        }
        if count == 9 {
            return None;
        }
        number = number * 10 + u32::from(digit);
        count += 1;
    }
    if count == 0 { None } else { Some((number, &bytes[count..])) }
}
