//! Classic text. It tells value, flags and CAS value of an item and no more, and nothing of a version it has stored.
//!
//! A reply has no number; one with an item names its key, and that is compared.

use moneta_item::KeyHash;
use moneta_item::request::{Arithmetic, Delete, Write, WriteMode};

use super::answer::{Answer, Decoded, Seen};
use super::dialect::Dialect;
use super::failure::{Broken, Unsupported};
use super::limits::{LIST_MAX, VALUE_LIMIT};
use super::line::{flush, is_plain};
use super::number::{line_exptime, put};
use super::request::Kind;
use super::request::{Expect, Read, Request, Verb};
use super::tokens::{self, next, number};

const NEEDS_META: Unsupported = Unsupported("the server does not know the meta protocol, which this request needs");
const ODD_KEY: Unsupported =
    Unsupported("a key with spaces or control characters cannot be sent over the text protocol");
const MALFORMED: Broken = Broken("a reply that is none of the text protocol's");
const FOREIGN: Broken = Broken("an item of another key");
const END: &[u8] = b"END\r\n";
/// The same as a line.
const END_LINE: &[u8] = b"END";

/// What stands in [`Expect`] for a key.
fn key_number(key: &[u8]) -> u32 {
    KeyHash::seeded(0).hash(key) as u32
}

pub(super) fn encode(request: &Request<'_>, dialect: Dialect, out: &mut Vec<u8>) -> Result<Expect, Unsupported> {
    if !is_plain(request.key) {
        return Err(ODD_KEY);
    }
    match &request.verb {
        Verb::Read(read) => get(request.key, read, dialect, out)?,
        Verb::Peek { .. } => words(&[b"gets ", request.key], out),
        Verb::Write(write) => return set(request, write, dialect, out),
        Verb::Delete(delete) => {
            let Delete { compare: None, invalidate: false, drop_value: false, .. } = delete else {
                return Err(NEEDS_META);
            };
            words(&[b"delete ", request.key], out);
        }
        Verb::Arithmetic(arithmetic) => count(request.key, arithmetic, out)?,
        Verb::Flush(delay) => {
            flush(*delay, dialect, out);
            return Ok(Expect { kind: Kind::Flush, number: 0 });
        }
        Verb::PutNewer(_) | Verb::Bury(_) | Verb::Floor { .. } | Verb::Newest => {
            return Err(super::failure::NO_VERSIONS);
        }
        Verb::Statistics => out.extend_from_slice(b"stats"),
        Verb::Noop => out.extend_from_slice(b"version"),
    }
    out.extend_from_slice(b"\r\n");
    Ok(Expect { kind: request.verb.kind(), number: key_number(request.key) })
}

fn words(words: &[&[u8]], out: &mut Vec<u8>) {
    words.iter().for_each(|word| out.extend_from_slice(word));
}

fn get(key: &[u8], read: &Read, dialect: Dialect, out: &mut Vec<u8>) -> Result<(), Unsupported> {
    let retrieve = &read.retrieve;
    if retrieve.vivify.is_some() || retrieve.recache.is_some() || !retrieve.bump {
        return Err(NEEDS_META);
    }
    match retrieve.touch {
        None => words(&[b"gets ", key], out),
        Some(exptime) => {
            out.extend_from_slice(b"gats ");
            put(line_exptime(exptime, dialect), out);
            words(&[b" ", key], out);
        }
    }
    Ok(())
}

fn set(request: &Request<'_>, write: &Write, dialect: Dialect, out: &mut Vec<u8>) -> Result<Expect, Unsupported> {
    // An add never meets an item to compare with.
    let compare = write.compare.filter(|_| write.mode != WriteMode::Add);
    if write.new_cas.is_some() || write.invalidate || write.vivify.is_some() {
        return Err(NEEDS_META);
    }
    let command: &[u8] = match (write.mode, compare) {
        (WriteMode::Set | WriteMode::Replace, Some(_)) => b"cas ",
        (_, Some(_)) => return Err(NEEDS_META),
        (WriteMode::Set, None) => b"set ",
        (WriteMode::Add, None) => b"add ",
        (WriteMode::Replace, None) => b"replace ",
        (WriteMode::Append, None) => b"append ",
        (WriteMode::Prepend, None) => b"prepend ",
    };
    words(&[command, request.key, b" "], out);
    put(write.flags, out);
    out.push(b' ');
    put(line_exptime(write.exptime, dialect), out);
    out.push(b' ');
    put(request.value.len(), out);
    if let Some(cas) = compare {
        out.push(b' ');
        put(cas, out);
    }
    words(&[b"\r\n", request.value, b"\r\n"], out);
    Ok(Expect { kind: request.verb.kind(), number: 0 })
}

fn count(key: &[u8], arithmetic: &Arithmetic, out: &mut Vec<u8>) -> Result<(), Unsupported> {
    let Arithmetic { delta, decrement, create: None, touch: None, compare: None, new_cas: None } = *arithmetic else {
        return Err(NEEDS_META);
    };
    words(&[if decrement { b"decr " } else { b"incr " }, key, b" "], out);
    put(delta, out);
    Ok(())
}

