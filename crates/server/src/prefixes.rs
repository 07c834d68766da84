//! `stats detail`: counts requests, and items that leave, by key prefix, the part before the first colon. Off by default. It
//! turns itself off an hour after the last `stats detail`, since it costs every request something and the operator may have left.
//!
//! Each thread counts separately, under a lock that only readers of the sums contend for.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use crossbeam_utils::CachePadded;
use moneta_store::component::{RemovalCause, Removed};
use parking_lot::Mutex;

use crate::lanes::{LANES, lane};
use moneta_store::escape::escape_text;

/// Most prefixes over all threads. Further ones are not counted, so that clients cannot make the node's memory grow.
const PREFIXES_MAX: usize = 20_000;
/// Ends a prefix.
const DELIMITER: u8 = b':';
/// Seconds after which it turns itself off.
const LASTS: u32 = 3600;

#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    gets: u64,
    hits: u64,
    sets: u64,
    deletes: u64,
    left: Left,
}

/// Items that left without a client asking for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Left {
    expired: u64,
    expired_unread: u64,
    evicted: u64,
    evicted_unread: u64,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.gets += other.gets;
        self.hits += other.hits;
        self.sets += other.sets;
        self.deletes += other.deletes;
        self.left.expired += other.left.expired;
        self.left.expired_unread += other.left.expired_unread;
        self.left.evicted += other.left.evicted;
        self.left.evicted_unread += other.left.evicted_unread;
    }
}

/// A use of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// A read.
    Get {
        /// Whether it found an item.
        hit: bool,
    },
    /// A write.
    Set,
    /// A delete.
    Delete,
}

/// Counts by prefix, in order: what is shown in pieces goes on where it ended.
type ByPrefix = BTreeMap<Box<[u8]>, Counts>;

/// One thread's counts.
type Lane = CachePadded<Mutex<ByPrefix>>;

/// What is shown of each prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// Requests.
    Uses,
    /// Items that left without a client asking for it, and how many of them had never been read. Prefixes without any are left
    /// out.
    Left,
}

/// How far [`Prefixes::write`] came.
#[derive(Debug, PartialEq, Eq)]
pub struct Tallied {
    /// The prefix looked at last.
    pub last: Option<Box<[u8]>>,
    /// There are no more.
    pub is_all: bool,
}

/// Counts by prefix.
#[derive(Debug, Default)]
pub struct Prefixes {
    enabled: AtomicBool,
    /// Unix second at which it turns itself off.
    until: AtomicU32,
    kept: AtomicUsize,
    lanes: [Lane; LANES],
}

impl Prefixes {
    /// Turns counting on for an hour from the Unix second `now`, or off. Counts are kept.
    pub fn enable(&self, enabled: bool, now: u32) {
        self.until.store(now.saturating_add(LASTS), Ordering::Relaxed);
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    /// Prolongs counting, if it is on, to an hour from `now`, because the counts are being read.
    pub fn prolong(&self, now: u32) {
        self.until.store(now.saturating_add(LASTS), Ordering::Relaxed);
    }

    /// Whether it is on; one relaxed load.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.enabled.load(Ordering::Relaxed)
    }

    /// Clears all counts.
    pub fn clear(&self) {
        for lane in &self.lanes {
            let mut counts = lane.lock();
            self.kept.fetch_sub(counts.len(), Ordering::Relaxed);
            counts.clear();
        }
    }

    /// Counts one use of a key at `now`. Keys without a prefix are not counted. False if the hour is over: counting is off then.
    #[cold]
    pub fn count(&self, key: &[u8], what: Use, now: u32) -> bool {
        if self.is_over(now) {
            self.enabled.store(false, Ordering::Relaxed);
            return false;
        }
        self.add(key, |counts| match what {
            Use::Get { hit } => {
                counts.gets += 1;
                counts.hits += u64::from(hit);
            }
            Use::Set => counts.sets += 1,
            Use::Delete => counts.deletes += 1,
        });
        true
    }

