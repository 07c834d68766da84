//! The feed of a node, as its command `changes` tells it; `docs/feed.md` has the lines.

use moneta_item::{Expiry, ItemMeta, Version};

use super::failure::Broken;
use super::limits::VALUE_LIMIT;
use super::tokens::{self, next, number};

const MALFORMED: Broken = Broken("a line that is none of a feed");
/// Longest key, in bytes.
const KEY_MAX: usize = 250;

/// What comes next of a feed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// More has to come.
    Partial {
        /// Bytes of input, at least.
        needed: usize,
    },
    /// What is told, and its length in bytes.
    Told(Told, usize),
    /// A value over the limit: the key that was given it, the bytes up to the value, and those of the value with its end.
    TooLarge {
        /// The key.
        key: Vec<u8>,
        /// The item's.
        version: Version,
        /// Bytes that were looked at.
        read: usize,
        /// Bytes to pass over.
        skip: usize,
    },
    /// The server will not go on, in its words.
    Refused(String),
}

/// One thing that a feed tells. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// What a key holds, or held.
    Set(Box<Set>),
    /// A key was given a value over the limit: it is not handed out.
    TooLarge {
        /// The key.
        key: Vec<u8>,
        /// The item's: what is older is gone.
        version: Version,
    },
    /// A key was deleted, whether it was there or not.
    Delete {
        /// The key.
        key: Vec<u8>,
        /// What is older is gone.
        version: Version,
    },
    /// All that is older is gone from that second on.
    Flush {
        /// The flush's.
        version: Version,
        /// Unix second in which it takes effect.
        second: u32,
    },
    /// All changes before that moment may be missing.
    Gap {
        /// The moment.
        since: u64,
    },
    /// The node was killed, and began again then.
    Lost {
        /// The moment.
        until: u64,
    },
    /// How far the feed has been told.
    At {
        /// Where to read on.
        cursor: String,
        /// Everything until then has been told; 0: that is not known. Behind it nodes tell their horizon, which is passed over.
        watermark: u64,
    },
    /// That was all.
    End,
}

/// An item that a feed tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Set {
    /// The key.
    pub key: Vec<u8>,
    /// All but key and value.
    pub meta: ItemMeta,
    /// The value; `None` where values were not asked for.
    pub value: Option<Vec<u8>>,
    /// When the key was last known to hold it, in milliseconds since the Unix epoch; `None`: it does now.
    pub as_of: Option<u64>,
}

/// Reads what is at the front of `input`. Values over `value_max` bytes are not handed out.
///
/// # Errors
/// When it is nothing that a feed tells.
pub fn line(input: &[u8], value_max: usize) -> Result<Line, Broken> {
    let (line, length) = match tokens::line(input)? {
        Ok(found) => found,
        Err(_) => return Ok(Line::Partial { needed: input.len() + 1 }),
    };
    if tokens::error(line).is_some() {
        return Ok(Line::Refused(tokens::readable(line)));
    }
    let mut words = line;
    let word = next(&mut words).ok_or(MALFORMED)?;
    let mut argument = || next(&mut words).and_then(number).ok_or(MALFORMED);
    let told = match word {
        b"SET" => return set(words, &input[length..], length, value_max),
        b"DELETE" => {
            let (key, version) = (argument()?, Version(argument()?));
            let Some((body, consumed)) = body(key, 0, &input[length..])? else {
                return Ok(partial(length, key, 0));
            };
            return Ok(Line::Told(Told::Delete { key: body.to_vec(), version }, length + consumed));
        }
        b"FLUSH" => Told::Flush { version: Version(argument()?), second: narrow(argument()?)? },
        b"GAP" => Told::Gap { since: argument()? },
        b"LOST" => Told::Lost { until: argument()? },
        b"AT" => {
            let cursor = next(&mut words).and_then(|cursor| std::str::from_utf8(cursor).ok()).ok_or(MALFORMED)?;
            let watermark = next(&mut words).and_then(number).ok_or(MALFORMED)?;
            Told::At { cursor: cursor.to_owned(), watermark }
        }
        b"END" => Told::End,
        _ => return Err(MALFORMED),
    };
    Ok(Line::Told(told, length))
}

