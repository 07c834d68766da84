//! Decoding of what meta commands say of versions. All of it is in forms that memcached refuses, so that a server that knows
//! nothing of versions takes none of it for something else; docs/versions.md is the reference.

use moneta_item::{Expiry, Newer, Version};

use crate::command::{Command, MetaStyle, Style};
use crate::flags::{Flags, Terms, Verb, parse, version};
use crate::number;
use crate::refusal::lines;
use crate::text::line::next_token;

/// Bit of `Y` for an item that is marked as stale.
pub(crate) const STALE: u64 = 1;
/// Bit of `Y` for an item whose recache a reader has won.
pub(crate) const TOKEN_SENT: u64 = 2;

/// Flags that go with `V` in `ms`. Proxies add `P` and `L`, which say nothing.
const WITH_PUT: u128 = letters(b"VACDYFqOkbcsPL");
/// Flags that go with `V` in `md`.
const WITH_BURY: u128 = letters(b"VqOkbPL");
/// Flags of `mf`.
const WITH_FLOOR: u128 = letters(b"qO");

const fn letters(letters: &[u8]) -> u128 {
    let mut bits = 0;
    let mut at = 0;
    while at < letters.len() {
        bits |= 1 << letters[at];
        at += 1;
    }
    bits
}

/// The number after a letter among the flags of a line.
fn argument(mut line: &[u8], letter: u8) -> Option<u64> {
    let token = std::iter::from_fn(|| next_token(&mut line)).find(|token| token[0] == letter)?;
    number::unsigned(&token[1..])
}

/// The item of an `ms` with `V`; `None` without.
pub(crate) fn newer(line: &[u8], flags: &Flags) -> Result<Option<Newer>, &'static str> {
    let Some(version) = flags.version else {
        let needs_version = flags.seen & letters(b"AY") != 0;
        return if needs_version { Err(lines::INVALID_FLAG) } else { Ok(None) };
    };
    if flags.seen & !WITH_PUT != 0 {
        return Err(lines::NOT_WITH_VERSION);
    }
    let expiry = u32::try_from(flags.delta.unwrap_or(0)).map_err(|_| lines::BAD_TOKEN)?;
    let marks = argument(line, b'Y').unwrap_or(0);
    if marks & !(STALE | TOKEN_SENT) != 0 {
        return Err(lines::BAD_TOKEN);
    }
    Ok(Some(Newer {
        version: Version(version),
        as_of: argument(line, b'A'),
        base: flags.compare.map(Version),
        flags: flags.client_flags,
        expiry: Expiry(expiry),
        stale: marks & STALE != 0,
        token_sent: marks & TOKEN_SENT != 0,
    }))
}

/// `md` with `V`.
pub(crate) fn bury<'a>(key: &'a [u8], line: &'a [u8], flags: &Flags) -> Result<Command<'a>, &'static str> {
    if flags.seen & !WITH_BURY != 0 {
        return Err(lines::NOT_WITH_VERSION);
    }
    let version = Version(flags.version.unwrap_or_default());
    Ok(Command::Bury { key, version, style: Style::Meta(flags.style(line)) })
}

/// `mv`.
pub(crate) fn ask(mut rest: &[u8]) -> Result<Command<'_>, &'static str> {
    match next_token(&mut rest) {
        None => Ok(Command::Versions(Style::Meta(MetaStyle::default()))),
        Some(_) => Err(lines::ERROR),
    }
}

/// `mf VERSION SECOND FLAGS*`.
pub(crate) fn floor(mut rest: &[u8]) -> Result<Command<'_>, &'static str> {
    let bad = lines::BAD_FORMAT;
    let version = version(next_token(&mut rest).ok_or(bad)?)?;
    let second = next_token(&mut rest).and_then(number::unsigned_32).ok_or(bad)?;
    let flags = parse(Verb::Floor, rest, &[], 3, Terms::default())?;
    if flags.seen & !WITH_FLOOR != 0 {
        return Err(lines::INVALID_FLAG);
    }
    if flags.opaque_too_long {
        return Err(lines::OPAQUE_TOO_LONG);
    }
    Ok(Command::Floor { version: Version(version), second, style: Style::Meta(flags.style(rest)) })
}