    /// Counts an item that left at `now`, unless the hour is over.
    #[cold]
    pub fn note_departure(&self, item: &Removed<'_>, now: u32) {
        if self.is_over(now) {
            return;
        }
        let unread = u64::from(!item.meta.fetched);
        self.add(item.key, |Counts { left, .. }| match item.cause {
            RemovalCause::Expired => {
                left.expired += 1;
                left.expired_unread += unread;
            }
            RemovalCause::Evicted => {
                left.evicted += 1;
                left.evicted_unread += unread;
            }
        });
    }

    fn is_over(&self, now: u32) -> bool {
        now >= self.until.load(Ordering::Relaxed)
    }

    /// Adds to the counts of a key's prefix, on this thread's lane.
    fn add(&self, key: &[u8], with: impl FnOnce(&mut Counts)) {
        let Some(end) = key.iter().position(|&byte| byte == DELIMITER) else { return };
        let mut lane = self.lanes[lane()].lock();
        let entry = match lane.get_mut(&key[..end]) {
            Some(entry) => entry,
            None => {
                if self.kept.fetch_add(1, Ordering::Relaxed) >= PREFIXES_MAX {
                    self.kept.fetch_sub(1, Ordering::Relaxed);
                    return;
                }
                lane.entry(key[..end].into()).or_default()
            }
        };
        with(entry);
    }

    /// Appends a line for each of the first `most` prefixes after `after`, in order. Prefixes are percent-encoded where a line
    /// requires it.
    pub fn write(&self, shown: Shown, after: Option<&[u8]>, most: usize, out: &mut Vec<u8>) -> Tallied {
        let sums = self.sums(after, most);
        for (prefix, counts) in &sums {
            let Some(line) = shown.line(counts) else { continue };
            out.extend_from_slice(b"PREFIX ");
            escape_text(prefix, out);
            out.extend_from_slice(format!(" {line}\r\n").as_bytes());
        }
        let is_all = sums.len() < most;
        Tallied { last: sums.into_keys().next_back(), is_all }
    }

    /// The sums over all threads of the first `most` prefixes after `after`. Looks at no more of each lane.
    fn sums(&self, after: Option<&[u8]>, most: usize) -> ByPrefix {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut sums = ByPrefix::new();
        for lane in &self.lanes {
            for (prefix, counts) in lane.lock().range::<[u8], _>((begin, Bound::Unbounded)).take(most) {
                sums.entry(prefix.clone()).or_default().add(counts);
            }
        }
        // Of those after them a lane may have more.
        while sums.len() > most {
            sums.pop_last();
        }
        sums
    }
}

