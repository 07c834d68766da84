//! Binary replies: a 24-byte header and a body.

use moneta_item::ItemRef;

use crate::binary::{HEADER, RESPONSE_MAGIC, opcode};
use crate::command::BinaryStyle;
use crate::reply::Reply;
use crate::status::Status;

/// The header of a reply:
///
/// ```text
///  0      1       2 3         4           5          6 7      8      11 12    15 16  23
/// ┌──────┬────────┬──────────┬───────────┬──────────┬────────┬─────────┬────────┬─────┐
/// │ 0x81 │ opcode │ key size │ extras    │ 0        │ status │ body    │ opaque │ cas │
/// └──────┴────────┴──────────┴───────────┴──────────┴────────┴─────────┴────────┴─────┘
/// ```
#[inline]
fn header(style: BinaryStyle, status: Status, extras: usize, key: usize, value: usize, cas: u64) -> [u8; HEADER] {
    let mut header = [0; HEADER];
    header[0] = RESPONSE_MAGIC;
    header[1] = style.opcode;
    header[2..4].copy_from_slice(&(key as u16).to_be_bytes());
    header[4] = extras as u8;
    header[6..8].copy_from_slice(&(status as u16).to_be_bytes());
    header[8..12].copy_from_slice(&((extras + key + value) as u32).to_be_bytes());
    header[12..16].copy_from_slice(&style.opaque.to_be_bytes());
    header[16..24].copy_from_slice(&cas.to_be_bytes());
    header
}

/// Appends a whole reply.
pub fn packet(
    style: BinaryStyle,
    status: Status,
    extras: &[u8],
    key: &[u8],
    value: &[u8],
    cas: u64,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&header(style, status, extras.len(), key.len(), value.len(), cas));
    out.extend_from_slice(extras);
    out.extend_from_slice(key);
    out.extend_from_slice(value);
}

/// Appends the empty packet that ends a list of statistics.
pub fn stat_end(style: BinaryStyle, out: &mut Vec<u8>) {
    packet(style, Status::Ok, &[], &[], &[], 0, out);
}

#[inline]
pub(super) fn item(style: BinaryStyle, key: &[u8], item: &ItemRef<'_>, out: &mut Vec<u8>) {
    let key = if style.with_key { key } else { &[] };
    let length = if style.without_value { 0 } else { item.value.len() };
    out.reserve(HEADER + 4 + key.len() + length);
    out.extend_from_slice(&header(style, Status::Ok, 4, key.len(), length, item.meta.cas));
    out.extend_from_slice(&item.meta.flags.to_be_bytes());
    out.extend_from_slice(key);
    if !style.without_value {
        item.value.copy_to(out);
    }
}

#[cold]
fn error(style: BinaryStyle, status: Status, out: &mut Vec<u8>) {
    packet(style, status, &[], &[], status.text().as_bytes(), 0, out);
}

#[inline]
pub(super) fn reply(style: BinaryStyle, key: &[u8], reply: Reply<'_>, out: &mut Vec<u8>) {
    match reply {
        Reply::Miss if style.quiet => {}
        Reply::Miss if style.with_key => packet(style, Status::NotFound, &[], key, &[], 0, out),
        Reply::Miss | Reply::NotFound => error(style, Status::NotFound, out),
        Reply::Stored { .. } | Reply::Unchanged { .. } | Reply::Deleted | Reply::Ok | Reply::Number { .. }
            if style.quiet => {}
        Reply::Stored { cas, .. } | Reply::Unchanged { cas, .. } => packet(style, Status::Ok, &[], &[], &[], cas, out),
        Reply::Deleted | Reply::Ok | Reply::Noop => packet(style, Status::Ok, &[], &[], &[], 0, out),
        Reply::Number { number, meta, .. } => {
            packet(style, Status::Ok, &[], &[], &number.to_be_bytes(), meta.cas, out);
        }
        Reply::Exists | Reply::Superseded { .. } => error(style, Status::Exists, out),
        // The condition that did not hold tells what is there.
        Reply::NotStored => match style.opcode {
            opcode::ADD | opcode::ADD_QUIET => error(style, Status::Exists, out),
            opcode::REPLACE | opcode::REPLACE_QUIET => error(style, Status::NotFound, out),
            _ => error(style, Status::NotStored, out),
        },
        Reply::NonNumeric => error(style, Status::NonNumeric, out),
        Reply::TooLarge => error(style, Status::TooLarge, out),
        Reply::OutOfMemory => error(style, Status::OutOfMemory, out),
        Reply::Failed { why, .. } => packet(style, Status::TemporaryFailure, &[], &[], why.as_bytes(), 0, out),
        Reply::Version(text) | Reply::Line(text) => packet(style, Status::Ok, &[], &[], text.as_bytes(), 0, out),
        Reply::End => {}
    }
}
