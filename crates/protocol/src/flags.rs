//! The flags of meta commands: one letter each, in any order, with what stands after it.

use moneta_item::request::{Exptime, KEY_MAX};

use crate::base64::{KeyBuffer, decode_key};
use crate::command::MetaStyle;
use crate::number;
use crate::refusal::lines;
use crate::text::line::next_token;

/// Most tokens of a line: command, key and flags.
const TOKENS_MAX: usize = 20;
/// Longest opaque token, in bytes, its `O` included.
const OPAQUE_MAX: usize = 32;

/// The commands whose flags are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    Set,
    Delete,
    Arithmetic,
    Floor,
}

/// What of the connection decides how flags are read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Terms {
    /// Expiration times have 64 bits.
    pub(crate) wide_times: bool,
    /// Clients must not choose CAS values.
    pub(crate) refuses_chosen_cas: bool,
    /// Failures are told with their codes.
    pub(crate) error_codes: bool,
}

/// What the flags of a line say, whatever the command.
#[derive(Default)]
pub(crate) struct Flags {
    base64_key: bool,
    pub(crate) invalidate: bool,
    quiet: bool,
    pub(crate) no_bump: bool,
    /// `Y` of a read: marks are shown, and no token is won.
    pub(crate) shows_marks: bool,
    value: bool,
    pub(crate) drop_value: bool,
    pub(crate) opaque_too_long: bool,
    pub(crate) mode: Option<u8>,
    pub(crate) client_flags: u32,
    pub(crate) touch: Option<Exptime>,
    pub(crate) vivify: Option<Exptime>,
    /// Expiration time of an item that the command creates: of `T` and `N` the later one.
    pub(crate) created: Option<Exptime>,
    pub(crate) recache: Option<Exptime>,
    pub(crate) compare: Option<u64>,
    pub(crate) new_cas: Option<u64>,
    pub(crate) delta: Option<u64>,
    pub(crate) initial: u64,
    pub(crate) version: Option<u64>,
    /// Bits of the letters on the line.
    pub(crate) seen: u128,
    /// Not of the line, but of the connection.
    terms: Terms,
}

/// Reads the flags. A doubled or unknown flag ends it at once; of several bad arguments the last is told, as memcached does.
pub(crate) fn parse(verb: Verb, line: &[u8], key: &[u8], tokens: usize, terms: Terms) -> Result<Flags, &'static str> {
    let mut flags = Flags { terms, ..Flags::default() };
    let mut error = None;
    let mut count = tokens;
    let mut rest = line;
    while let Some(token) = next_token(&mut rest) {
        count += 1;
        if count > TOKENS_MAX {
            return Err(lines::TOO_MANY_FLAGS);
        }
        let letter = token[0];
        if letter >= 127 || flags.seen & (1 << letter) != 0 {
            return Err(unless_too_many(lines::DUPLICATE_FLAG, count, rest));
        }
        flags.seen |= 1 << letter;
        if let Err(line) = parse_flag(&mut flags, verb, letter, &token[1..], key) {
            if line == lines::INVALID_FLAG {
                return Err(unless_too_many(line, count, rest));
            }
            error = Some(line);
        }
    }
    error.map_or(Ok(flags), Err)
}

/// An error that ends the reading of flags, or what is told before it: that the line has too many tokens.
#[cold]
fn unless_too_many(error: &'static str, count: usize, mut rest: &[u8]) -> &'static str {
    let all = count + std::iter::from_fn(|| next_token(&mut rest)).count();
    if all > TOKENS_MAX { lines::TOO_MANY_FLAGS } else { error }
}

fn exptime(argument: &[u8], wide_times: bool) -> Result<Option<Exptime>, &'static str> {
    number::exptime(argument, wide_times).map(Some).ok_or(lines::BAD_TOKEN)
}

fn unsigned(argument: &[u8], error: &'static str) -> Result<u64, &'static str> {
    number::unsigned(argument).ok_or(error)
}

fn parse_flag(flags: &mut Flags, verb: Verb, letter: u8, argument: &[u8], key: &[u8]) -> Result<(), &'static str> {
    match letter {
        b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' | b'P' | b'L' => {}
        b'v' => flags.value = true,
        b'q' => flags.quiet = true,
        b'u' => flags.no_bump = true,
        b'I' => flags.invalidate = true,
        b'x' => flags.drop_value = true,
        b'O' => flags.opaque_too_long = argument.len() + 1 > OPAQUE_MAX,
        b'T' => {
            flags.touch = exptime(argument, flags.terms.wide_times)?;
            flags.created = flags.touch;
        }
        b'N' => {
            flags.vivify = exptime(argument, flags.terms.wide_times)?;
            flags.created = flags.vivify;
        }
        b'R' => flags.recache = exptime(argument, flags.terms.wide_times)?,
        b'C' => flags.compare = Some(unsigned(argument, lines::BAD_TOKEN)?),
        b'E' if flags.terms.refuses_chosen_cas => return Err(lines::NO_CHOSEN_CAS),
        b'E' => flags.new_cas = Some(unsigned(argument, lines::BAD_TOKEN)?),
        // Letters of versions, in forms that memcached refuses.
        b'V' | b'D' if verb == Verb::Get && argument.is_empty() => {}
        b'Y' if verb == Verb::Get && argument.is_empty() => flags.shows_marks = true,
        b'V' if matches!(verb, Verb::Set | Verb::Delete) => flags.version = Some(version(argument)?),
        b'A' | b'Y' if verb == Verb::Set => {
            unsigned(argument, lines::BAD_TOKEN)?;
        }
        b'D' => flags.delta = Some(unsigned(argument, lines::BAD_META_DELTA)?),
        b'J' => flags.initial = unsigned(argument, lines::BAD_INITIAL)?,
        b'F' => flags.client_flags = number::unsigned_32(argument).ok_or(lines::BAD_FORMAT)?,
        b'M' => match argument {
            [mode] => flags.mode = Some(*mode),
            _ => return Err(lines::BAD_MODE_LENGTH),
        },
        b'b' => {
            flags.base64_key = true;
            let mut buffer: KeyBuffer = [0; KEY_MAX];
            decode_key(key, &mut buffer).ok_or(lines::BAD_BASE64)?;
        }
        _ => return Err(lines::INVALID_FLAG),
    }
    Ok(())
}

impl Flags {
    pub(crate) fn style<'a>(&self, flags: &'a [u8]) -> MetaStyle<'a> {
        let (quiet, base64_key, value, coded) = (self.quiet, self.base64_key, self.value, self.terms.error_codes);
        MetaStyle { flags, quiet, base64_key, value, coded, ..MetaStyle::default() }
    }
}

/// The argument of `V`. Version 0 orders nothing.
pub(crate) fn version(argument: &[u8]) -> Result<u64, &'static str> {
    match number::unsigned(argument) {
        Some(0) => Err(lines::BAD_VERSION),
        Some(version) => Ok(version),
        None => Err(lines::BAD_TOKEN),
    }
}
