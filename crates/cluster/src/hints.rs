//! What a node has missed: for each key, the version of the newest write that it did not take.
//!
//! Values are not kept: when the node is back, they are read from another copy. Bounded; where more was missed than is kept,
//! everything that the node holds from before is dropped, since nothing tells what of it is old.

mod log;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use moneta_store::Version;
use moneta_store::versions::Floor;
use parking_lot::Mutex;

use log::Log;

/// A write that a node has missed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missed {
    pub(crate) version: Version,
    /// It was a delete.
    pub(crate) deleted: bool,
    /// The newest delete among this write and those before it that were missed, too; 0 if there is none. What is no newer is gone, also
    /// where the write behind it came to nothing.
    pub(crate) buried: Version,
    /// When it was made or was last known to be current, in milliseconds since the Unix epoch.
    pub(crate) at: u64,
}

impl Missed {
    pub(crate) fn set(version: Version, at: u64) -> Self {
        Self { version, deleted: false, buried: Version::ZERO, at }
    }

    pub(crate) fn delete(version: Version, at: u64) -> Self {
        Self { version, deleted: true, buried: version, at }
    }

    /// This write and another one of the same key, both missed.
    pub(crate) fn and(self, other: Self) -> Self {
        let newer = if other.version > self.version { other } else { self };
        Self { buried: self.buried.max(other.buried), ..newer }
    }

    /// Whether what a node that lacks this write holds, nothing or an item of this version, is older.
    pub(crate) fn outdates(&self, held: Option<Version>) -> bool {
        held.map_or(!self.deleted, |held| self.version > held)
    }

    /// Both, where there are two.
    pub(crate) fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        one.into_iter().chain(other).reduce(Self::and)
    }
}

/// Bytes that a hint takes beside its key: entries of two tables, and the rest of the log's record.
const EXTRA: u64 = 96;

/// The hints of one node. All threads share them.
pub(crate) struct Hints {
    /// Whether there is none, for the way of requests to nodes that are well.
    is_empty: AtomicBool,
    state: Mutex<State>,
    bytes_max: u64,
}

#[derive(Default)]
struct State {
    missed: HashMap<Box<[u8]>, Missed>,
    /// Keys in the order in which they were missed first. A key that was settled may still be in it.
    order: VecDeque<Box<[u8]>>,
    bytes: u64,
    /// Everything the node holds from before this is to go.
    floor: Option<Floor>,
    /// Hints that were given up for the floor.
    overflowed: u64,
    log: Option<Log>,
    /// Little of the log still holds.
    wants_compaction: bool,
}

impl Hints {
    /// No hints yet. Up to `bytes_max` are kept.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { is_empty: AtomicBool::new(true), state: Mutex::default(), bytes_max }
    }

    /// The hints that a process before this one kept in the file at `path`, and this one goes on to keep there.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(crate) fn open(bytes_max: u64, path: &Path) -> io::Result<Self> {
        let hints = Self::new(bytes_max);
        {
            let mut state = hints.state.lock();
            let (log, entries) = Log::open(path)?;
            for entry in entries {
                match entry {
                    log::Entry::Missed(key, missed) => state.note(&key, missed, bytes_max),
                    log::Entry::Settled(key) => state.settle(&key, Version(u64::MAX)),
                    log::Entry::Floor(floor) => state.note_floor(floor),
                    log::Entry::NoFloor => state.floor = None,
                }
            }
            state.log = Some(log);
            state.compact();
            hints.is_empty.store(state.is_empty(), Ordering::Release);
        }
        Ok(hints)
    }

    /// Takes note of a write that the node has missed.
    pub(crate) fn note(&self, key: &[u8], missed: Missed) {
        let mut state = self.state.lock();
        self.is_empty.store(false, Ordering::Release);
        state.note(key, missed, self.bytes_max);
    }

    /// Takes note of a flush that the node has missed.
    pub(crate) fn note_floor(&self, floor: Floor) {
        let mut state = self.state.lock();
        self.is_empty.store(false, Ordering::Release);
        state.note_floor(floor);
    }

    /// The node has taken a write of this version: older ones need not be delivered.
    #[inline]
    pub(crate) fn settle(&self, key: &[u8], version: Version) {
        if !self.is_empty.load(Ordering::Acquire) {
            let mut state = self.state.lock();
            state.settle(key, version);
            self.is_empty.store(state.is_empty(), Ordering::Release);
        }
    }

    /// The node has taken a flush.
    pub(crate) fn settle_floor(&self, floor: Floor) {
        let mut state = self.state.lock();
        if state.floor == Some(floor) {
            state.floor = None;
            state.append(&log::Entry::NoFloor);
        }
        self.is_empty.store(state.is_empty(), Ordering::Release);
    }

    /// The write of the key that the node is known to lack: of a flush, a delete.
    pub(crate) fn missed(&self, key: &[u8]) -> Option<Missed> {
        if self.is_empty.load(Ordering::Acquire) {
            return None;
        }
        let state = self.state.lock();
        let flushed = state.floor.map(|floor| Missed::delete(floor.version, 0));
        Missed::both(state.missed.get(key).copied(), flushed)
    }

    /// Whether there is nothing to deliver.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// A flush that is to be delivered first.
    pub(crate) fn floor(&self) -> Option<Floor> {
        self.state.lock().floor
    }

    /// Up to `count` hints, the oldest first.
    pub(crate) fn oldest(&self, count: usize) -> Vec<(Box<[u8]>, Missed)> {
        let state = &mut *self.state.lock();
        while state.order.front().is_some_and(|key| !state.missed.contains_key(key)) {
            state.order.pop_front();
        }
        let known = state.order.iter().filter_map(|key| state.missed.get(key).map(|missed| (key.clone(), *missed)));
        known.take(count).collect()
    }

    /// Hints, their bytes, and those that were given up because there were too many.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.missed.len() as u64, state.bytes, state.overflowed)
    }

    /// Writes what is kept on disk to the device. May block.
    pub(crate) fn sync(&self) {
        let mut state = self.state.lock();
        if std::mem::take(&mut state.wants_compaction) {
            return state.compact();
        }
        if let Some(log) = &mut state.log
            && let Err(error) = log.sync()
        {
            tracing::warn!(%error, "hints cannot be kept on disk: a restart forgets them");
            state.log = None;
        }
    }
}

