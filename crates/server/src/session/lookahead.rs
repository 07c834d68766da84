//! Announces reads further down in the input to the store.
//!
//! A pipelining client sends many requests at once. Executed one by one, each waits for its cache misses; if the store knows a
//! group of keys in advance, it prefetches their cache lines in parallel. The result is only a hint: the decoder checks every
//! byte again.

use memchr::memchr;
use moneta_store::request::KEY_MAX;
use moneta_store::{Key, Store};

/// Requests to look ahead: enough parallel misses to fill a core's line fill buffers, few enough that the lines are still cached
/// when their turn comes.
const GROUP: usize = 16;

/// First byte of a binary request.
const BINARY_MAGIC: u8 = 0x80;
/// Bytes of a binary request's header.
const BINARY_HEADER: usize = 24;
/// GET, GETQ, GETK and GETKQ.
const BINARY_READS: [u8; 4] = [0x00, 0x09, 0x0c, 0x0d];

/// Prefetches for the reads at the start of `input`, if there are two or more; returns how many bytes they take.
pub(super) fn announce(store: &dyn Store, input: &[u8]) -> usize {
    let seed = store.seed();
    let mut keys = [Key { bytes: &[], hash: 0 }; GROUP];
    let mut count = 0;
    let mut seen = 0;
    while count < GROUP
        && let Some((key, length)) = read_at(&input[seen..])
    {
        keys[count] = Key::new(key, seed);
        count += 1;
        seen += length;
    }
    if count > 1 {
        store.announce(&keys[..count]);
    }
    seen
}

/// The key of a single-item read at the start of `input`, and the length of the request.
fn read_at(input: &[u8]) -> Option<(&[u8], usize)> {
    if input.first() == Some(&BINARY_MAGIC) { binary_read(input) } else { text_read(input) }
}

fn text_read(input: &[u8]) -> Option<(&[u8], usize)> {
    let line = input.strip_prefix(b"get ").or_else(|| input.strip_prefix(b"mg "))?;
    let end = memchr(b'\n', line)?;
    let key = &line[..memchr(b' ', &line[..end]).unwrap_or(end)];
    let key = key.strip_suffix(b"\r").unwrap_or(key);
    (1..=KEY_MAX).contains(&key.len()).then_some((key, input.len() - line.len() + end + 1))
}

fn binary_read(input: &[u8]) -> Option<(&[u8], usize)> {
    let header = input.get(..BINARY_HEADER)?;
    let key_length = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let end = BINARY_HEADER + key_length;
    let is_read = BINARY_READS.contains(&header[1]) && header[4] == 0 && (1..=KEY_MAX).contains(&key_length);
    if is_read { Some((input.get(BINARY_HEADER..end)?, end)) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_the_reads_of_all_protocols() {
        assert_eq!(read_at(b"get abc\r\nget d\r\n"), Some((&b"abc"[..], 9)));
        assert_eq!(read_at(b"mg abc v t\r\n"), Some((&b"abc"[..], 12)));
        let mut binary = vec![0x80, 0x09, 0, 3, 0, 0, 0, 0, 0, 0, 0, 3];
        binary.resize(24, 0);
        binary.extend_from_slice(b"abcxx");
        assert_eq!(read_at(&binary), Some((&b"abc"[..], 27)));
    }

    #[test]
    fn leaves_everything_else_alone() {
        for input in [&b""[..], b"get abc", b"set a 0 0 1\r\nx\r\n", b"get \r\n", b"\x80\x09", b"gets a\r\n"] {
            assert_eq!(read_at(input), None, "{input:?}");
        }
        assert_eq!(read_at(&[b"get ".as_slice(), &[b'k'; 251], b"\r\n"].concat()), None);
    }
}
