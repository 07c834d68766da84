//! `stats detail`: what is asked of keys by their prefix, the part before the first colon. Off until turned on.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// Most prefixes kept apart; requests for further ones are not counted, so that clients cannot make the node grow.
const PREFIXES_MAX: usize = 10_000;
/// What ends a prefix.
const DELIMITER: u8 = b':';

#[derive(Debug, Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
}

/// What was asked of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A read.
    Get {
        /// It found something.
        hit: bool,
    },
    /// A write.
    Set,
    /// A delete.
    Delete,
}

/// Counts by prefix.
#[derive(Debug, Default)]
pub struct Prefixes {
    enabled: AtomicBool,
    counts: Mutex<BTreeMap<Box<[u8]>, Counts>>,
}

impl Prefixes {
    /// Turns counting on or off; what was counted stays.
    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Whether it is on; one relaxed load.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Counts one use of a key. Keys without a prefix are not counted.
    #[cold]
    pub fn count(&self, key: &[u8], what: Use) {
        let Some(end) = key.iter().position(|&byte| byte == DELIMITER) else { return };
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if counts.len() >= PREFIXES_MAX && !counts.contains_key(&key[..end]) {
            return;
        }
        let entry = counts.entry(key[..end].into()).or_default();
        match what {
            Use::Get { hit } => {
                entry.gets += 1;
                entry.hits += u64::from(hit);
            }
            Use::Set => entry.sets += 1,
            Use::Delete => entry.deletes += 1,
        }
    }

    /// All counts as text, ended by a line `END`.
    pub fn dump(&self) -> Vec<u8> {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let mut out = Vec::new();
        for (prefix, Counts { gets, hits, sets, deletes }) in counts.iter() {
            out.extend_from_slice(b"PREFIX ");
            out.extend_from_slice(prefix);
            out.extend_from_slice(format!(" get {gets} hit {hits} set {sets} del {deletes}\r\n").as_bytes());
        }
        out.extend_from_slice(b"END\r\n");
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_by_what_stands_before_the_first_colon() {
        let prefixes = Prefixes::default();
        assert!(!prefixes.is_enabled());
        prefixes.count(b"p:a", Use::Set);
        prefixes.count(b"p:a:b", Use::Get { hit: true });
        prefixes.count(b"p:c", Use::Get { hit: false });
        prefixes.count(b"q:c", Use::Delete);
        prefixes.count(b"plain", Use::Set);
        let expected = "PREFIX p get 2 hit 1 set 1 del 0\r\nPREFIX q get 0 hit 0 set 0 del 1\r\nEND\r\n";
        assert_eq!(String::from_utf8(prefixes.dump()).unwrap(), expected);
    }
}