impl Shown {
    fn line(self, counts: &Counts) -> Option<String> {
        let Counts { gets, hits, sets, deletes, left } = counts;
        match self {
            Self::Uses => Some(format!("get {gets} hit {hits} set {sets} del {deletes}")),
            Self::Left if *left == Left::default() => None,
            Self::Left => {
                let Left { expired, expired_unread, evicted, evicted_unread } = left;
                Some(format!("expired {expired} unread {expired_unread} evicted {evicted} unread {evicted_unread}"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use moneta_store::ItemMeta;

    use super::*;

    const NOW: u32 = 1_000_000;

    /// All of it, by pieces of three.
    fn shown(prefixes: &Prefixes, shown: Shown) -> String {
        let (mut out, mut after) = (Vec::new(), None);
        loop {
            let Tallied { last, is_all } = prefixes.write(shown, after.as_deref(), 3, &mut out);
            after = last;
            if is_all {
                return String::from_utf8(out).unwrap();
            }
        }
    }

    fn text(prefixes: &Prefixes) -> String {
        shown(prefixes, Shown::Uses)
    }

    #[test]
    fn counts_by_what_stands_before_the_first_colon_over_all_threads() {
        let prefixes = Prefixes::default();
        assert!(!prefixes.is_enabled());
        prefixes.enable(true, NOW);
        prefixes.count(b"p:a", Use::Set, NOW);
        std::thread::scope(|scope| {
            scope.spawn(|| prefixes.count(b"p:a:b", Use::Get { hit: true }, NOW));
        });
        prefixes.count(b"p:c", Use::Get { hit: false }, NOW);
        prefixes.count(b"q:c", Use::Delete, NOW);
        prefixes.count(b"plain", Use::Set, NOW);
        assert_eq!(text(&prefixes), "PREFIX p get 2 hit 1 set 1 del 0\r\nPREFIX q get 0 hit 0 set 0 del 1\r\n");
        prefixes.clear();
        assert_eq!(text(&prefixes), "");
    }

    #[test]
    fn items_that_leave_are_counted_apart_from_requests() {
        let prefixes = Prefixes::default();
        prefixes.enable(true, NOW);
        let leave = |key: &[u8], fetched, cause, now| {
            let meta = ItemMeta { fetched, ..ItemMeta::default() };
            prefixes.note_departure(&Removed { key, meta, value_bytes: 1, cause }, now);
        };
        leave(b"p:a", true, RemovalCause::Expired, NOW);
        leave(b"p:b", false, RemovalCause::Expired, NOW);
        std::thread::scope(|scope| {
            scope.spawn(|| leave(b"p:c", false, RemovalCause::Evicted, NOW));
        });
        leave(b"plain", false, RemovalCause::Evicted, NOW);
        leave(b"p:d", false, RemovalCause::Evicted, NOW + LASTS);
        prefixes.count(b"q:a", Use::Set, NOW);
        let unread = shown(&prefixes, Shown::Left);
        assert_eq!(unread, "PREFIX p expired 2 unread 1 evicted 1 unread 1\r\n");
        assert_eq!(text(&prefixes), "PREFIX p get 0 hit 0 set 0 del 0\r\nPREFIX q get 0 hit 0 set 1 del 0\r\n");
    }

    #[test]
    fn it_goes_off_an_hour_after_it_was_last_asked_for() {
        let prefixes = Prefixes::default();
        prefixes.enable(true, NOW);
        prefixes.prolong(NOW + 3000);
        prefixes.count(b"p:a", Use::Set, NOW + 3600);
        assert!(prefixes.is_enabled());
        prefixes.count(b"p:a", Use::Set, NOW + 6600);
        assert!(!prefixes.is_enabled());
        assert_eq!(text(&prefixes), "PREFIX p get 0 hit 0 set 1 del 0\r\n");
    }

    #[test]
    fn a_prefix_cannot_forge_a_line() {
        let prefixes = Prefixes::default();
        prefixes.enable(true, NOW);
        prefixes.count(b"a\r\nEND\r\n b%:x", Use::Set, NOW);
        prefixes.count("m\u{fc}ll/x:y".as_bytes(), Use::Set, NOW);
        assert_eq!(
            text(&prefixes),
            "PREFIX a%0D%0AEND%0D%0A%20b%25 get 0 hit 0 set 1 del 0\r\nPREFIX m\u{fc}ll/x get 0 hit 0 set 1 del 0\r\n"
        );
    }

    #[test]
    fn pieces_leave_none_out_and_show_none_twice_whichever_thread_counted() {
        let prefixes = Prefixes::default();
        prefixes.enable(true, NOW);
        for thread in 0..5 {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    for number in (0..40).filter(|number| number % (thread + 1) == 0) {
                        prefixes.count(format!("{number:02}:").as_bytes(), Use::Set, NOW);
                    }
                });
            });
        }
        let sets = |number: i32| (1..=5).filter(|thread| number % thread == 0).count();
        let expected: String =
            (0..40).map(|number| format!("PREFIX {number:02} get 0 hit 0 set {} del 0\r\n", sets(number))).collect();
        assert_eq!(text(&prefixes), expected);
    }

    #[test]
    fn clients_cannot_make_it_grow() {
        let prefixes = Prefixes::default();
        prefixes.enable(true, NOW);
        for number in 0..PREFIXES_MAX + 100 {
            prefixes.count(format!("{number}:").as_bytes(), Use::Set, NOW);
        }
        assert_eq!(text(&prefixes).lines().count(), PREFIXES_MAX);
    }
}
