//! `set` and its kin: a line, then the data block it announces.

use moneta_item::request::{KEY_MAX, Write, WriteMode};

use super::line::Tokens;
use crate::command::{Command, Style, TextStyle};
use crate::number;
use crate::refusal::{Refusal, lines};
use crate::stream::{Decoded, Decoder};

/// Largest length a data block may announce: it and its line end must count in 31 bits.
const LENGTH_MAX: u64 = 0x7fff_ffff - 2;

/// A decoded line of the `set` family.
pub(super) struct Header<'a> {
    pub(super) key: &'a [u8],
    pub(super) request: Write,
    pub(super) length: u64,
    pub(super) noreply: bool,
    /// The first token that the line has too many of, if any.
    pub(super) surplus: &'a [u8],
    /// Bytes of the line, its end included.
    pub(super) line: usize,
}

/// The length of a data block, if it is one. A sign is refused, as by memcached.
pub(crate) fn length_of(token: &[u8]) -> Option<u64> {
    if token.first() == Some(&b'+') {
        return None;
    }
    number::unsigned(token).filter(|&length| length <= LENGTH_MAX)
}

/// `set KEY FLAGS EXPTIME LENGTH [noreply]` and `cas KEY FLAGS EXPTIME LENGTH CAS [noreply]`. Further tokens are not looked at;
/// `noreply` counts where it is the last one.
pub(super) fn decode<'a>(
    decoder: &mut Decoder,
    input: &'a [u8],
    rest: &'a [u8],
    line: usize,
    mode: WriteMode,
    with_cas: bool,
) -> Decoded<'a> {
    let tokens = Tokens::split(rest);
    let Some(length) = length_of(tokens.get(3)) else {
        return without_length(line);
    };
    let noreply = tokens.last() == Some(b"noreply");
    let surplus = tokens.get(4 + usize::from(with_cas));
    let Some(request) = write_of(&tokens, mode, with_cas, decoder.wide_times()) else {
        let refusal = Refusal::text(lines::BAD_FORMAT).hidden_if(noreply);
        return with_its_block(decoder, refusal, length, surplus, line);
    };
    with_block(decoder, input, Header { key: tokens.get(0), request, length, noreply, surplus, line })
}

/// What a line asks for, if its key and its numbers are such.
fn write_of(tokens: &Tokens<'_>, mode: WriteMode, with_cas: bool, wide_times: bool) -> Option<Write> {
    if tokens.get(0).len() > KEY_MAX {
        return None;
    }
    let flags = number::unsigned_32(tokens.get(1))?;
    let exptime = number::exptime_to_store(tokens.get(2), wide_times)?;
    let compare = if with_cas { Some(number::unsigned(tokens.get(4))?) } else { None };
    Some(Write { mode, flags, exptime, compare, ..Write::default() })
}

/// Refuses a line that does not tell how long its data block is. Where the next command begins cannot be known then, and a block
/// that is taken for commands is run: the connection closes.
#[cold]
pub(crate) fn without_length<'a>(line: usize) -> Decoded<'a> {
    Decoded::Refused { refusal: Refusal::text(lines::BAD_FORMAT).then_close(), consumed: line }
}

/// Refuses a line together with its data block of `length` bytes, which is thrown away as it comes: as a command it would be run.
/// A number as `surplus` token may be the true length, after a key with a space in it: then the connection closes.
#[cold]
pub(crate) fn with_its_block<'a>(
    decoder: &mut Decoder,
    refusal: Refusal<'a>,
    length: u64,
    surplus: &[u8],
    line: usize,
) -> Decoded<'a> {
    if length_of(surplus).is_some() {
        return Decoded::Refused { refusal: refusal.then_close(), consumed: line };
    }
    decoder.swallow(length + 2);
    Decoded::Refused { refusal, consumed: line }
}

/// Joins a line with its data block.
#[inline]
pub(super) fn with_block<'a>(decoder: &mut Decoder, input: &'a [u8], header: Header<'a>) -> Decoded<'a> {
    let Header { key, request, length, noreply, surplus, line } = header;
    if length > decoder.item_max() as u64 {
        return too_large(decoder, &header);
    }
    let end = line + length as usize;
    let Some(terminator) = input.get(end..end + 2) else {
        return Decoded::Partial { needed: end + 2 };
    };
    if terminator != b"\r\n" {
        let mut refusal = Refusal::text(lines::BAD_DATA_CHUNK).hidden_if(noreply);
        if length_of(surplus).is_some() {
            refusal = refusal.then_close();
        }
        return Decoded::Refused { refusal, consumed: end + 2 };
    }
    let style = Style::Text(TextStyle { noreply, with_cas: false, more: false });
    Decoded::Command { command: Command::Set { key, value: &input[line..end], request, style }, consumed: end + 2 }
}

#[cold]
fn too_large<'a>(decoder: &mut Decoder, header: &Header<'a>) -> Decoded<'a> {
    decoder.swallow(header.length + 2);
    let mut refusal = Refusal::text(lines::TOO_LARGE).hidden_if(header.noreply).over_the_limit();
    if header.request.mode == WriteMode::Set && header.request.compare.is_none() {
        refusal = refusal.forgetting(header.key, false);
    }
    Decoded::Refused { refusal, consumed: header.line }
}
