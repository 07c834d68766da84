//! A feed on the memcached port, as the command `changes` tells it; `docs/feed.md` has the lines.

use std::io::Write;

use bytes::Bytes;
use moneta_client::wire::tokens::{self, next, number};
use moneta_client::wire::{Broken, VALUE_LIMIT};
use moneta_store::feed::{Change, Gap, Set};
use moneta_store::versions::Floor;
use moneta_store::{Expiry, ItemMeta, Version};

use crate::mark::{Line, Mark};

/// The line before a stream that is compressed by zstd, without its end.
pub const COMPRESSED: &[u8] = b"COMPRESSED zstd";
/// The last line of a feed.
pub const END: &[u8] = b"END\r\n";

const MALFORMED: Broken = Broken("a line that is none of a feed");
/// Longest key, in bytes.
const KEY_MAX: usize = 250;

/// Most bytes of the line of a set: its word, seven numbers of at most twenty digits, and its end.
const SET_LINE_MAX: usize = 3 + 7 * 21 + 2;

/// A line, put together where no growth need be looked for at each word.
struct SetLine {
    bytes: [u8; SET_LINE_MAX],
    length: usize,
}

impl SetLine {
    fn push(&mut self, word: &[u8]) {
        self.bytes[self.length..][..word.len()].copy_from_slice(word);
        self.length += word.len();
    }

    /// Adds a space and a number. Most are below ten.
    fn put(&mut self, number: u64) {
        match number {
            0..=9 => self.push(&[b' ', b'0' + number as u8]),
            _ => {
                self.push(b" ");
                self.push(itoa::Buffer::new().format(number).as_bytes());
            }
        }
    }
}

/// Appends a change.
pub fn write(change: &Change, out: &mut Vec<u8>) {
    // Writing to memory does not fail.
    let _ = match change {
        Change::Set(Set { key, meta, value, as_of }) => {
            let mut line = SetLine { bytes: [0; SET_LINE_MAX], length: 0 };
            line.push(b"SET");
            line.put(key.len() as u64);
            match value {
                Some(value) => line.put(value.len() as u64),
                None => line.push(b" -"),
            }
            let (flags, expiry, stale) = (meta.flags.into(), meta.expiry.0.into(), meta.stale.into());
            [meta.cas, flags, expiry, stale, as_of.unwrap_or(0)].into_iter().for_each(|field| line.put(field));
            line.push(b"\r\n");
            let value = value.as_deref().unwrap_or_default();
            out.reserve(line.length + key.len() + value.len() + 2);
            out.extend_from_slice(&line.bytes[..line.length]);
            out.extend_from_slice(key);
            out.extend_from_slice(value);
            out.write_all(b"\r\n")
        }
        Change::Delete { key, version } => {
            let _ = write!(out, "DELETE {} {}\r\n", key.len(), version.0);
            out.extend_from_slice(key);
            out.write_all(b"\r\n")
        }
        Change::Flush(floor) => write!(out, "FLUSH {} {}\r\n", floor.version.0, floor.second),
        // Readers of before take the moment, and pass over what follows it.
        Change::Gap(Gap { since, cause: Some(cause) }) => write!(out, "GAP {since} {cause}\r\n"),
        Change::Gap(Gap { since, cause: None }) => write!(out, "GAP {since}\r\n"),
        Change::Lost { until } => write!(out, "LOST {until}\r\n"),
    };
}

/// Appends how far the feed is.
pub fn write_mark(Mark { cursor, watermark, horizon, behind, .. }: &Mark, out: &mut Vec<u8>) {
    // Writing to memory does not fail. Readers of before pass over what follows the horizon.
    let _ = match behind {
        Some(behind) => write!(out, "AT {cursor} {watermark} {horizon} {behind}\r\n"),
        None => write!(out, "AT {cursor} {watermark} {horizon}\r\n"),
    };
}

/// What is at the front of what has come of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decoded {
    /// More has to come.
    Partial {
        /// Bytes of input, at least.
        needed: usize,
    },
    /// A line, and its length in bytes with the key and value after it.
    Line(Line, usize),
    /// A key was given a value over the reader's limit: what the key held before this version is gone.
    Oversized {
        /// The key.
        key: Bytes,
        /// The item's.
        version: Version,
        /// Bytes that were looked at.
        read: usize,
        /// Bytes to pass over after them: the value and its end.
        skip: usize,
    },
    /// What follows this line of so many bytes is compressed by zstd.
    Compressed(usize),
    /// The node will not go on, in its words.
    Refused(String),
}

