//! From replies to bytes, in whichever protocol the request came. Everything is appended to a buffer; nothing is kept.

mod binary;
mod meta;
mod text;

use moneta_item::ItemRef;

use crate::command::{BinaryStyle, Style};
use crate::refusal::Message;
use crate::reply::Reply;
use crate::status::Status;

pub use binary::{packet as binary_packet, stat_end as binary_stat_end};

/// Appends an item that was read; `key` as it was sent, `now` in Unix seconds.
#[inline]
pub fn item(style: &Style<'_>, key: &[u8], item: &ItemRef<'_>, now: u32, out: &mut Vec<u8>) {
    match style {
        Style::Text(style) => text::item(*style, key, item, out),
        Style::Meta(style) => meta::item(style, key, item, now, out),
        Style::Binary(style) => binary::item(*style, key, item, out),
    }
}

/// Appends what came of a command, or nothing if it is not to be told.
#[inline]
pub fn reply(style: &Style<'_>, key: &[u8], reply: Reply<'_>, now: u32, out: &mut Vec<u8>) {
    match style {
        Style::Text(style) => text::reply(*style, reply, out),
        Style::Meta(style) => meta::reply(style, key, reply, now, out),
        Style::Binary(style) => binary::reply(*style, key, reply, out),
    }
}

/// Appends the end of a `get`: as [`reply`] with [`Reply::End`], without the choice among all replies.
#[inline]
pub fn end_of_get(style: &Style<'_>, out: &mut Vec<u8>) {
    if let Style::Text(_) = style {
        out.extend_from_slice(b"END\r\n");
    }
}

/// Appends one statistic.
pub fn stat(style: &Style<'_>, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    match style {
        Style::Binary(style) => binary::packet(*style, Status::Ok, &[], name, value, 0, out),
        _ => {
            for part in [&b"STAT "[..], name, b" ", value, b"\r\n"] {
                out.extend_from_slice(part);
            }
        }
    }
}

/// Appends the end of a list of statistics.
pub fn stat_end(style: &Style<'_>, out: &mut Vec<u8>) {
    match style {
        Style::Binary(style) => binary::stat_end(*style, out),
        _ => out.extend_from_slice(b"END\r\n"),
    }
}

/// Appends an error.
#[cold]
pub fn message(message: Message, out: &mut Vec<u8>) {
    match message {
        Message::Text(line) => text::line(line, out),
        Message::Binary(style, status) => binary_error(style, status, out),
    }
}

/// Appends a binary error with the text that goes with its status.
#[cold]
pub fn binary_error(style: BinaryStyle, status: Status, out: &mut Vec<u8>) {
    binary::packet(style, status, &[], &[], status.text().as_bytes(), 0, out);
}

/// Appends a number in decimal.
#[inline]
fn number(number: impl itoa::Integer, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
