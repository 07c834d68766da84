//! What a node has missed: for each key, the version of the newest write that it did not take.
//!
//! Values are not kept: when the node is back, they are read from another copy. Bounded; where more was missed than is kept,
//! everything that the node holds from before is dropped, since nothing tells what of it is old.

mod lock;
mod log;

use std::collections::{HashMap, HashSet, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use moneta_store::Version;
use moneta_store::versions::Floor;
use parking_lot::Mutex;

pub(crate) use lock::FolderLock;
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
/// Records that wait to be written, in bytes, at most: where the disk does not take them so fast, the file is written anew when it does.
const UNWRITTEN_MAX: usize = 8 << 20;
/// Bytes of records by which the file may grow beyond twice what it was when it was written anew.
const GROWTH: u64 = 1 << 20;
/// Calls of [`Hints::sync`] between two tries to write a file that could not be written: ten seconds.
const ROUNDS_PUT_OFF: u32 = 100;

/// The hints of one node. All threads share them.
pub(crate) struct Hints {
    /// Whether there is none, for the way of requests to nodes that are well.
    is_empty: AtomicBool,
    state: Mutex<State>,
    /// `None`: they are kept in memory alone.
    // Locked while the disk is waited for, so before the state and never by requests.
    file: Mutex<Option<LogFile>>,
    bytes_max: u64,
}

/// The file of hints, and whether it can be written.
struct LogFile {
    log: Log,
    /// Calls of [`Hints::sync`] that are still to pass, since it could not be written.
    put_off: u32,
    is_failing: bool,
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
    /// Records that are not in the file yet; `None`: there is no file.
    unwritten: Option<Vec<u8>>,
    /// Bytes of records since the file was written anew, those not included; and of those.
    appended: u64,
    kept: u64,
    /// The file is to be written anew: little of it still holds, or it lacks some.
    wants_compaction: bool,
}

impl Hints {
    /// No hints yet. Up to `bytes_max` are kept.
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self { is_empty: AtomicBool::new(true), state: Mutex::default(), file: Mutex::new(None), bytes_max }
    }

    /// The hints that a process before this one kept in the file at `path`, and this one goes on to keep there.
    ///
    /// # Errors
    /// When the file cannot be read or written.
    pub(crate) fn open(bytes_max: u64, path: &Path) -> io::Result<Self> {
        let hints = Self::new(bytes_max);
        let (mut log, entries) = Log::open(path)?;
        {
            let mut state = hints.state.lock();
            for entry in entries {
                match entry {
                    log::Entry::Missed(key, missed) => state.note(&key, missed, bytes_max),
                    log::Entry::Settled(key) => state.settle(&key, Version(u64::MAX)),
                    log::Entry::Floor(floor) => state.note_floor(floor),
                    log::Entry::NoFloor => state.floor = None,
                }
            }
            log.rewrite(&state.all_records())?;
            (state.unwritten, state.wants_compaction) = (Some(Vec::new()), false);
            hints.is_empty.store(state.is_empty(), Ordering::Release);
        }
        *hints.file.lock() = Some(LogFile { log, put_off: 0, is_failing: false });
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
        if self.is_empty() {
            return None;
        }
        let state = self.state.lock();
        let flushed = state.floor.map(|floor| Missed::delete(floor.version, 0));
        Missed::both(state.missed.get(key).copied(), flushed)
    }

    /// Whether there is nothing to deliver.
    #[inline]
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

    /// Puts hints, which [`Hints::oldest`] has told, behind all others.
    pub(crate) fn put_off(&self, keys: &[&[u8]]) {
        let mut left: HashSet<&[u8]> = keys.iter().copied().collect();
        let state = &mut *self.state.lock();
        let (mut before, mut put_off) = (Vec::new(), Vec::new());
        while !left.is_empty()
            && let Some(key) = state.order.pop_front()
        {
            if left.remove(&*key) { put_off.push(key) } else { before.push(key) }
        }
        before.into_iter().rev().for_each(|key| state.order.push_front(key));
        state.order.extend(put_off);
    }

    /// Hints, their bytes, and those that were given up because there were too many.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        let state = self.state.lock();
        (state.missed.len() as u64, state.bytes, state.overflowed)
    }

    /// Writes what is kept on disk to the device, ten times a second. May block; requests go on meanwhile.
    pub(crate) fn sync(&self) {
        let mut file = self.file.lock();
        match file.as_mut().map(|file| &mut file.put_off) {
            Some(rounds @ 1..) => *rounds -= 1,
            _ => self.write(&mut file),
        }
    }

    /// The same for the last time.
    pub(crate) fn close(&self) {
        self.write(&mut self.file.lock());
    }

    fn write(&self, file: &mut Option<LogFile>) {
        let Some(LogFile { log, put_off, is_failing }) = file else { return };
        // The state is not locked while the disk is waited for.
        let unwritten = self.state.lock().take_unwritten();
        let written = match unwritten {
            Unwritten::Nothing => return,
            Unwritten::Records(records) => log.append(&records),
            Unwritten::All(records) => log.rewrite(&records),
        };
        match written {
            Ok(()) if std::mem::take(is_failing) => tracing::info!(file = %log, "hints are kept on disk again"),
            Ok(()) => {}
            Err(error) => {
                if !std::mem::replace(is_failing, true) {
                    tracing::warn!(file = %log, %error, "hints cannot be kept on disk: until they are, a restart forgets them");
                }
                *put_off = ROUNDS_PUT_OFF;
                self.state.lock().wants_compaction = true;
            }
        }
    }
}

