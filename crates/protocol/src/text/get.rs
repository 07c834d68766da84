//! `get`, `gets`, `gat`, `gats`: lines of any length, executed whole where they fit and key by key where they do not.

use moneta_item::request::{Exptime, KEY_MAX, Retrieve};

use super::WHOLE_LINE_MAX;
use super::line::next_token;
use super::refused::refused;
use crate::command::{Command, Keys, ReadVerb, Style, TextStyle};
use crate::number;
use crate::refusal::lines;
use crate::stream::{Decoded, Decoder, LongGet};

/// Whether an unfinished line may be longer than other commands' lines.
pub(super) fn is_long(line: &[u8]) -> bool {
    [&b"get "[..], b"gets ", b"gat ", b"gats "].iter().any(|word| line.starts_with(word))
}

fn command<'a>(keys: &'a [u8], with_cas: bool, touch: Option<Exptime>, more: bool) -> Command<'a> {
    Command::Get {
        keys: Keys::Line(keys),
        request: Retrieve { touch, brief: !with_cas, ..Retrieve::default() },
        verb: if touch.is_some() { ReadVerb::GetAndTouch } else { ReadVerb::Get },
        style: Style::Text(TextStyle { noreply: false, with_cas, more }),
    }
}

/// Whether every token of `line` is short enough for a key. Looks back from the end of what one key may take, so it reads
/// a few bytes for every 250.
fn keys_fit(mut line: &[u8]) -> bool {
    while line.len() > KEY_MAX {
        match memchr::memrchr(b' ', &line[..=KEY_MAX]) {
            Some(space) => line = &line[space + 1..],
            None => return false,
        }
    }
    true
}

/// `get` and `gets`, the line being all there.
pub(super) fn decode(rest: &[u8], with_cas: bool, consumed: usize) -> Decoded<'_> {
    if rest.iter().all(|&byte| byte == b' ') {
        return refused(lines::BAD_FORMAT, consumed);
    }
    if !keys_fit(rest) {
        return refused(lines::BAD_FORMAT, consumed);
    }
    Decoded::Command { command: command(rest, with_cas, None, false), consumed }
}

/// `gat` and `gats`, the line being all there.
pub(super) fn decode_with_touch(mut rest: &[u8], with_cas: bool, wide_times: bool, consumed: usize) -> Decoded<'_> {
    let Some(exptime) = next_token(&mut rest) else {
        return refused(lines::BAD_FORMAT, consumed);
    };
    if rest.iter().all(|&byte| byte == b' ') {
        return refused(lines::BAD_FORMAT, consumed);
    }
    let Some(exptime) = number::exptime(exptime, wide_times) else {
        return refused(lines::BAD_EXPTIME, consumed);
    };
    if !keys_fit(rest) {
        return refused(lines::BAD_FORMAT, consumed);
    }
    Decoded::Command { command: command(rest, with_cas, Some(exptime), false), consumed }
}

/// Begins a line that is too long to wait for its end.
pub(super) fn start_in_parts<'a>(decoder: &mut Decoder, input: &'a [u8]) -> Decoded<'a> {
    let mut rest = input;
    let word = next_token(&mut rest).unwrap_or_default();
    let mut touch = None;
    if word.starts_with(b"gat") {
        let token = next_token(&mut rest).unwrap_or_default();
        let Some(exptime) = number::exptime(token, decoder.wide_times()) else {
            return Decoded::Close;
        };
        touch = Some(exptime);
    }
    let skipped = input.len() - rest.len();
    match resume(decoder, rest, LongGet { with_cas: word.ends_with(b"s"), touch, checked: None }) {
        Decoded::Command { command, consumed } => Decoded::Command { command, consumed: skipped + consumed },
        Decoded::Refused { refusal, consumed } => Decoded::Refused { refusal, consumed: skipped + consumed },
        other => other,
    }
}

/// The next keys of a line that is executed in parts. The answer to a key that is too long comes after those of the keys
/// before it; the rest of the line cannot be told from a command then, so the connection closes.
pub(super) fn resume<'a>(decoder: &mut Decoder, input: &'a [u8], long_get: LongGet) -> Decoded<'a> {
    let LongGet { with_cas, touch, checked } = long_get;
    if let Some(end) = checked {
        decoder.set_long_get(None);
        let keys = super::strip_line_end(&input[..end]);
        return Decoded::Command { command: command(keys, with_cas, touch, false), consumed: end };
    }
    let searched = decoder.searched.min(input.len());
    decoder.searched = 0;
    if let Some(end) = memchr::memchr(b'\n', &input[searched..]) {
        let end = searched + end + 1;
        decoder.set_long_get(None);
        let keys = super::strip_line_end(&input[..end]);
        if !keys_fit(keys) {
            return refused(lines::BAD_FORMAT, end);
        }
        return Decoded::Command { command: command(keys, with_cas, touch, false), consumed: end };
    }
    decoder.set_long_get(Some(long_get));
    // Without its end in sight the last token may be half a key: stop before it.
    let whole = memchr::memrchr(b' ', input).map_or(0, |space| space + 1);
    if !keys_fit(&input[..whole]) || input.len() - whole > KEY_MAX + 1 {
        return Decoded::Refused {
            refusal: crate::refusal::Refusal::text(lines::BAD_FORMAT).then_close(),
            consumed: input.len(),
        };
    }
    if input.len() < WHOLE_LINE_MAX / 2 {
        decoder.searched = input.len();
        return Decoded::Partial { needed: input.len() + 1 };
    }
    Decoded::Command { command: command(&input[..whole], with_cas, touch, true), consumed: whole }
}
