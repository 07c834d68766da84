//! `set` and its kin: a line, then the data block it announces.

use moneta_item::request::{KEY_MAX, Write, WriteMode};

use super::line::Tokens;
use super::refused::{miscounted, refused};
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
    /// Bytes of the line, its end included.
    pub(super) line: usize,
}

/// The length of a data block, if it is one.
pub(crate) fn length_of(token: &[u8]) -> Option<u64> {
    number::unsigned(token).filter(|&length| length <= LENGTH_MAX)
}

/// `set KEY FLAGS EXPTIME LENGTH [noreply]` and `cas KEY FLAGS EXPTIME LENGTH CAS [noreply]`.
pub(super) fn decode<'a>(
    decoder: &mut Decoder,
    input: &'a [u8],
    rest: &'a [u8],
    line: usize,
    mode: WriteMode,
    with_cas: bool,
) -> Decoded<'a> {
    let tokens = Tokens::split(rest);
    let fixed = 4 + usize::from(with_cas);
    if tokens.len() != fixed && tokens.len() != fixed + 1 {
        return refused(miscounted(&tokens, fixed), line);
    }
    let noreply = tokens.last() == Some(b"noreply");
    let bad_format = Refusal::text(lines::BAD_FORMAT).hidden_if(noreply);
    let length = length_of(tokens.get(3));
    if tokens.get(0).len() > KEY_MAX {
        if let Some(length) = length {
            decoder.swallow(length + 2);
        }
        return Decoded::Refused { refusal: bad_format, consumed: line };
    }
    let numbers =
        (number::unsigned_32(tokens.get(1)), number::exptime_to_store(tokens.get(2), decoder.wide_times()), length);
    let (Some(flags), Some(exptime), Some(length)) = numbers else {
        return Decoded::Refused { refusal: bad_format, consumed: line };
    };
    let mut request = Write { mode, flags, exptime, ..Write::default() };
    if with_cas {
        request.compare = number::unsigned(tokens.get(4));
        if request.compare.is_none() {
            return Decoded::Refused { refusal: bad_format, consumed: line };
        }
    }
    with_block(decoder, input, Header { key: tokens.get(0), request, length, noreply, line })
}

/// Joins a line with its data block.
#[inline]
pub(super) fn with_block<'a>(decoder: &mut Decoder, input: &'a [u8], header: Header<'a>) -> Decoded<'a> {
    let Header { key, request, length, noreply, line } = header;
    if length > decoder.item_max() as u64 {
        return too_large(decoder, &header);
    }
    let end = line + length as usize;
    let Some(terminator) = input.get(end..end + 2) else {
        return Decoded::Partial { needed: end + 2 };
    };
    if terminator != b"\r\n" {
        let refusal = Refusal::text(lines::BAD_DATA_CHUNK).hidden_if(noreply);
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
