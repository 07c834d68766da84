//! What a node may answer otherwise because of the tiers it is built of: rules that hold for some stacks only.

use super::part::Part;
use super::stream::{Command, Piece};
use crate::stacks::{Lower, Stack, Upper};

/// First byte of a binary request.
const BINARY_REQUEST: u8 = 0x80;
/// Bytes of a binary request before its extras.
const BINARY_HEADER: usize = 24;
/// `TOUCH`, `GAT`, `GATQ`, `GATK`, `GATKQ`.
const BINARY_TOUCHES: [u8; 5] = [0x1c, 0x1d, 0x1e, 0x23, 0x24];

/// Which of these rules hold for a subject; none by default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tiers {
    /// Rule `cache_memlimit without RAM`.
    pub no_memory_limit: bool,
    /// Rule `fetched where reads write nothing`.
    pub fetched_unknown: bool,
    /// Rule `stale items of a memcached`.
    pub stale_items_change: bool,
    /// Rule `effects after a close`.
    pub effects_come_late: bool,
    /// Rules `touches of a cluster` and `recaches of a cluster`.
    pub is_cluster: bool,
    /// Rule `remaining TTL in copies`.
    pub ends_are_absolute: bool,
}

impl Tiers {
    /// The rules for a stack.
    pub fn of(stack: Stack) -> Self {
        let is_library = matches!(stack.lower, Lower::Rocks | Lower::Lmdb);
        let is_remote = matches!(stack.lower, Lower::Memcached | Lower::Moneta);
        let is_chunked = stack.upper == Upper::Memcached;
        Self {
            no_memory_limit: !stack.has_memory(),
            fetched_unknown: is_chunked || (is_library && !stack.has_memory()),
            stale_items_change: stack.lower == Lower::Memcached,
            effects_come_late: is_library || is_remote || is_chunked,
            is_cluster: false,
            ends_are_absolute: false,
        }
    }

    /// Whether a command is not to be sent.
    pub fn avoid(self, command: &Command) -> bool {
        let starts =
            |start: &[u8]| matches!(command.pieces.first(), Some(Piece::Bytes(bytes)) if bytes.starts_with(start));
        let has = |flag: &[u8]| {
            let has = |bytes: &[u8]| bytes.windows(flag.len()).any(|window| window == flag);
            command.pieces.iter().any(|piece| matches!(piece, Piece::Bytes(bytes) if has(bytes)))
        };
        let is_recache =
            || (starts(b"mg ") && (has(b" R") || has(b" N"))) || ((starts(b"md ") || starts(b"ms ")) && has(b" I"));
        (self.no_memory_limit && starts(b"cache_memlimit"))
            || (self.is_cluster && (may_shorten(command) || is_recache()))
            || (self.stale_items_change && (starts(b"md ") || starts(b"ms ")) && has(b" I"))
    }

    /// Takes out of text replies what is not compared.
    pub fn normalise(self, parts: &mut [Part]) {
        if !self.fetched_unknown {
            return;
        }
        let mut after_name = false;
        for part in parts {
            let Part::Exact(bytes) = &*part else {
                after_name = false;
                continue;
            };
            let is_flag = matches!(bytes.as_slice(), b"h0" | b"h1");
            let is_name = bytes.as_slice() == b"fetch=";
            if is_flag || after_name {
                *part = Part::Own;
            }
            after_name = is_name;
        }
    }
}

/// Whether a command is a touch with another time to live than "for ever".
fn may_shorten(command: &Command) -> bool {
    let Some(Piece::Bytes(bytes)) = command.pieces.first() else { return false };
    if let [BINARY_REQUEST, opcode, ..] = bytes[..] {
        return BINARY_TOUCHES.contains(&opcode) && bytes.get(BINARY_HEADER..BINARY_HEADER + 4) != Some(&[0; 4]);
    }
    let line = bytes.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let words: Vec<&[u8]> = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty()).collect();
    match words[..] {
        [b"touch", _, ttl, ..] | [b"gat" | b"gats", ttl, ..] => ttl != b"0",
        [b"mg", _, ref flags @ ..] => flags.iter().any(|flag| flag.first() == Some(&b'T') && flag != b"T0"),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::differential::normalise_text;

    fn parts(text: &str, tiers: Tiers) -> Vec<Part> {
        let mut parts = normalise_text::parts(text.as_bytes());
        tiers.normalise(&mut parts);
        parts
    }

    #[test]
    fn fetched_is_not_compared_where_reads_write_nothing_and_all_else_is() {
        let tiers = Tiers { fetched_unknown: true, ..Tiers::default() };
        for (one, two) in [("HD h0 f1\r\n", "HD h1 f1\r\n"), ("ME k fetch=no cls=1\r\n", "ME k fetch=yes cls=1\r\n")] {
            assert_eq!(parts(one, tiers), parts(two, tiers));
            assert_ne!(parts(one, Tiers::default()), parts(two, Tiers::default()));
        }
        assert_ne!(parts("HD h0 f1\r\n", tiers), parts("HD h0 f2\r\n", tiers));
    }
}
