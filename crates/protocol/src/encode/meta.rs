//! Meta replies: a short code, then the flags asked for in the order asked.

use moneta_item::request::Exptime;
use moneta_item::{Expiry, ItemMeta, ItemRef};

use super::number;
use crate::command::MetaStyle;
use crate::refusal::lines;
use crate::reply::Reply;
use crate::text::line::next_token;
use crate::versions::{STALE, TOKEN_SENT};

/// Room for the codes and numbers of a reply line.
const AROUND: usize = 128;

/// What the return flags can show.
struct Shown<'a> {
    key: &'a [u8],
    meta: &'a ItemMeta,
    size: usize,
    now: u32,
}

#[inline]
pub(super) fn item(style: &MetaStyle<'_>, key: &[u8], item: &ItemRef<'_>, now: u32, out: &mut Vec<u8>) {
    let length = item.value.len();
    let with_value = style.value && style.unless_cas != Some(item.meta.cas);
    out.reserve(key.len() * 2 + AROUND + style.flags.len() + if with_value { length } else { 0 });
    if with_value {
        out.extend_from_slice(b"VA ");
        number(length, out);
    } else {
        out.extend_from_slice(b"HD");
    }
    return_flags(style, &Shown { key, meta: &item.meta, size: length, now }, out);
    // Who else has won comes before what this request has won.
    if item.meta.token_sent {
        out.extend_from_slice(b" Z");
    }
    if item.meta.stale {
        out.extend_from_slice(b" X");
    }
    if item.meta.won {
        out.extend_from_slice(b" W");
    }
    out.extend_from_slice(b"\r\n");
    if with_value {
        item.value.copy_to(out);
        out.extend_from_slice(b"\r\n");
    }
}

/// The expiry that a `T` sets, and an `N` if it created the item; `None` for every other flag. A `t` shows what the last
/// such flag in front of it has set.
fn expiry_set_by(token: &[u8], created: bool, now: u32) -> Option<Expiry> {
    match token[0] {
        b'T' => {}
        b'N' if created => {}
        _ => return None,
    }
    crate::number::signed(&token[1..]).map(|seconds| Expiry::resolve(Exptime(seconds), now))
}

/// The flags that return something of an item. A `t` before `T` shows what was left before this request, one after it
/// what is left now.
fn return_flags(style: &MetaStyle<'_>, shown: &Shown<'_>, out: &mut Vec<u8>) {
    let meta = shown.meta;
    let created = meta.is_created_by_read();
    let mut expiry = meta.expiry_before;
    let mut flags = style.flags;
    while let Some(token) = next_token(&mut flags) {
        let letter = token[0];
        match letter {
            b'T' | b'N' => {
                expiry = expiry_set_by(token, created, shown.now).unwrap_or(expiry);
                continue;
            }
            b'O' | b'k' => {
                echo(style, token, shown.key, out);
                continue;
            }
            b's' | b't' | b'c' | b'f' | b'h' | b'l' | b'V' | b'Y' => {}
            // With a number it is the delta of other commands, which says nothing here.
            b'D' if token.len() == 1 => {}
            _ => continue,
        }
        out.extend_from_slice(&[b' ', letter]);
        match letter {
            b's' => number(shown.size, out),
            b't' => time_to_live(expiry, shown.now, out),
            b'c' => number(meta.cas, out),
            b'f' => number(meta.flags, out),
            b'V' => number(meta.version().0, out),
            b'D' => number(expiry.0, out),
            b'Y' => number(marks(meta), out),
            b'h' => out.push(if meta.fetched { b'1' } else { b'0' }),
            _ => number(shown.now.saturating_sub(meta.last_access), out),
        }
    }
}

/// The argument of `Y`.
fn marks(meta: &ItemMeta) -> u64 {
    let mark = |holds: bool, bit: u64| if holds { bit } else { 0 };
    mark(meta.stale, STALE) | mark(meta.token_sent, TOKEN_SENT)
}

fn time_to_live(expiry: Expiry, now: u32, out: &mut Vec<u8>) {
    match expiry.remaining(now) {
        Some(seconds) => number(seconds, out),
        None => out.extend_from_slice(b"-1"),
    }
}

/// `O` and `k`, which go out whatever became of the command.
fn echo(style: &MetaStyle<'_>, token: &[u8], key: &[u8], out: &mut Vec<u8>) {
    match token[0] {
        b'O' => {
            out.push(b' ');
            out.extend_from_slice(token);
        }
        b'k' => {
            out.extend_from_slice(b" k");
            out.extend_from_slice(key);
            if style.base64_key {
                out.extend_from_slice(b" b");
            }
        }
        _ => {}
    }
}

