//! Writes of a process while others have a newer topology: they went to nodes that do not hold their keys any more. Once this
//! process has the newer one, too, it gives them to the nodes that do.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::hints::Missed;
use crate::layout::Layout;

/// Memory of writes that are remembered, in bytes: some 30,000 keys. Where there are more, all keys of nodes that have taken over
/// some are in doubt.
const BYTES_MAX: usize = 4 << 20;
/// What a write takes beside its key.
const EXTRA: usize = 100;
/// Writes that were begun before the change may end so much later, in milliseconds.
const AFTER: u64 = 1_000;

/// The writes of a process whose topology was replaced.
#[derive(Default)]
pub(crate) struct Overlap {
    /// From when on writes are remembered, in milliseconds since the Unix epoch; 0: none are.
    from: AtomicU64,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    writes: HashMap<Box<[u8]>, Missed>,
    bytes: usize,
    has_overflowed: bool,
    /// Where they went, and when that was replaced.
    old: Option<(Arc<Layout>, u64)>,
}

/// Writes that are to be given.
pub(crate) struct Left {
    /// Where they went.
    pub(crate) old: Arc<Layout>,
    pub(crate) writes: Vec<(Box<[u8]>, Missed)>,
    /// There were more than could be kept.
    pub(crate) has_overflowed: bool,
}

impl Overlap {
    /// Remembers writes from a moment on.
    pub(crate) fn begin(&self, from: u64) {
        let _ = self.from.compare_exchange(0, from.max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Remembers a write that begins at `now`, if that is called for.
    #[inline]
    pub(crate) fn note(&self, key: &[u8], missed: Missed, now: u64) {
        let from = self.from.load(Ordering::Relaxed);
        if from != 0 && from <= now {
            self.keep(key, missed);
        }
    }

    #[cold]
    fn keep(&self, key: &[u8], missed: Missed) {
        let mut kept = self.kept.lock();
        if let Some(known) = kept.writes.get_mut(key) {
            *known = known.and(missed);
        } else if kept.bytes + key.len() + EXTRA > BYTES_MAX {
            kept.has_overflowed = true;
        } else {
            kept.bytes += key.len() + EXTRA;
            kept.writes.insert(key.into(), missed);
        }
    }

    /// The processes agree, and no topology was replaced.
    pub(crate) fn end_if_unused(&self) {
        if self.from.load(Ordering::Relaxed) != 0 {
            let mut kept = self.kept.lock();
            if kept.old.is_none() {
                self.from.store(0, Ordering::Relaxed);
                *kept = Kept::default();
            }
        }
    }

    /// A topology was replaced at `now`.
    pub(crate) fn note_change(&self, old: Arc<Layout>, now: u64) {
        if self.from.load(Ordering::Relaxed) != 0 {
            self.kept.lock().old.get_or_insert((old, now));
        }
    }

    /// Where writes went that are to be given now, some of them, and whether there were more than could be kept.
    pub(crate) fn take(&self, count: usize, now: u64) -> Option<Left> {
        if self.from.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let mut kept = self.kept.lock();
        let (old, at) = kept.old.clone()?;
        let has_overflowed = std::mem::take(&mut kept.has_overflowed);
        if kept.writes.is_empty() && now.abs_diff(at) > AFTER {
            self.from.store(0, Ordering::Relaxed);
            *kept = Kept::default();
            return Some(Left { old, writes: Vec::new(), has_overflowed });
        }
        let keys: Vec<Box<[u8]>> = kept.writes.keys().take(count).cloned().collect();
        let writes = keys.into_iter().filter_map(|key| kept.writes.remove_entry(&key)).collect();
        kept.bytes = kept.writes.keys().map(|key| key.len() + EXTRA).sum();
        Some(Left { old, writes, has_overflowed })
    }
}

#[cfg(test)]
mod tests {
    use moneta_store::Version;

    use super::*;

    fn nothing() -> Arc<Layout> {
        let (replicas, nodes, readable) = (Vec::new(), Vec::new(), Vec::new());
        Arc::new(Layout { epoch: 0, generation: 0, replicas, nodes, readable, near: 0 })
    }

    #[test]
    fn writes_are_remembered_from_a_moment_on_until_they_were_given() {
        let overlap = Overlap::default();
        let set = |version| Missed::set(Version(version), 1);
        overlap.note(b"before", set(1), 50);
        overlap.begin(100);
        overlap.note(b"early", set(1), 99);
        overlap.note(b"a", set(2), 100);
        overlap.note(b"a", set(3), 101);
        overlap.note(b"b", set(4), 102);
        assert!(overlap.take(9, 103).is_none(), "the topology is still there");
        overlap.note_change(nothing(), 200);
        let some = overlap.take(1, 201).expect("there are two");
        assert_eq!((some.writes.len(), some.has_overflowed), (1, false));
        overlap.end_if_unused();
        let rest = overlap.take(9, 202).expect("there is one");
        assert_ne!(some.writes[0].0, rest.writes[0].0);
        overlap.note(b"late", set(5), 300);
        assert_eq!(overlap.take(9, 200 + AFTER).map(|late| late.writes.len()), Some(1));
        assert!(overlap.take(9, 201 + AFTER).is_some() && overlap.take(9, 202 + AFTER).is_none());
        overlap.note(b"c", set(6), 2_000);
        assert!(overlap.kept.lock().writes.is_empty());
    }

    #[test]
    fn what_they_take_is_bounded() {
        let overlap = Overlap::default();
        overlap.begin(1);
        let key = [7; 200];
        for number in 0..20_000u64 {
            overlap.note(&[&key[..], &number.to_le_bytes()].concat(), Missed::set(Version(number), 1), 2);
        }
        assert!(overlap.kept.lock().bytes <= BYTES_MAX);
        overlap.note_change(nothing(), 3);
        assert_eq!(overlap.take(1, 4).map(|left| left.has_overflowed), Some(true));
    }
}
