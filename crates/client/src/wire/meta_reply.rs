//! Meta replies: a code of two letters, then flags in the order asked for, `Z`, `X` and `W` where they hold, then a value.

use moneta_item::{Expiry, Version};

use super::answer::{Answer, Decoded, Seen};
use super::failure::Broken;
use super::limits::VALUE_LIMIT;
use super::request::Expect;
use super::request::Kind;
use super::tokens::{self, Flag, next, next_flag, number};

const FOREIGN: Broken = Broken("a reply to another request");
const UNDUE: Broken = Broken("a reply of a kind that was not asked for");
const MALFORMED: Broken = Broken("a reply that is none of the meta protocol's");

pub(super) fn decode<'a>(input: &'a [u8], expect: &Expect, value_max: usize) -> Result<Decoded<'a>, Broken> {
    match expect.kind {
        Kind::Statistics => return super::text::statistics(input),
        Kind::Flush => return super::text::decode(input, expect, value_max),
        _ => {}
    }
    let (line, length) = match tokens::line(input)? {
        Ok(found) => found,
        Err(partial) => return Ok(partial),
    };
    let mut rest = line;
    let code = next(&mut rest).ok_or(MALFORMED)?;
    if code == b"VA" {
        return value(input, rest, length, expect, value_max);
    }
    let answer = match (code, expect.kind) {
        (b"MN", Kind::Noop) => Answer::Done,
        (b"MV", Kind::Newest) => Answer::Newest(newest(rest)),
        (b"HD" | b"EN" | b"NF" | b"NS" | b"EX", _) => {
            let mut seen = Seen::default();
            flags(rest, expect, &mut seen)?;
            bare(code, expect.kind, seen)?
        }
        _ => tokens::error(line).ok_or(MALFORMED)?,
    };
    Ok(Decoded::Answer { answer, consumed: length })
}

/// The newest version, among the fields of an answer to `mv`; older servers do not tell it.
fn newest(mut rest: &[u8]) -> Version {
    let field = std::iter::from_fn(|| next(&mut rest)).find_map(|field| field.strip_prefix(b"newest="));
    field.and_then(number).map_or(Version::ZERO, Version)
}

/// A reply without a value.
fn bare<'a>(code: &[u8], kind: Kind, seen: Seen<'a>) -> Result<Answer<'a>, Broken> {
    Ok(match (code, kind) {
        (b"EN", Kind::Read { .. }) => Answer::Miss,
        (b"HD", Kind::Read { value: false }) => Answer::Hit(seen),
        (b"HD", Kind::Write { .. } | Kind::PutNewer) => match seen.version {
            Some(Version(cas)) => Answer::Unchanged { cas },
            None => Answer::Stored { cas: seen.cas },
        },
        (b"HD", Kind::Delete | Kind::Bury) => Answer::Deleted,
        (b"HD", Kind::Floor) => Answer::Done,
        (b"NS", Kind::Write { .. } | Kind::PutNewer | Kind::Arithmetic) => Answer::NotStored,
        (b"EX", Kind::Write { .. } | Kind::Delete | Kind::Arithmetic) => Answer::Exists,
        (b"EX", Kind::PutNewer | Kind::Bury) => Answer::Superseded { by: seen.version.unwrap_or_default() },
        (b"NF", Kind::Write { .. } | Kind::Delete | Kind::Bury | Kind::Arithmetic) => Answer::NotFound,
        _ => return Err(UNDUE),
    })
}

/// A reply with a value: an item, or the number that arithmetic made.
fn value<'a>(
    input: &'a [u8],
    mut rest: &[u8],
    line: usize,
    expect: &Expect,
    value_max: usize,
) -> Result<Decoded<'a>, Broken> {
    let size = length_of_value(next(&mut rest).and_then(number).ok_or(MALFORMED)?)?;
    let consumed = line + size + 2;
    let mut seen = Seen { size, ..Seen::default() };
    flags(rest, expect, &mut seen)?;
    match expect.kind {
        Kind::Read { value: true } if size > value_max => return Ok(Decoded::Oversized { skip: consumed }),
        Kind::Read { value: true } => {}
        // 20 digits, and the spaces that may follow them.
        Kind::Arithmetic if size <= 1024 => {}
        _ => return Err(UNDUE),
    }
    let Some(block) = input.get(line..consumed) else { return Ok(Decoded::Partial { needed: consumed }) };
    let value = block.strip_suffix(b"\r\n").ok_or(Broken("a value that does not end where it should"))?;
    let answer = if expect.kind == Kind::Arithmetic {
        let number = next(&mut &*value).and_then(number).ok_or(Broken("a number that is none"))?;
        Answer::Number { number, cas: seen.cas, ttl: seen.ttl }
    } else {
        seen.value = value.into();
        Answer::Hit(seen)
    };
    Ok(Decoded::Answer { answer, consumed })
}

/// A length as a reply tells it, with its value or without.
fn length_of_value(length: u64) -> Result<usize, Broken> {
    let length = usize::try_from(length).ok().filter(|length| *length <= VALUE_LIMIT);
    length.ok_or(Broken("a value of impossible length"))
}

/// Reads the flags of a reply, which must be the expected one.
fn flags(mut rest: &[u8], expect: &Expect, seen: &mut Seen<'_>) -> Result<(), Broken> {
    let mut known = false;
    while let Some(Flag { letter, argument, number }) = next_flag(&mut rest) {
        let unsigned = || number.ok_or(MALFORMED);
        let narrow = || number.and_then(|number| u32::try_from(number).ok()).ok_or(MALFORMED);
        match letter {
            b'O' => {
                known = true;
                if narrow()? != expect.number {
                    return Err(FOREIGN);
                }
            }
            b'c' => seen.cas = unsigned()?,
            b'V' => seen.version = Some(Version(unsigned()?)),
            b'D' => seen.expiry = Some(Expiry(narrow()?)),
            b'f' => seen.flags = narrow()?,
            b's' => seen.size = length_of_value(unsigned()?)?,
            b'l' => seen.idle = Some(narrow()?),
            b'h' => seen.fetched = argument != b"0",
            b't' if argument == b"-1" => seen.ttl = Some(-1),
            b't' => seen.ttl = Some(i64::from(narrow()?)),
            b'X' => seen.stale = true,
            b'Z' => seen.token_sent = true,
            b'W' => seen.won = true,
            // The letters of the marks say the same.
            b'k' | b'b' | b'Y' => {}
            _ => return Err(MALFORMED),
        }
    }
    if known { Ok(()) } else { Err(FOREIGN) }
}