/// Reads what is at the front of `input`, of which keys and values are parts. Values over `value_max` bytes are not handed out.
///
/// # Errors
/// When it is nothing that a feed tells.
pub fn read(input: &Bytes, value_max: usize) -> Result<Decoded, Broken> {
    let (line, length) = match tokens::line(input)? {
        Ok(found) => found,
        Err(_) => return Ok(Decoded::Partial { needed: input.len() + 1 }),
    };
    // Nearly all are these.
    if let Some(words) = line.strip_prefix(b"SET ") {
        return set(words, input, length, value_max);
    }
    if tokens::error(line).is_some() {
        return Ok(Decoded::Refused(tokens::readable(line)));
    }
    let mut words = line;
    let word = next(&mut words).ok_or(MALFORMED)?;
    let mut argument = || next(&mut words).and_then(number).ok_or(MALFORMED);
    let change = match word {
        b"DELETE" => {
            let (key, version) = (argument()?, Version(argument()?));
            let Some((body, consumed)) = body(key, 0, &input[length..])? else {
                return Ok(partial(length, key, 0));
            };
            let change = Change::Delete { key: input.slice_ref(body), version };
            return Ok(Decoded::Line(Line::Change(change), length + consumed));
        }
        b"FLUSH" => Change::Flush(Floor { version: Version(argument()?), second: narrow(argument()?)? }),
        b"GAP" => {
            let since = argument()?;
            // A cause that a later build has, too.
            let cause = next(&mut words).and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
            Change::Gap(Gap { since, cause })
        }
        b"LOST" => Change::Lost { until: argument()? },
        b"AT" => {
            let cursor = next(&mut words).and_then(|cursor| std::str::from_utf8(cursor).ok()).ok_or(MALFORMED)?;
            let watermark = next(&mut words).and_then(number).ok_or(MALFORMED)?;
            let horizon = next(&mut words).and_then(number).unwrap_or(0);
            let behind = next(&mut words).and_then(number);
            let mark = Mark { cursor: cursor.to_owned(), watermark, horizon, behind, more: true };
            return Ok(Decoded::Line(Line::Mark(mark), length));
        }
        b"END" => return Ok(Decoded::Line(Line::End, length)),
        _ if line == COMPRESSED => return Ok(Decoded::Compressed(length)),
        _ => return Err(MALFORMED),
    };
    Ok(Decoded::Line(Line::Change(change), length))
}

/// `SET KEYLEN LENGTH VERSION FLAGS EXPIRY STALE ASOF`, at the front of `input` as a line of `line` bytes.
fn set(mut words: &[u8], input: &Bytes, line: usize, value_max: usize) -> Result<Decoded, Broken> {
    let rest = &input[line..];
    let key = next(&mut words).and_then(number).ok_or(MALFORMED)?;
    let length = match next(&mut words).ok_or(MALFORMED)? {
        b"-" => None,
        word => Some(number(word).ok_or(MALFORMED)?),
    };
    let mut argument = || next(&mut words).and_then(number).ok_or(MALFORMED);
    let (version, flags, expiry) = (argument()?, narrow(argument()?)?, narrow(argument()?)?);
    let (stale, as_of) = (argument()? != 0, argument()?);
    let bytes = length.unwrap_or(0);
    if bytes > value_max as u64 {
        check(key, bytes)?;
        let Some(name) = rest.get(..key as usize) else { return Ok(partial(line, key, 0)) };
        let (read, skip) = (line + key as usize, bytes as usize + 2);
        return Ok(Decoded::Oversized { key: input.slice_ref(name), version: Version(version), read, skip });
    }
    let Some((body, consumed)) = body(key, bytes, rest)? else { return Ok(partial(line, key, bytes)) };
    let (key, value) = body.split_at(key as usize);
    let set = Set {
        key: input.slice_ref(key),
        meta: ItemMeta { cas: version, flags, expiry: Expiry(expiry), stale, ..ItemMeta::default() },
        value: length.map(|_| input.slice_ref(value)),
        as_of: Some(as_of).filter(|as_of| *as_of != 0),
    };
    Ok(Decoded::Line(Line::Change(Change::Set(set)), line + consumed))
}

fn partial(line: usize, key: u64, value: u64) -> Decoded {
    Decoded::Partial { needed: line + key as usize + value as usize + 2 }
}

fn narrow(number: u64) -> Result<u32, Broken> {
    u32::try_from(number).map_err(|_| MALFORMED)
}

/// Refuses lengths that no server has.
fn check(key: u64, value: u64) -> Result<(), Broken> {
    if key == 0 || key > KEY_MAX as u64 || value > VALUE_LIMIT as u64 { Err(MALFORMED) } else { Ok(()) }
}

/// Key and value after a line, and the bytes of both with their end; `None`: more has to come.
fn body(key: u64, value: u64, rest: &[u8]) -> Result<Option<(&[u8], usize)>, Broken> {
    check(key, value)?;
    let length = (key + value) as usize;
    match rest.get(length..length + 2) {
        None => Ok(None),
        Some(b"\r\n") => Ok(Some((&rest[..length], length + 2))),
        Some(_) => Err(MALFORMED),
    }
}