/// `SET KEYLEN LENGTH VERSION FLAGS EXPIRY STALE ASOF`, with `rest` behind the line of `line` bytes.
fn set(mut words: &[u8], rest: &[u8], line: usize, value_max: usize) -> Result<Line, Broken> {
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
        return Ok(Line::TooLarge { key: name.to_vec(), version: Version(version), read, skip });
    }
    let Some((body, consumed)) = body(key, bytes, rest)? else { return Ok(partial(line, key, bytes)) };
    let (key, value) = body.split_at(key as usize);
    let meta = ItemMeta { cas: version, flags, expiry: Expiry(expiry), stale, ..ItemMeta::default() };
    let set = Set {
        key: key.to_vec(),
        meta,
        value: length.map(|_| value.to_vec()),
        as_of: Some(as_of).filter(|as_of| *as_of != 0),
    };
    Ok(Line::Told(Told::Set(Box::new(set)), line + consumed))
}

fn partial(line: usize, key: u64, value: u64) -> Line {
    Line::Partial { needed: line + key as usize + value as usize + 2 }
}

fn narrow(number: u64) -> Result<u32, Broken> {
    u32::try_from(number).map_err(|_| MALFORMED)
}

/// Refuses lengths that no server has.
fn check(key: u64, value: u64) -> Result<(), Broken> {
    if key == 0 || key > KEY_MAX as u64 || value > VALUE_LIMIT as u64 { Err(MALFORMED) } else { Ok(()) }
}

/// Key and value behind a line, and the bytes of both with their end; `None`: more has to come.
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
    use super::*;

    #[test]
    fn all_lines_are_read_whatever_pieces_they_come_in() {
        let text = b"GAP 17\r\nLOST 18\r\nSET 1 5 9124 3 1790000000 1 1789999999000\r\nk\r\nab\n\r\nSET 2 - 7 0 0 0 0\r\nkk\r\n\
            DELETE 3 8\r\na\r\n\r\nFLUSH 9 1790000001\r\nAT 2cfd-8-1 1795389412803 1795385812000\r\nEND\r\n";
        let mut all = Vec::new();
        let mut read = 0;
        for end in 0..=text.len() {
            loop {
                match line(&text[read..end], 5).expect("it is a feed") {
                    Line::Told(told, length) => {
                        all.push(told);
                        read += length;
                    }
                    Line::Partial { needed } => {
                        assert!(needed > end - read, "{needed} bytes are there");
                        break;
                    }
                    Line::TooLarge { .. } => panic!("it is as large as may be"),
                    Line::Refused(why) => panic!("{why}"),
                }
            }
        }
        let meta =
            |cas, flags, expiry, stale| ItemMeta { cas, flags, expiry: Expiry(expiry), stale, ..ItemMeta::default() };
        let set = |key: &[u8], meta, value: Option<&[u8]>, as_of| {
            Told::Set(Box::new(Set { key: key.to_vec(), meta, value: value.map(<[u8]>::to_vec), as_of }))
        };
        let expected = [
            Told::Gap { since: 17 },
            Told::Lost { until: 18 },
            set(b"k", meta(9124, 3, 1_790_000_000, true), Some(b"\r\nab\n"), Some(1_789_999_999_000)),
            set(b"kk", meta(7, 0, 0, false), None, None),
            Told::Delete { key: b"a\r\n".to_vec(), version: Version(8) },
            Told::Flush { version: Version(9), second: 1_790_000_001 },
            Told::At { cursor: "2cfd-8-1".into(), watermark: 1_795_389_412_803 },
            Told::End,
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
            b"\r\n",
        ] {
            assert!(line(text, VALUE_LIMIT).is_err(), "{}", text.escape_ascii());
        }
        let line = |text| line(text, VALUE_LIMIT);
        assert_eq!(line(b"SERVER_ERROR no\r\n"), Ok(Line::Refused("SERVER_ERROR no".into())));
        assert_eq!(line(b"ERROR\r\n"), Ok(Line::Refused("ERROR".into())));
    }

    #[test]
    fn a_value_over_the_limit_is_passed_over() {
        let text = b"SET 2 5 9 0 0 0 0\r\nkkvalue\r\nEND\r\n";
        assert!(matches!(line(&text[..20], 4), Ok(Line::Partial { .. })), "the key has to come");
        let (key, version) = (b"kk".to_vec(), Version(9));
        assert_eq!(line(&text[..21], 4), Ok(Line::TooLarge { key, version, read: 21, skip: 7 }));
        assert_eq!(line(&text[28..], 4), Ok(Line::Told(Told::End, 5)));
    }
}