impl Drop for Hints {
    /// The node has left the topology. If its slot is back by now, the file is that of other hints, and must not be replaced.
    fn drop(&mut self) {
        if self.file.get_mut().as_ref().is_some_and(|file| file.log.is_in_place()) {
            self.close();
        }
    }
}

/// What is to be written.
enum Unwritten {
    Nothing,
    /// These, behind what is there.
    Records(Vec<u8>),
    /// These alone.
    All(Vec<u8>),
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
        let Some(unwritten) = self.unwritten.as_mut().filter(|_| !self.wants_compaction) else { return };
        let before = unwritten.len();
        entry.encode(unwritten);
        self.appended += (unwritten.len() - before) as u64;
        if unwritten.len() > UNWRITTEN_MAX || self.appended > self.kept + GROWTH {
            *unwritten = Vec::new();
            self.wants_compaction = true;
        }
    }

    fn take_unwritten(&mut self) -> Unwritten {
        let Some(unwritten) = &mut self.unwritten else { return Unwritten::Nothing };
        if std::mem::take(&mut self.wants_compaction) {
            *unwritten = Vec::new();
            return Unwritten::All(self.all_records());
        }
        if unwritten.is_empty() { Unwritten::Nothing } else { Unwritten::Records(std::mem::take(unwritten)) }
    }

    /// The records of what there is, for a file that has these alone.
    fn all_records(&mut self) -> Vec<u8> {
        let mut records = Vec::new();
        let floor = self.floor.iter().map(|floor| log::Entry::Floor(*floor));
        let known = self.order.iter().filter_map(|key| self.missed.get(key).map(|missed| (key, *missed)));
        // A delete that a set came behind has a record too, before that.
        let missed = known.flat_map(|(key, missed)| {
            let has_both = !missed.deleted && missed.buried > Version::ZERO;
            let delete = has_both.then(|| log::Entry::Missed(key.clone(), Missed::delete(missed.buried, missed.at)));
            delete.into_iter().chain([log::Entry::Missed(key.clone(), missed)])
        });
        floor.chain(missed).for_each(|entry| entry.encode(&mut records));
        (self.kept, self.appended) = (records.len() as u64, 0);
        records
    }
}

#[cfg(test)]
mod tests;
