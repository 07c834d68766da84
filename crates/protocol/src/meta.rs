//! Decoding of the meta commands: two letters, a key, flags in any order.

use moneta_item::Newer;
use moneta_item::request::{Arithmetic, Create, Delete, KEY_MAX, Retrieve, Write, WriteMode};

use crate::base64::{KeyBuffer, decode_key};
use crate::command::{Command, Keys, MetaStyle, ReadVerb, Style};
use crate::flags::{Flags, Terms, Verb, parse};
use crate::refusal::{Refusal, lines};
use crate::stream::{Decoded, Decoder};
use crate::text::line::next_token;
use crate::text::write::{length_of, with_its_block, without_length};
use crate::versions;

fn terms_of(decoder: &Decoder) -> Terms {
    Terms {
        wide_times: decoder.wide_times(),
        refuses_chosen_cas: decoder.refuses_chosen_cas(),
        error_codes: decoder.error_codes(),
    }
}

/// Decodes a meta command; `rest` is what stands after its two letters on the line.
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
    if matches!(word, b"mv" | b"mf") {
        return match if word == b"mv" { versions::ask(rest) } else { versions::floor(rest) } {
            Ok(command) => Decoded::Command { command, consumed },
            Err(line) => Decoded::Refused { refusal: Refusal::text(line), consumed },
        };
    }
    if word == b"ms" {
        return set(decoder, input, rest, consumed);
    }
    let Some(key) = next_token(&mut rest) else {
        return Decoded::Refused { refusal: Refusal::text(lines::BAD_FORMAT), consumed };
    };
    let terms = terms_of(decoder);
    let decoded = if key.len() > KEY_MAX {
        Err(lines::BAD_FORMAT)
    } else {
        match word {
            b"mg" => get(key, rest, terms),
            b"md" => delete(key, rest, terms),
            b"ma" => arithmetic(key, rest, terms),
            _ => Ok(debug(key, rest)),
        }
    };
    match decoded {
        Ok(command) => Decoded::Command { command, consumed },
        Err(line) => Decoded::Refused { refusal: Refusal::text(line), consumed },
    }
}

fn get<'a>(key: &'a [u8], rest: &'a [u8], terms: Terms) -> Result<Command<'a>, &'static str> {
    let flags = parse(Verb::Get, rest, key, 2, terms)?;
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
        claim: !flags.shows_marks,
        brief: false,
    };
    Ok(Command::Get { keys: Keys::One(key), request, verb: ReadVerb::Meta, style: Style::Meta(style) })
}

/// `md` and `ma` tell an unknown flag in words of their own.
fn parse_change(verb: Verb, rest: &[u8], key: &[u8], terms: Terms) -> Result<Flags, &'static str> {
    let flags = parse(verb, rest, key, 2, terms).map_err(|line| match line {
        lines::DUPLICATE_FLAG | lines::TOO_MANY_FLAGS | lines::BAD_VERSION | lines::NO_CHOSEN_CAS => line,
        _ => lines::INVALID_OR_DUPLICATE_FLAG,
    })?;
    if flags.opaque_too_long { Err(lines::OPAQUE_TOO_LONG) } else { Ok(flags) }
}

fn delete<'a>(key: &'a [u8], rest: &'a [u8], terms: Terms) -> Result<Command<'a>, &'static str> {
    let flags = parse_change(Verb::Delete, rest, key, terms)?;
    if flags.version.is_some() {
        return versions::bury(key, rest, &flags);
    }
    let request = Delete {
        compare: flags.compare,
        new_cas: flags.new_cas,
        invalidate: flags.invalidate,
        touch: flags.touch,
        drop_value: flags.drop_value,
    };
    Ok(Command::Delete { key, request, style: Style::Meta(flags.style(rest)) })
}

fn arithmetic<'a>(key: &'a [u8], rest: &'a [u8], terms: Terms) -> Result<Command<'a>, &'static str> {
    let flags = parse_change(Verb::Arithmetic, rest, key, terms)?;
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

/// `me KEY [b]`; nothing else is looked at. A key that is no base64 is looked for as it stands.
fn debug<'a>(key: &'a [u8], mut rest: &'a [u8]) -> Command<'a> {
    let mut buffer: KeyBuffer = [0; KEY_MAX];
    let base64_key = next_token(&mut rest) == Some(b"b") && decode_key(key, &mut buffer).is_some();
    Command::MetaDebug { key, style: Style::Meta(MetaStyle { base64_key, ..MetaStyle::default() }) }
}

/// `ms KEY LENGTH FLAGS*` and its data block, which a refused line takes with it.
fn set<'a>(decoder: &mut Decoder, input: &'a [u8], mut rest: &'a [u8], line: usize) -> Decoded<'a> {
    let key = next_token(&mut rest).unwrap_or_default();
    let Some(length) = next_token(&mut rest).and_then(length_of) else {
        return without_length(line);
    };
    let (request, style) = match set_request(key, rest, terms_of(decoder)) {
        Ok(decoded) => decoded,
        Err(error) => {
            let surplus = next_token(&mut rest).unwrap_or_default();
            return with_its_block(decoder, Refusal::text(error), length, surplus, line);
        }
    };
    if length > decoder.item_max() as u64 {
        decoder.swallow(length + 2);
        let mut refusal = Refusal::text(lines::TOO_LARGE).over_the_limit().forgetting(key, style.base64_key);
        if let Stores::Newer(item) = request {
            refusal = refusal.only_older_than(item.version);
        }
        return Decoded::Refused { refusal, consumed: line };
    }
    let end = line + length as usize;
    let Some(terminator) = input.get(end..end + 2) else {
        return Decoded::Partial { needed: end + 2 };
    };
    if terminator != b"\r\n" {
        return Decoded::Refused { refusal: Refusal::text(lines::BAD_DATA_CHUNK), consumed: end + 2 };
    }
    let (value, style) = (&input[line..end], Style::Meta(style));
    let command = match request {
        Stores::Write(request) => Command::Set { key, value, request, style },
        Stores::Newer(item) => Command::PutNewer { key, value, item, style },
    };
    Decoded::Command { command, consumed: end + 2 }
}

/// What an `ms` is to do with its data block.
enum Stores {
    Write(Write),
    Newer(Newer),
}

fn set_request<'a>(key: &[u8], rest: &'a [u8], terms: Terms) -> Result<(Stores, MetaStyle<'a>), &'static str> {
    if key.len() > KEY_MAX {
        return Err(lines::BAD_FORMAT);
    }
    let flags = parse(Verb::Set, rest, key, 3, terms)?;
    if let Some(item) = versions::newer(rest, &flags)? {
        let style = MetaStyle { stores: true, ..flags.style(rest) };
        return if flags.opaque_too_long { Err(lines::OPAQUE_TOO_LONG) } else { Ok((Stores::Newer(item), style)) };
    }
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
    Ok((Stores::Write(request), MetaStyle { stores: true, ..flags.style(rest) }))
}
