//! Decoding of classic text: the whole grammar here, and a short way ([`fast`]) for what nearly every request looks like.

pub(crate) mod fast;
mod get;
pub(crate) mod line;
mod refused;
pub(crate) mod write;

use moneta_item::request::{Arithmetic, Delete, Exptime, KEY_MAX, Retrieve, WriteMode};

use crate::command::{Command, Grant, Keys, ReadVerb, Style, TextStyle};
use crate::refusal::{Refusal, lines};
use crate::stream::{Decoded, Decoder};
use crate::{meta, number};
use line::{Tokens, strip_line_end};
use refused::{miscounted, refused};

/// A line without an end within this many bytes closes the connection, unless it is a `get`.
const LINE_MAX: usize = 2048;
/// A `get` line is checked and executed whole up to this length, in bytes, and in parts beyond it.
pub(crate) const WHOLE_LINE_MAX: usize = 64 * 1024;

/// Decodes the front of `input`, which is not empty.
pub(crate) fn decode<'a>(decoder: &mut Decoder, input: &'a [u8]) -> Decoded<'a> {
    if let Some(long_get) = decoder.long_get() {
        return get::resume(decoder, input, long_get);
    }
    let searched = decoder.searched.min(input.len());
    let Some(end) = memchr::memchr(b'\n', &input[searched..]) else {
        return unfinished(decoder, input);
    };
    decoder.searched = 0;
    let consumed = searched + end + 1;
    let line = strip_line_end(&input[..consumed]);
    dispatch(decoder, input, line, consumed)
}

fn unfinished<'a>(decoder: &mut Decoder, input: &'a [u8]) -> Decoded<'a> {
    let is_get = get::is_long(input);
    if input.len() > LINE_MAX && !is_get {
        return Decoded::Close;
    }
    if input.len() >= WHOLE_LINE_MAX && is_get {
        decoder.searched = 0;
        return get::start_in_parts(decoder, input);
    }
    decoder.searched = input.len();
    Decoded::Partial { needed: input.len() + 1 }
}

fn dispatch<'a>(decoder: &mut Decoder, input: &'a [u8], line: &'a [u8], consumed: usize) -> Decoded<'a> {
    let (word, rest) = line::split_word(line);
    match word {
        b"get" | b"bget" => get::decode(rest, false, consumed),
        b"gets" => get::decode(rest, true, consumed),
        b"gat" => get::decode_with_touch(rest, false, decoder.wide_times(), consumed),
        b"gats" => get::decode_with_touch(rest, true, decoder.wide_times(), consumed),
        b"mg" | b"ms" | b"md" | b"ma" | b"mn" | b"me" | b"mf" | b"mv" => {
            meta::decode(decoder, input, word, rest, consumed)
        }
        b"set" => write::decode(decoder, input, rest, consumed, WriteMode::Set, false),
        b"add" => write::decode(decoder, input, rest, consumed, WriteMode::Add, false),
        b"replace" => write::decode(decoder, input, rest, consumed, WriteMode::Replace, false),
        b"append" => write::decode(decoder, input, rest, consumed, WriteMode::Append, false),
        b"prepend" => write::decode(decoder, input, rest, consumed, WriteMode::Prepend, false),
        b"cas" => write::decode(decoder, input, rest, consumed, WriteMode::Set, true),
        b"" if line::trim(rest).is_empty() => refused(lines::BAD_FORMAT, consumed),
        [_] if rest.is_empty() => refused(lines::BAD_FORMAT, consumed),
        _ => match decode_simple(word, rest, decoder.wide_times()) {
            Ok(command) => {
                if let Command::Grant(grant) = command {
                    decoder.grant(grant);
                }
                Decoded::Command { command, consumed }
            }
            Err(_) if is_http(line) => Decoded::Close,
            Err(refusal) => Decoded::Refused { refusal, consumed },
        },
    }
}

/// Whether a line that is no command is the first of an HTTP request: a browser, or a page that makes one post to this port. What
/// follows is headers and a body that a third party may have written, so none of it may be taken for commands.
fn is_http(line: &[u8]) -> bool {
    line.rsplit(|&byte| byte == b' ').find(|token| !token.is_empty()).is_some_and(|last| last.starts_with(b"HTTP/"))
}

/// The commands that are one line and no `get`.
fn decode_simple<'a>(word: &[u8], rest: &'a [u8], wide_times: bool) -> Result<Command<'a>, Refusal<'a>> {
    let tokens = Tokens::split(rest);
    let style = Style::Text(TextStyle { noreply: tokens.last() == Some(b"noreply"), ..TextStyle::default() });
    let arguments = line::trim(rest);
    match word {
        b"delete" => delete(&tokens),
        b"incr" => arithmetic(&tokens, false),
        b"decr" => arithmetic(&tokens, true),
        b"touch" => touch(&tokens, wide_times),
        b"flush_all" => flush_all(&tokens, wide_times),
        b"version" => Ok(Grant::ALL
            .into_iter()
            .find(|grant| grant.word().as_bytes() == arguments)
            .map_or(Command::Version(Style::Text(TextStyle::default())), Command::Grant)),
        b"quit" => Ok(Command::Quit(Style::Text(TextStyle::default()))),
        b"verbosity" => verbosity(&tokens, style),
        b"refresh_certs" => Ok(Command::RefreshCerts(style)),
        b"cache_memlimit" => cache_memlimit(&tokens, style),
        b"stats" => Ok(Command::Stats { arguments, style: Style::Text(TextStyle::default()) }),
        b"watch" => Ok(Command::Watch { arguments }),
        b"changes" => Ok(Command::Changes { arguments }),
        b"board" => Ok(Command::Board { arguments }),
        b"lru_crawler" => Ok(Command::LruCrawler { arguments, style: Style::Text(TextStyle::default()) }),
        b"lru" if !tokens.is_empty() => Ok(Command::Lru { arguments, style }),
        b"slabs" => Ok(Command::Slabs { arguments, style }),
        b"shutdown" => Ok(Command::Shutdown { arguments }),
        _ => Err(Refusal::text(lines::ERROR)),
    }
}

