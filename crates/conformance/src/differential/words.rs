//! The few keys, values and numbers that all generators draw from.
//!
//! The key space is small so that commands meet the items of others; lengths and numbers lean to the edges.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fastrand::Rng;

/// The longest key the protocol allows.
pub const KEY_LIMIT: usize = 250;
/// Values larger than the item limit by at least this much are refused by every server; smaller ones by as much are
/// stored. Between them a server's own bookkeeping decides (rule `near the item limit`).
pub const LIMIT_MARGIN: usize = 1024;
/// A wrong length is wrong by at most this much, so that the padding after a batch can bring a swallowing server back.
pub const LENGTH_ERROR: usize = 200;

/// Added to a CAS value it makes one beyond all that either server gives, wherever it begins to count.
pub const BEYOND: u64 = 1 << 60;

const PLAIN_KEYS: usize = 16;

/// Every key the streams use, as the text protocol writes it.
pub fn keys() -> Vec<Vec<u8>> {
    let mut keys: Vec<Vec<u8>> = (0..PLAIN_KEYS).map(|number| format!("k{number}").into_bytes()).collect();
    keys.push(vec![b'L'; KEY_LIMIT]);
    keys.push("clé:1/2%20\u{1F511}".into());
    keys.push(b"set".to_vec());
    keys.push(b"0".to_vec());
    keys
}

/// Keys the meta commands write in base64; none is also written as text (rule `how a key is echoed`).
pub fn base64_keys() -> Vec<Vec<u8>> {
    let raw: [&[u8]; 4] = [b"\x00\x01 \r\n\xff", b"two words", b"base64-0", b"base64-1"];
    raw.iter().map(|key| STANDARD.encode(key).into_bytes()).collect()
}

/// A key.
pub fn key(rng: &mut Rng) -> Vec<u8> {
    let keys = keys();
    keys[rng.usize(..keys.len())].clone()
}

/// A key longer than the protocol allows.
pub fn long_key(rng: &mut Rng) -> Vec<u8> {
    vec![b'K'; KEY_LIMIT + 1 + rng.usize(..60)]
}

/// A value; `item_limit` is the servers' `-I` in bytes.
pub fn value(rng: &mut Rng, item_limit: usize) -> Vec<u8> {
    match rng.u32(..1000) {
        0..300 => number(rng).into_bytes(),
        300..900 => short_text(rng),
        900..930 => b"line one\r\nline two".to_vec(),
        930..940 => b"get k1\r\n".to_vec(),
        940..950 => (0..rng.usize(..40)).map(|_| rng.u8(..)).collect(),
        950..990 => filled(rng, 100, 4000),
        990..994 => filled(rng, 4000, item_limit / 2),
        994..997 => filled(rng, item_limit / 2, item_limit - LIMIT_MARGIN),
        _ => filled(rng, item_limit + 1, item_limit + 5000),
    }
}

/// A value no longer than 20 bytes, without line ends.
pub fn short_text(rng: &mut Rng) -> Vec<u8> {
    (0..rng.usize(..=20)).map(|_| rng.alphanumeric() as u8).collect()
}

fn filled(rng: &mut Rng, least: usize, most: usize) -> Vec<u8> {
    vec![rng.lowercase() as u8; rng.usize(least..most)]
}

/// A number as an item may hold it, or a delta. Small enough that sums stay below 2^63 (rule `numbers from 2^63 on`).
pub fn number(rng: &mut Rng) -> String {
    let edges = ["0", "1", "9", "10", "99", "100", "999999999999999", "1000000000000000"];
    let bits = rng.u32(1..50);
    if rng.bool() { edges[rng.usize(..edges.len())].to_owned() } else { rng.u64(..1 << bits).to_string() }
}

/// Something that is not a delta.
pub fn bad_number(rng: &mut Rng) -> &'static str {
    let words = ["-1", "x", "1x", "18446744073709551616", "99999999999999999999999", "1.5", "0x10", "+", "-", ","];
    words[rng.usize(..words.len())]
}

/// An expiry time every server takes. None falls within the run of a test but those already past.
pub fn exptime(rng: &mut Rng) -> &'static str {
    let words = ["100", "1000", "86400", "2592000", "2147483647", "-1", "-100", "2592001", "1000000000"];
    if rng.u32(..10) < 6 { "0" } else { words[rng.usize(..words.len())] }
}

/// An expiry time that an item can be stored with: also those that 31 bits do not hold, and which are past.
pub fn stored_exptime(rng: &mut Rng) -> &'static str {
    let past = ["2147483648", "4294967295", "9999999999"];
    if rng.u32(..20) == 0 { past[rng.usize(..past.len())] } else { exptime(rng) }
}

/// Something that is not an expiry time (rule `numbers wider than their field` leaves out what the reference cuts off).
pub fn bad_exptime(rng: &mut Rng) -> &'static str {
    let words = ["x", "1x", "99999999999999999999", "1.5"];
    words[rng.usize(..words.len())]
}

/// Client flags every server takes.
pub fn flags(rng: &mut Rng) -> &'static str {
    let words = ["0", "0", "0", "1", "42", "65535", "65536", "4294967295"];
    words[rng.usize(..words.len())]
}

/// Something that is not a set of client flags.
pub fn bad_flags(rng: &mut Rng) -> &'static str {
    let words = ["-1", "x", "1x", "99999999999999999999"];
    words[rng.usize(..words.len())]
}

/// A length near the true one, and not it.
pub fn wrong_length(rng: &mut Rng, length: usize) -> usize {
    match rng.u32(..4) {
        0 => length + 1,
        1 => length.saturating_sub(1 + rng.usize(..10)),
        2 => length + 2,
        _ => length + 1 + rng.usize(..LENGTH_ERROR),
    }
}