impl State {
    fn is_empty(&self) -> bool {
        self.missed.is_empty() && self.floor.is_none()
    }

    fn note(&mut self, key: &[u8], missed: Missed, bytes_max: u64) {
        if let Some(known) = self.missed.get_mut(key) {
            let both = known.and(missed);
            if both == std::mem::replace(known, both) {
                return;
            }
        } else {
            let bytes = 2 * key.len() as u64 + EXTRA;
            if self.bytes + bytes > bytes_max {
                self.overflow(missed);
                return;
            }
            self.bytes += bytes;
            self.missed.insert(key.into(), missed);
            self.order.push_back(key.into());
        }
        self.append(&log::Entry::Missed(key.into(), missed));
    }

    /// Gives up all hints: the node is to drop what it has from before the newest of them.
    fn overflow(&mut self, last: Missed) {
        let versions = self.missed.values().map(|missed| missed.version);
        let newest = versions.chain([last.version]).max().unwrap_or(last.version);
        self.overflowed += self.missed.len() as u64 + 1;
        self.missed = HashMap::new();
        self.order = VecDeque::new();
        self.bytes = 0;
        // A flush that the node has missed stays one.
        let second = self.floor.map_or(0, |floor| floor.second);
        self.note_floor(Floor { version: newest, second });
        self.wants_compaction = true;
    }

    fn note_floor(&mut self, floor: Floor) {
        if self.floor.is_none_or(|known| known.version < floor.version) {
            self.floor = Some(floor);
            self.append(&log::Entry::Floor(floor));
        }
    }

    fn settle(&mut self, key: &[u8], version: Version) {
        if self.missed.get(key).is_some_and(|missed| missed.version <= version) {
            self.missed.remove(key);
            self.bytes = self.bytes.saturating_sub(2 * key.len() as u64 + EXTRA);
            self.append(&log::Entry::Settled(key.into()));
            if self.missed.is_empty() {
                (self.order, self.bytes) = (VecDeque::new(), 0);
                self.wants_compaction = true;
            } else if self.order.len() > 64 + 2 * self.missed.len() {
                let missed = &self.missed;
                self.order.retain(|key| missed.contains_key(key));
                self.wants_compaction = true;
            }
        }
    }

    fn append(&mut self, entry: &log::Entry) {
        if let Some(log) = &mut self.log
            && let Err(error) = log.append(entry)
        {
            tracing::warn!(%error, "hints cannot be kept on disk: a restart forgets them");
            self.log = None;
        }
    }