/// The style of a command whose last token may be `noreply`, if it has more than `least` tokens.
fn style_of(tokens: &Tokens<'_>, least: usize) -> (bool, Style<'static>) {
    let noreply = tokens.len() > least && tokens.last() == Some(b"noreply");
    (noreply, Style::Text(TextStyle { noreply, ..TextStyle::default() }))
}

fn key_of<'a>(tokens: &Tokens<'a>, noreply: bool) -> Result<&'a [u8], Refusal<'a>> {
    let key = tokens.get(0);
    if key.len() > KEY_MAX {
        return Err(Refusal::text(lines::BAD_FORMAT).hidden_if(noreply));
    }
    Ok(key)
}

/// Whether a line has `count` tokens, or these and `noreply`. What stands after `noreply` is not looked at.
fn ends_after(tokens: &Tokens<'_>, count: usize) -> bool {
    tokens.len() == count || tokens.get(count) == b"noreply"
}

/// `delete KEY [NUMBER] [noreply]`; the number is what is left of a delay that memcached once had, and clients still send it.
fn delete<'a>(tokens: &Tokens<'a>) -> Result<Command<'a>, Refusal<'a>> {
    if tokens.is_empty() {
        return Err(Refusal::text(lines::BAD_FORMAT));
    }
    let (noreply, style) = style_of(tokens, 1);
    let delay = tokens.get(1);
    let has_delay = number::signed(delay).is_some() || number::unsigned(delay).is_some();
    if !ends_after(tokens, 1 + usize::from(has_delay)) {
        let line = if tokens.len() > 3 { lines::ERROR } else { lines::DELETE_USAGE };
        return Err(Refusal::text(line).hidden_if(noreply));
    }
    Ok(Command::Delete { key: key_of(tokens, noreply)?, request: Delete::default(), style })
}

/// `incr KEY DELTA [noreply]`, `decr`.
fn arithmetic<'a>(tokens: &Tokens<'a>, decrement: bool) -> Result<Command<'a>, Refusal<'a>> {
    if tokens.len() != 3 && !ends_after(tokens, 2) {
        return Err(Refusal::text(miscounted(tokens, 2)));
    }
    let (noreply, style) = style_of(tokens, 0);
    let key = key_of(tokens, noreply)?;
    let Some(delta) = number::unsigned(tokens.get(1)) else {
        return Err(Refusal::text(lines::BAD_DELTA).hidden_if(noreply));
    };
    Ok(Command::Arithmetic { key, request: Arithmetic { delta, decrement, ..Arithmetic::default() }, style })
}

/// `touch KEY EXPTIME [noreply]`.
fn touch<'a>(tokens: &Tokens<'a>, wide_times: bool) -> Result<Command<'a>, Refusal<'a>> {
    if tokens.len() != 3 && !ends_after(tokens, 2) {
        return Err(Refusal::text(miscounted(tokens, 2)));
    }
    let (noreply, style) = style_of(tokens, 0);
    let key = key_of(tokens, noreply)?;
    let Some(exptime) = number::exptime(tokens.get(1), wide_times) else {
        return Err(Refusal::text(lines::BAD_EXPTIME).hidden_if(noreply));
    };
    let request = Retrieve { touch: Some(exptime), ..Retrieve::default() };
    Ok(Command::Get { keys: Keys::One(key), request, verb: ReadVerb::Touch, style })
}

/// `flush_all [DELAY] [noreply]`.
fn flush_all<'a>(tokens: &Tokens<'a>, wide_times: bool) -> Result<Command<'a>, Refusal<'a>> {
    if tokens.len() > 2 && !ends_after(tokens, 1) {
        return Err(Refusal::text(lines::ERROR));
    }
    let (noreply, style) = style_of(tokens, 0);
    let mut delay = Exptime(0);
    if tokens.len() > usize::from(noreply) {
        let Some(then) = number::exptime(tokens.get(0), wide_times) else {
            return Err(Refusal::text(lines::BAD_EXPTIME).hidden_if(noreply));
        };
        delay = then;
    }
    Ok(Command::FlushAll { delay, style })
}

/// `verbosity LEVEL [noreply]`.
fn verbosity<'a>(tokens: &Tokens<'a>, style: Style<'a>) -> Result<Command<'a>, Refusal<'a>> {
    if tokens.len() != 2 && !ends_after(tokens, 1) {
        return Err(Refusal::text(miscounted(tokens, 1)));
    }
    let (noreply, _) = style_of(tokens, 0);
    match number::unsigned_32(tokens.get(0)) {
        Some(level) => Ok(Command::Verbosity { level, style }),
        None => Err(Refusal::text(lines::BAD_FORMAT).hidden_if(noreply)),
    }
}

/// `cache_memlimit MEBIBYTES [noreply]`.
fn cache_memlimit<'a>(tokens: &Tokens<'a>, style: Style<'a>) -> Result<Command<'a>, Refusal<'a>> {
    if !matches!(tokens.len(), 1 | 2) {
        return Err(Refusal::text(lines::ERROR));
    }
    let (noreply, _) = style_of(tokens, 0);
    match number::unsigned(tokens.get(0)) {
        Some(mebibytes) => Ok(Command::CacheMemlimit { mebibytes, style }),
        None => Err(Refusal::text(lines::ERROR).hidden_if(noreply)),
    }
}
