//! Any bytes as the feed of a node: whatever it tells, nothing panics, what is waited for is bounded, and what is understood does not
//! depend on the cuts. The first byte says how long the pieces are.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use moneta_client::wire::{Broken, LINE_MAX};
use moneta_feed::text::{Decoded, read as decode, write};
use moneta_feed::{Change, Line, json};

/// Longest key, in bytes.
const KEY_MAX: usize = 250;

/// Largest value that the reader takes.
const VALUE_MAX: usize = 1000;

/// What was understood.
#[derive(Debug, PartialEq)]
enum Understood {
    Line(Line),
    /// The key of a value that was passed over.
    TooLarge(Vec<u8>, u64),
}

/// How a feed ended.
#[derive(Debug, PartialEq)]
enum Ended {
    Broken(Broken),
    Refused(String),
    /// What follows is compressed.
    Compressed,
    /// More would have to come.
    Waits,
}

/// A change of a line of so many bytes: its sizes fit, and it comes out of both encodings as it went in.
fn check(change: &Change, length: usize) {
    if let Change::Set(set) = change {
        assert!((1..=KEY_MAX).contains(&set.key.len()) && set.key.len() <= length);
        assert!(set.value.as_ref().is_none_or(|value| value.len() < length && value.len() <= VALUE_MAX));
    }
    let mut text = Vec::new();
    write(change, &mut text);
    let length = text.len();
    assert_eq!(decode(&text.into(), VALUE_MAX), Ok(Decoded::Line(Line::Change(change.clone()), length)));
    let mut line = Vec::new();
    json::write(change, &mut line);
    let line = String::from_utf8(line).expect("JSON is text");
    assert_eq!(json::read(&line).expect("a line"), Line::Change(change.clone()));
}

/// What the feed tells as it comes in pieces, and how it ended.
fn read(input: &Bytes, piece: usize) -> (Vec<Understood>, Ended) {
    let (mut all, mut at, mut arrived) = (Vec::new(), 0, 0);
    loop {
        let rest = input.slice(at..arrived);
        match decode(&rest, VALUE_MAX) {
            Ok(Decoded::Line(line, length)) => {
                assert!((1..=rest.len()).contains(&length));
                if let Line::Change(change) = &line {
                    check(change, length);
                }
                all.push(Understood::Line(line));
                at += length;
            }
            Ok(Decoded::Oversized { key, version, read, skip }) => {
                assert!(read <= rest.len() && key.len() < read && skip > VALUE_MAX);
                all.push(Understood::TooLarge(key.to_vec(), version.0));
                at = at + read + skip;
                if at > input.len() {
                    return (all, Ended::Waits);
                }
                arrived = arrived.max(at);
            }
            Ok(Decoded::Partial { needed }) => {
                assert!(needed > rest.len(), "waits for what is there");
                assert!(needed <= LINE_MAX + KEY_MAX + VALUE_MAX + 4, "waits for {needed} bytes");
                if arrived == input.len() {
                    return (all, Ended::Waits);
                }
                arrived = (arrived + piece).min(input.len());
            }
            Ok(Decoded::Compressed(_)) => return (all, Ended::Compressed),
            Ok(Decoded::Refused(why)) => return (all, Ended::Refused(why)),
            Err(broken) => return (all, Ended::Broken(broken)),
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let Some((&piece, input)) = input.split_first() else { return };
    let input = Bytes::copy_from_slice(input);
    let whole = read(&input, input.len().max(1));
    let cut = read(&input, usize::from(piece).max(1));
    assert_eq!(whole, cut);
});
