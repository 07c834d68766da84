//! Decoding of the meta commands: two letters, a key, flags in any order.

use moneta_item::request::{Arithmetic, Create, Delete, Exptime, KEY_MAX, Retrieve, Write, WriteMode};

use crate::base64::{KeyBuffer, decode_key};
use crate::command::{Command, Keys, MetaStyle, ReadVerb, Style};
use crate::decoder::{Decoded, Decoder};
use crate::number;
use crate::refusal::{Refusal, lines};
use crate::text::{length_of, next_token};

/// Most tokens of a line: command, key and flags.
const TOKENS_MAX: usize = 20;
/// Longest opaque token, in bytes, its `O` included.
const OPAQUE_MAX: usize = 32;

/// What the flags of a line say, whatever the command.
#[derive(Default)]
struct Flags {
    base64_key: bool,
    invalidate: bool,
    quiet: bool,
    no_bump: bool,
    value: bool,
    drop_value: bool,
    opaque_too_long: bool,
    mode: Option<u8>,
    client_flags: u32,
    touch: Option<Exptime>,
    vivify: Option<Exptime>,
    /// Expiration time of an item that the command creates: of `T` and `N` the later one.
    created: Option<Exptime>,
    recache: Option<Exptime>,
    compare: Option<u64>,
    new_cas: Option<u64>,
    delta: Option<u64>,
    initial: u64,
    /// Not of the line, but of the connection: expiration times have 64 bits.
    wide_times: bool,
}

/// Reads the flags. A doubled or unknown flag ends it at once; of several bad arguments the last is told, as memcached does.
fn parse(line: &[u8], key: &[u8], tokens: usize, wide_times: bool) -> Result<Flags, &'static str> {
    let mut flags = Flags { wide_times, ..Flags::default() };
    let mut error = None;
    let mut seen: u128 = 0;
    let mut count = tokens;
    let mut rest = line;
    while let Some(token) = next_token(&mut rest) {
        count += 1;
        if count > TOKENS_MAX {
            return Err(lines::TOO_MANY_FLAGS);
        }
        let letter = token[0];
        if letter >= 127 || seen & (1 << letter) != 0 {
            return Err(unless_too_many(lines::DUPLICATE_FLAG, count, rest));
        }
        seen |= 1 << letter;
        if let Err(line) = parse_flag(&mut flags, letter, &token[1..], key) {
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

fn parse_flag(flags: &mut Flags, letter: u8, argument: &[u8], key: &[u8]) -> Result<(), &'static str> {
    match letter {
        b'k' | b's' | b't' | b'c' | b'f' | b'h' | b'l' | b'P' | b'L' => {}
        b'v' => flags.value = true,
        b'q' => flags.quiet = true,
        b'u' => flags.no_bump = true,
        b'I' => flags.invalidate = true,
        b'x' => flags.drop_value = true,
        b'O' => flags.opaque_too_long = argument.len() + 1 > OPAQUE_MAX,
        b'T' => {
            flags.touch = exptime(argument, flags.wide_times)?;
            flags.created = flags.touch;
        }
        b'N' => {
            flags.vivify = exptime(argument, flags.wide_times)?;
            flags.created = flags.vivify;
        }
        b'R' => flags.recache = exptime(argument, flags.wide_times)?,
        b'C' => flags.compare = Some(unsigned(argument, lines::BAD_TOKEN)?),
        b'E' => flags.new_cas = Some(unsigned(argument, lines::BAD_TOKEN)?),
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
    fn style<'a>(&self, flags: &'a [u8]) -> MetaStyle<'a> {
        MetaStyle { flags, quiet: self.quiet, base64_key: self.base64_key, value: self.value, ..MetaStyle::default() }
    }
}

/// Decodes a meta command; `rest` is what stands behind its two letters on the line.
pub(crate) fn decode<'a>(
    decoder: &mut Decoder,
    input: &'a [u8],
    word: &[u8],
    mut rest: &'a [u8],
    consumed: usize,
) -> Decoded<'a> {
    if word == b"mn" {
        return Decoded::Command { command: Command::Noop(Style::Meta(MetaStyle::default())), consumed };
    }
    let Some(key) = next_token(&mut rest) else {
        return Decoded::Refused { refusal: Refusal::text(lines::BAD_FORMAT), consumed };
    };
    if word == b"ms" {
        return set(decoder, input, key, rest, consumed);
    }
    let wide_times = decoder.wide_times();
    let decoded = if key.len() > KEY_MAX {
        Err(lines::BAD_FORMAT)
    } else {
        match word {
            b"mg" => get(key, rest, wide_times),
            b"md" => delete(key, rest, wide_times),
            b"ma" => arithmetic(key, rest, wide_times),
            _ => debug(key, rest),
        }
    };
    match decoded {
        Ok(command) => Decoded::Command { command, consumed },
        Err(line) => Decoded::Refused { refusal: Refusal::text(line), consumed },
    }
}

fn get<'a>(key: &'a [u8], rest: &'a [u8], wide_times: bool) -> Result<Command<'a>, &'static str> {
    let flags = parse(rest, key, 2, wide_times)?;
    if flags.opaque_too_long {
        return Err(lines::OPAQUE_TOO_LONG);
    }
    let style = MetaStyle { unless_cas: flags.compare, ..flags.style(rest) };
    let request = Retrieve {
        touch: flags.touch,
        vivify: flags.vivify.and(flags.created),
        recache: flags.recache,
        new_cas: flags.new_cas,
        bump: !flags.no_bump,
        claim: true,
    };
    Ok(Command::Get { keys: Keys::One(key), request, verb: ReadVerb::Meta, style: Style::Meta(style) })
}

