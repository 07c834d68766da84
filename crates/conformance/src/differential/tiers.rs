//! What a node may answer otherwise because of the tiers it is built of: rules that hold for some stacks only.

use super::part::Part;
use super::stream::{Command, Piece};
use crate::stacks::{Lower, Stack, Upper};

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
        (self.no_memory_limit && starts(b"cache_memlimit"))
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