/// Adds to a reply to a write by version the version that the write met, as `V`.
fn met(version: u64, out: &mut Vec<u8>) {
    if version > 0 {
        out.truncate(out.len() - b"\r\n".len());
        out.extend_from_slice(b" V");
        number(version, out);
        out.extend_from_slice(b"\r\n");
    }
}

/// A reply that carries nothing of an item.
fn bare(style: &MetaStyle<'_>, code: &[u8], key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(code);
    let mut flags = style.flags;
    while let Some(token) = next_token(&mut flags) {
        match token[0] {
            b'c' if style.stores => out.extend_from_slice(b" c0"),
            _ => echo(style, token, key, out),
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// `ms` answers with what it knows of the item it stored.
fn stored(style: &MetaStyle<'_>, key: &[u8], cas: u64, size: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(b"HD");
    let mut flags = style.flags;
    while let Some(token) = next_token(&mut flags) {
        match token[0] {
            b'c' => {
                out.extend_from_slice(b" c");
                number(cas, out);
            }
            b's' => {
                out.extend_from_slice(b" s");
                number(size, out);
            }
            _ => echo(style, token, key, out),
        }
    }
    out.extend_from_slice(b"\r\n");
}

/// What `ma` made of an item.
struct Computed<'a> {
    number: u64,
    meta: &'a ItemMeta,
    created: bool,
    now: u32,
}

/// `ma` shows CAS value and time to live, and the number itself under `v`.
fn arithmetic(style: &MetaStyle<'_>, key: &[u8], computed: &Computed<'_>, out: &mut Vec<u8>) {
    let Computed { number: value, meta, created, now } = *computed;
    let mut buffer = itoa::Buffer::new();
    let digits = buffer.format(value).as_bytes();
    if style.value {
        out.extend_from_slice(b"VA ");
        number(digits.len(), out);
    } else {
        out.extend_from_slice(b"HD");
    }
    let mut expiry = meta.expiry_before;
    let mut flags = style.flags;
    while let Some(token) = next_token(&mut flags) {
        match token[0] {
            b'T' | b'N' => expiry = expiry_set_by(token, created, now).unwrap_or(expiry),
            b'c' => {
                out.extend_from_slice(b" c");
                number(meta.cas, out);
            }
            b't' => {
                out.extend_from_slice(b" t");
                time_to_live(expiry, now, out);
            }
            _ => echo(style, token, key, out),
        }
    }
    out.extend_from_slice(b"\r\n");
    if style.value {
        out.extend_from_slice(digits);
        out.extend_from_slice(b"\r\n");
    }
}

#[inline]
pub(super) fn reply(style: &MetaStyle<'_>, key: &[u8], reply: Reply<'_>, now: u32, out: &mut Vec<u8>) {
    match reply {
        // `q` hides what is nominal: a miss of a read, success of everything else. Never an error.
        Reply::Miss
        | Reply::Stored { .. }
        | Reply::Unchanged { .. }
        | Reply::Deleted
        | Reply::Ok
        | Reply::Number { .. }
            if style.quiet => {}
        Reply::Miss => bare(style, b"EN", key, out),
        Reply::Stored { cas, size } => stored(style, key, cas, size, out),
        Reply::NotStored => bare(style, b"NS", key, out),
        Reply::Exists => bare(style, b"EX", key, out),
        Reply::Superseded { by } => {
            bare(style, b"EX", key, out);
            met(by.0, out);
        }
        Reply::Unchanged { cas, size } => {
            stored(style, key, cas, size, out);
            met(cas, out);
        }
        Reply::NotFound => bare(style, b"NF", key, out),
        Reply::Deleted | Reply::Ok => bare(style, b"HD", key, out),
        Reply::Number { number, meta, created } => {
            arithmetic(style, key, &Computed { number, meta: &meta, created, now }, out);
        }
        Reply::Noop => out.extend_from_slice(b"MN\r\n"),
        Reply::NonNumeric => super::text::line(lines::NON_NUMERIC, out),
        Reply::TooLarge => super::text::line(lines::TOO_LARGE, out),
        Reply::OutOfMemory => super::text::line(lines::OUT_OF_MEMORY, out),
        Reply::Failed { code, why } => super::text::failed(code.filter(|_| style.coded), why, out),
        Reply::Line(line) | Reply::Version(line) => super::text::line(line, out),
        Reply::End => {}
    }
}