pub(super) fn decode<'a>(input: &'a [u8], expect: &Expect, value_max: usize) -> Result<Decoded<'a>, Broken> {
    if expect.kind == Kind::Statistics {
        return statistics(input);
    }
    let (line, length) = match tokens::line(input)? {
        Ok(found) => found,
        Err(partial) => return Ok(partial),
    };
    if let Some(answer) = tokens::error(line) {
        return Ok(Decoded::Answer { answer, consumed: length });
    }
    let answer = match (expect.kind, line) {
        (Kind::Read { .. }, b"END") => Answer::Miss,
        (Kind::Read { .. }, _) => return item(input, line, length, expect, value_max),
        (Kind::Write { .. }, b"STORED") => Answer::Stored { cas: 0 },
        (Kind::Write { .. }, b"NOT_STORED") => Answer::NotStored,
        (Kind::Write { .. }, b"EXISTS") => Answer::Exists,
        (Kind::Write { .. } | Kind::Delete | Kind::Arithmetic, b"NOT_FOUND") => Answer::NotFound,
        (Kind::Delete, b"DELETED") => Answer::Deleted,
        (Kind::Flush, b"OK") => Answer::Done,
        (Kind::Noop, _) if line.starts_with(b"VERSION ") => Answer::Done,
        (Kind::Arithmetic, mut line) => {
            let number = next(&mut line).and_then(number).ok_or(MALFORMED)?;
            Answer::Number { number, cas: 0, ttl: None }
        }
        _ => return Err(MALFORMED),
    };
    Ok(Decoded::Answer { answer, consumed: length })
}

/// `VALUE <key> <flags> <bytes> [<cas>]`, the value, `END`.
fn item<'a>(
    input: &'a [u8],
    line: &[u8],
    length: usize,
    expect: &Expect,
    value_max: usize,
) -> Result<Decoded<'a>, Broken> {
    let mut rest = line.strip_prefix(b"VALUE ").ok_or(MALFORMED)?;
    let key = next(&mut rest).ok_or(MALFORMED)?;
    let flags = next(&mut rest).and_then(number).and_then(|flags| u32::try_from(flags).ok()).ok_or(MALFORMED)?;
    let size = next(&mut rest).and_then(number).and_then(|size| usize::try_from(size).ok()).ok_or(MALFORMED)?;
    let cas = next(&mut rest).map_or(Some(0), number).ok_or(MALFORMED)?;
    if size > VALUE_LIMIT {
        return Err(Broken("a value of impossible length"));
    }
    if key_number(key) != expect.number {
        return Err(FOREIGN);
    }
    let end = length + size;
    let consumed = end + 2 + END.len();
    if size > value_max {
        return Ok(Decoded::Oversized { skip: consumed });
    }
    let Some(value) = input.get(length..end) else { return Ok(Decoded::Partial { needed: consumed }) };
    let Some(after) = input.get(end..consumed) else { return Ok(Decoded::Partial { needed: consumed }) };
    if after.strip_prefix(b"\r\n") != Some(END) {
        return Err(Broken("a value that does not end where it should"));
    }
    let seen = Seen { value: value.into(), size, flags, cas, ..Seen::default() };
    Ok(Decoded::Answer { answer: Answer::Hit(seen), consumed })
}

/// `STAT <name> <value>` lines and `END`. They are taken apart when the end is there, so that a server that sends them byte by
/// byte costs a search a byte and no more.
pub(super) fn statistics(input: &[u8]) -> Result<Decoded<'_>, Broken> {
    let (first, length) = match tokens::line(input)? {
        Ok(found) => found,
        Err(partial) => return Ok(partial),
    };
    if let Some(answer) = tokens::error(first) {
        return Ok(Decoded::Answer { answer, consumed: length });
    }
    let searched = &input[..input.len().min(LIST_MAX)];
    if first != END_LINE && !has_end(searched) {
        return match searched.len() {
            LIST_MAX => Err(Broken("a list without an end")),
            _ if !first.starts_with(b"STAT ") => Err(MALFORMED),
            _ => Ok(Decoded::Partial { needed: input.len() + 1 }),
        };
    }
    let mut list = Vec::new();
    let mut consumed = 0;
    loop {
        let Ok((line, length)) = tokens::line(&input[consumed..])? else { return Err(MALFORMED) };
        consumed += length;
        if line == END_LINE {
            return Ok(Decoded::Answer { answer: Answer::Statistics(list), consumed });
        }
        let mut rest = line.strip_prefix(b"STAT ").ok_or(MALFORMED)?;
        let name = next(&mut rest).ok_or(MALFORMED)?;
        let value = rest.strip_prefix(b" ").unwrap_or(rest);
        list.push((tokens::readable(name), tokens::statistic(value)));
    }
}

/// Whether a line after the first one is the end of a list.
fn has_end(list: &[u8]) -> bool {
    memchr::memmem::find_iter(list, b"\nEND").any(|at| {
        let after = &list[at + 1 + END_LINE.len()..];
        after.starts_with(b"\n") || after.starts_with(b"\r\n")
    })
}