    /// Writes the log anew, with what there is.
    fn compact(&mut self) {
        let Some(log) = &mut self.log else { return };
        let floor = self.floor.iter().map(|floor| log::Entry::Floor(*floor));
        let known = self.order.iter().filter_map(|key| self.missed.get(key).map(|missed| (key, *missed)));
        // A delete that a set came behind has a record too, before that.
        let missed = known.flat_map(|(key, missed)| {
            let has_both = !missed.deleted && missed.buried > Version::ZERO;
            let delete = has_both.then(|| log::Entry::Missed(key.clone(), Missed::delete(missed.buried, missed.at)));
            delete.into_iter().chain([log::Entry::Missed(key.clone(), missed)])
        });
        if let Err(error) = log.rewrite(floor.chain(missed)) {
            tracing::warn!(%error, "hints cannot be kept on disk: a restart forgets them");
            self.log = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn missed(version: u64) -> Missed {
        let make = if version.is_multiple_of(2) { Missed::delete } else { Missed::set };
        make(Version(version << 40), version)
    }

    #[test]
    fn the_newest_write_of_each_key_is_kept_in_order_until_the_node_has_it() {
        let hints = Hints::new(1 << 20);
        assert!(hints.is_empty() && hints.missed(b"a").is_none());
        hints.note(b"a", missed(5));
        hints.note(b"b", missed(6));
        hints.note(b"a", missed(7));
        hints.note(b"a", missed(3));
        assert!(hints.missed(b"a").is_some() && hints.missed(b"b").is_some() && hints.missed(b"c").is_none());
        assert_eq!(hints.oldest(9), [(Box::from(*b"a"), missed(7)), (Box::from(*b"b"), missed(6))]);
        hints.settle(b"a", missed(6).version);
        assert!(hints.missed(b"a").is_some(), "the node has an older one");
        hints.settle(b"a", missed(8).version);
        assert_eq!(hints.oldest(9), [(Box::from(*b"b"), missed(6))]);
        hints.settle(b"b", missed(6).version);
        assert!(hints.is_empty() && hints.counts() == (0, 0, 0));
    }

    #[test]
    fn a_delete_is_known_behind_a_set_that_may_have_come_to_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.hints");
        let hints = Hints::open(1 << 20, &path).unwrap();
        hints.note(b"a", missed(6));
        hints.note(b"a", missed(7));
        hints.note(b"b", missed(9));
        hints.note(b"b", missed(8));
        let expected = [(7, 6), (9, 8)].map(|(version, buried)| (Version(version << 40), Version(buried << 40)));
        let known = |hints: &Hints| {
            [&b"a"[..], b"b"].map(|key| hints.missed(key).map(|missed| (missed.version, missed.buried)).unwrap())
        };
        assert_eq!(known(&hints), expected);
        assert!(hints.missed(b"a").is_some_and(|missed| !missed.deleted && missed.outdates(None)));
        // From what was appended, and from what was written anew.
        for _ in 0..2 {
            hints.sync();
            assert_eq!(known(&Hints::open(1 << 20, &path).unwrap()), expected);
        }
    }

    #[test]
    fn too_many_become_a_floor_above_all_of_them() {
        let hints = Hints::new(10_000);
        for number in 1..200u64 {
            hints.note(format!("key{number}").as_bytes(), missed(number));
        }
        let floor = hints.floor().expect("there were too many");
        let (kept, bytes, overflowed) = hints.counts();
        assert!(bytes <= 10_000 && kept + overflowed == 199, "{kept} {bytes} {overflowed}");
        let least = hints.oldest(999).iter().map(|(_, missed)| missed.version).min();
        assert!(least.is_none_or(|least| floor.version < least));
        assert!(hints.missed(b"whatever").is_some());
        hints.settle_floor(floor);
        assert!(hints.missed(b"whatever").is_none());
    }

    #[test]
    fn they_outlive_the_process_also_with_a_torn_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("node.hints");
        let hints = Hints::open(1 << 20, &path).unwrap();
        for number in 1..=100u64 {
            hints.note(format!("key{number}").as_bytes(), missed(number));
        }
        hints.settle(b"key50", missed(50).version);
        hints.note_floor(Floor { version: Version(77), second: 9 });
        hints.sync();
        let expected = hints.oldest(200);
        assert_eq!(expected.len(), 99);
        drop(hints);
        let torn = std::fs::read(&path).unwrap();
        std::fs::write(&path, [&torn[..], &[40, 0, 0, 0, 1, 2, 3]].concat()).unwrap();
        let again = Hints::open(1 << 20, &path).unwrap();
        assert_eq!(again.oldest(200), expected);
        assert_eq!(again.floor(), Some(Floor { version: Version(77), second: 9 }));
        again.settle_floor(Floor { version: Version(77), second: 9 });
        for (key, missed) in expected {
            again.settle(&key, missed.version);
        }
        drop(again);
        assert!(Hints::open(1 << 20, &path).unwrap().is_empty());
    }
}
