//! Classic text replies.

use moneta_item::{ErrorCode, ItemRef};

use super::number;
use crate::command::TextStyle;
use crate::refusal::lines;
use crate::reply::Reply;

/// Room for what stands round key and value: `VALUE `, three numbers, spaces and line ends.
const AROUND: usize = 64;

#[inline]
pub(super) fn item(style: TextStyle, key: &[u8], item: &ItemRef<'_>, out: &mut Vec<u8>) {
    let length = item.value.len();
    // Once, so that the pieces below find their room without growing the buffer again and again.
    out.reserve(key.len() + length + AROUND);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    if item.meta.flags == 0 {
        out.extend_from_slice(b" 0 ");
    } else {
        out.push(b' ');
        number(item.meta.flags, out);
        out.push(b' ');
    }
    number(length, out);
    if style.with_cas {
        out.push(b' ');
        number(item.meta.cas, out);
    }
    out.extend_from_slice(b"\r\n");
    item.value.copy_to(out);
    out.extend_from_slice(b"\r\n");
}

#[inline]
pub(super) fn reply(style: TextStyle, reply: Reply<'_>, out: &mut Vec<u8>) {
    if style.noreply {
        return;
    }
    match reply {
        Reply::Miss => {}
        Reply::End => out.extend_from_slice(b"END\r\n"),
        Reply::Stored { .. } | Reply::Unchanged { .. } => out.extend_from_slice(b"STORED\r\n"),
        Reply::NotStored => out.extend_from_slice(b"NOT_STORED\r\n"),
        Reply::Exists | Reply::Superseded { .. } => out.extend_from_slice(b"EXISTS\r\n"),
        Reply::NotFound => out.extend_from_slice(b"NOT_FOUND\r\n"),
        Reply::Deleted => out.extend_from_slice(b"DELETED\r\n"),
        Reply::Number { number: value, .. } => {
            number(value, out);
            out.extend_from_slice(b"\r\n");
        }
        Reply::NonNumeric => line(lines::NON_NUMERIC, out),
        Reply::TooLarge => line(lines::TOO_LARGE, out),
        Reply::OutOfMemory => line(lines::OUT_OF_MEMORY, out),
        Reply::Failed { why, .. } => failed(None, why, out),
        Reply::Ok => out.extend_from_slice(b"OK\r\n"),
        Reply::Noop => out.extend_from_slice(b"MN\r\n"),
        Reply::Version(version) => {
            out.extend_from_slice(b"VERSION ");
            line(version, out);
        }
        Reply::Line(text) => line(text, out),
    }
}

#[cold]
pub(super) fn failed(code: Option<ErrorCode>, why: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b"SERVER_ERROR ");
    if let Some(code) = code {
        out.extend_from_slice(format!("[{}] ", code.code()).as_bytes());
    }
    // Whatever the text, it must stay one line.
    out.extend(why.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
    out.extend_from_slice(b"\r\n");
}

pub(super) fn line(text: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\r\n");
}