/// `md` and `ma` tell an unknown flag in words of their own.
fn parse_change(rest: &[u8], key: &[u8], wide_times: bool) -> Result<Flags, &'static str> {
    let flags = parse(rest, key, 2, wide_times).map_err(|line| match line {
        lines::DUPLICATE_FLAG | lines::TOO_MANY_FLAGS => line,
        _ => lines::INVALID_OR_DUPLICATE_FLAG,
    })?;
    if flags.opaque_too_long { Err(lines::OPAQUE_TOO_LONG) } else { Ok(flags) }
}

fn delete<'a>(key: &'a [u8], rest: &'a [u8], wide_times: bool) -> Result<Command<'a>, &'static str> {
    let flags = parse_change(rest, key, wide_times)?;
    let request = Delete {
        compare: flags.compare,
        new_cas: flags.new_cas,
        invalidate: flags.invalidate,
        touch: flags.touch,
        drop_value: flags.drop_value,
    };
    Ok(Command::Delete { key, request, style: Style::Meta(flags.style(rest)) })
}

fn arithmetic<'a>(key: &'a [u8], rest: &'a [u8], wide_times: bool) -> Result<Command<'a>, &'static str> {
    let flags = parse_change(rest, key, wide_times)?;
    let decrement = match flags.mode {
        None | Some(b'I' | b'+') => false,
        Some(b'D' | b'-') => true,
        Some(_) => return Err(lines::BAD_ARITHMETIC_MODE),
    };
    let request = Arithmetic {
        delta: flags.delta.unwrap_or(1),
        decrement,
        create: flags.vivify.and(flags.created).map(|exptime| Create { initial: flags.initial, exptime }),
        touch: flags.touch,
        compare: flags.compare.filter(|&cas| cas != 0),
        new_cas: flags.new_cas,
    };
    Ok(Command::Arithmetic { key, request, style: Style::Meta(flags.style(rest)) })
}

/// `me KEY [b]`; nothing else is looked at.
fn debug<'a>(key: &'a [u8], mut rest: &'a [u8]) -> Result<Command<'a>, &'static str> {
    let mut style = MetaStyle::default();
    if next_token(&mut rest) == Some(b"b") {
        let mut buffer: KeyBuffer = [0; KEY_MAX];
        decode_key(key, &mut buffer).ok_or(lines::BAD_FORMAT)?;
        style.base64_key = true;
    }
    Ok(Command::MetaDebug { key, style: Style::Meta(style) })
}

/// `ms KEY LENGTH FLAGS*` and its data block. Once the length is known every refusal swallows the block.
fn set<'a>(decoder: &mut Decoder, input: &'a [u8], key: &'a [u8], mut rest: &'a [u8], line: usize) -> Decoded<'a> {
    let Some(length) = next_token(&mut rest).and_then(length_of) else {
        return Decoded::Refused { refusal: Refusal::text(lines::BAD_FORMAT), consumed: line };
    };
    let (request, style) = match set_request(key, rest, decoder.wide_times()) {
        Ok(decoded) => decoded,
        Err(error) => {
            decoder.swallow(length + 2);
            return Decoded::Refused { refusal: Refusal::text(error), consumed: line };
        }
    };
    if length > decoder.item_max() as u64 {
        decoder.swallow(length + 2);
        let refusal = Refusal::text(lines::TOO_LARGE).over_the_limit().forgetting(key, style.base64_key);
        return Decoded::Refused { refusal, consumed: line };
    }
    let end = line + length as usize;
    let Some(terminator) = input.get(end..end + 2) else {
        return Decoded::Partial { needed: end + 2 };
    };
    if terminator != b"\r\n" {
        return Decoded::Refused { refusal: Refusal::text(lines::BAD_DATA_CHUNK), consumed: end + 2 };
    }
    let command = Command::Set { key, value: &input[line..end], request, style: Style::Meta(style) };
    Decoded::Command { command, consumed: end + 2 }
}

fn set_request<'a>(key: &[u8], rest: &'a [u8], wide_times: bool) -> Result<(Write, MetaStyle<'a>), &'static str> {
    if key.len() > KEY_MAX {
        return Err(lines::BAD_FORMAT);
    }
    let flags = parse(rest, key, 3, wide_times)?;
    let mode = match flags.mode {
        None | Some(b'S') => WriteMode::Set,
        Some(b'E') => WriteMode::Add,
        Some(b'A') => WriteMode::Append,
        Some(b'P') => WriteMode::Prepend,
        Some(b'R') => WriteMode::Replace,
        Some(_) => return Err(lines::BAD_SET_MODE),
    };
    if flags.opaque_too_long {
        return Err(lines::OPAQUE_TOO_LONG);
    }
    let request = Write {
        mode,
        flags: flags.client_flags,
        exptime: flags.touch.unwrap_or_default(),
        // An add never meets an item to compare with; append and prepend take 0 for no wish to compare.
        compare: flags.compare.filter(|&cas| match mode {
            WriteMode::Add => false,
            WriteMode::Append | WriteMode::Prepend => cas != 0,
            WriteMode::Set | WriteMode::Replace => true,
        }),
        new_cas: flags.new_cas,
        // 0 is no version that the writer could have seen, so nothing is older than it.
        invalidate: flags.invalidate && flags.compare != Some(0) && matches!(mode, WriteMode::Set | WriteMode::Replace),
        vivify: flags.vivify.filter(|_| matches!(mode, WriteMode::Append | WriteMode::Prepend)),
    };
    Ok((request, MetaStyle { stores: true, ..flags.style(rest) }))
}