#[cfg(test)]
mod tests {
    use moneta_store::feed::GapCause;

    use super::*;

    #[test]
    fn all_lines_are_read_whatever_pieces_they_come_in() {
        let text = b"GAP 17\r\nGAP 17 off\r\nGAP 17 of a later build\r\nLOST 18\r\n\
            SET 1 5 9124 3 1790000000 1 1789999999000\r\nk\r\nab\n\r\nSET 2 - 7 0 0 0 0\r\nkk\r\n\
            DELETE 3 8\r\na\r\n\r\nFLUSH 9 1790000001\r\nAT 2cfd-8-1 1795389412803 1795385812000\r\nAT 2cfd-9 1 2 3\r\nAT 2cfd-8 0\r\nEND\r\n";
        let mut all = Vec::new();
        let mut at = 0;
        for end in 0..=text.len() {
            loop {
                match read(&Bytes::from_static(&text[at..end]), 5).expect("it is a feed") {
                    Decoded::Line(line, length) => {
                        all.push(line);
                        at += length;
                    }
                    Decoded::Partial { needed } => {
                        assert!(needed > end - at, "{needed} bytes are there");
                        break;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        let meta =
            |cas, flags, expiry, stale| ItemMeta { cas, flags, expiry: Expiry(expiry), stale, ..ItemMeta::default() };
        let set = |key: &'static [u8], meta, value: Option<&'static [u8]>, as_of| {
            Line::Change(Change::Set(Set { key: key.into(), meta, value: value.map(Bytes::from), as_of }))
        };
        let mark = |cursor: &str, watermark, horizon, behind| {
            Line::Mark(Mark { cursor: cursor.to_owned(), watermark, horizon, behind, more: true })
        };
        let expected = [
            Line::Change(Change::Gap(Gap { since: 17, cause: None })),
            Line::Change(Change::Gap(Gap { since: 17, cause: Some(GapCause::Off) })),
            Line::Change(Change::Gap(Gap { since: 17, cause: None })),
            Line::Change(Change::Lost { until: 18 }),
            set(b"k", meta(9124, 3, 1_790_000_000, true), Some(b"\r\nab\n"), Some(1_789_999_999_000)),
            set(b"kk", meta(7, 0, 0, false), None, None),
            Line::Change(Change::Delete { key: b"a\r\n"[..].into(), version: Version(8) }),
            Line::Change(Change::Flush(Floor { version: Version(9), second: 1_790_000_001 })),
            mark("2cfd-8-1", 1_795_389_412_803, 1_795_385_812_000, None),
            mark("2cfd-9", 1, 2, Some(3)),
            mark("2cfd-8", 0, 0, None),
            Line::End,
        ];
        assert_eq!(all, expected);
    }

    #[test]
    fn what_is_no_feed_breaks_and_what_is_refused_is_told() {
        for text in [
            &b"VALUE a 0 1\r\n"[..],
            b"SET 1 1 1 0 0 0\r\nkv\r\n",
            b"SET 0 1 1 0 0 0 0\r\nv\r\n",
            b"SET 251 1 1 0 0 0 0\r\n",
            b"SET 1 99999999999 1 0 0 0 0\r\n",
            b"SET 1 1 1 0 4294967296 0 0\r\nkv\r\n",
            b"SET 1 1 1 0 0 0 0\r\nkvv\r\n",
            b"DELETE x 1\r\n",
            b"AT c\r\n",
            b"COMPRESSED lz4\r\n",
            b"\r\n",
        ] {
            assert!(read(&Bytes::from_static(text), VALUE_LIMIT).is_err(), "{}", text.escape_ascii());
        }
        let read = |text: &'static [u8]| read(&Bytes::from_static(text), VALUE_LIMIT);
        assert_eq!(read(b"SERVER_ERROR no\r\n"), Ok(Decoded::Refused("SERVER_ERROR no".into())));
        assert_eq!(read(b"ERROR\r\n"), Ok(Decoded::Refused("ERROR".into())));
        assert_eq!(read(b"COMPRESSED zstd\r\n\x28"), Ok(Decoded::Compressed(17)));
    }

    #[test]
    fn a_value_over_the_limit_is_passed_over() {
        let text = Bytes::from_static(b"SET 2 5 9 0 0 0 0\r\nkkvalue\r\nEND\r\n");
        assert!(matches!(read(&text.slice(..20), 4), Ok(Decoded::Partial { .. })), "the key has to come");
        let (key, version) = (b"kk"[..].into(), Version(9));
        assert_eq!(read(&text.slice(..21), 4), Ok(Decoded::Oversized { key, version, read: 21, skip: 7 }));
        assert_eq!(read(&text.slice(28..), 4), Ok(Decoded::Line(Line::End, 5)));
    }
}
