//! What a node has missed: for each key, the version of the newest write that it did not take; flushes; and, where more was
//! missed than is kept, the parts of the keys that are in doubt.
//!
//! Values are not kept: when the node is back, they are read from another copy. All of it is bounded.

mod doubt;
mod file;
mod known;
mod lock;
mod log;
mod marks;
mod missed;
mod state;

#[cfg(feature = "testing")]
pub(crate) mod testing {
    pub use super::log::{hint_record, read_hints};
}

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use moneta_store::versions::Floor;
use moneta_store::{ClientTag, Version};
use parking_lot::Mutex;

pub(crate) use doubt::{Doubt, place};
use file::LogFile;
pub(crate) use known::{Belief, Known};
pub(crate) use lock::FolderLock;
pub(crate) use marks::Marks;
use marks::Places;
pub(crate) use missed::{HintKey, Missed};
use state::HintsState;

/// The hints of one node. All threads share them.
pub(crate) struct Hints {
    /// Whether nothing is known against what the node shows, for the way of requests to nodes that are well.
    is_empty: AtomicBool,
    state: Mutex<HintsState>,
    /// `None`: they are kept in memory alone.
    // Locked while the disk is waited for, so before the state and never by requests.
    file: Mutex<Option<LogFile>>,
    bytes_max: u64,
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
        let (mut file, entries, doubt) = LogFile::open(path)?;
        {
            let mut state = hints.state.lock();
            entries.into_iter().for_each(|entry| state.load(entry, bytes_max));
            doubt.into_iter().for_each(|doubt| state.add_doubt(&doubt));
        }
        hints.write_anew(&mut file)?;
        hints.state.lock().is_on_disk();
        hints.note_emptiness(&hints.state.lock());
        *hints.file.lock() = Some(file);
        Ok(hints)
    }

    /// Takes note of a write that the node has missed.
    pub(crate) fn note(&self, key: &[u8], missed: Missed) {
        self.note_of(ClientTag::NONE, key, missed);
    }

    /// The same of a client's write. A client may take three times the memory that is left: so one takes three quarters of it,
    /// and leaves room for the keys of others; more of its own puts parts of the keys in doubt.
    pub(crate) fn note_of(&self, client: ClientTag, key: &[u8], missed: Missed) {
        let mut state = self.state.lock();
        self.is_empty.store(false, Ordering::Release);
        state.note(client, key, missed, self.bytes_max);
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
        if !self.is_empty() {
            let mut state = self.state.lock();
            state.settle(key, version);
            self.note_emptiness(&state);
        }
    }

    /// The node has taken a flush.
    pub(crate) fn settle_floor(&self, floor: Floor) {
        let mut state = self.state.lock();
        state.settle_floor(floor);
        self.note_emptiness(&state);
    }

    fn note_emptiness(&self, state: &HintsState) {
        self.is_empty.store(state.is_empty(), Ordering::Release);
    }

    /// The write of the key that the node is known to lack: of a flush, a delete; and up to which version it is in doubt.
    pub(crate) fn known(&self, key: &[u8]) -> Known {
        if self.is_empty() {
            return Known::default();
        }
        self.state.lock().known(key)
    }

    /// The write of this very key that the node is known to lack.
    pub(crate) fn of_key(&self, key: &[u8]) -> Option<Missed> {
        if self.is_empty() { None } else { self.state.lock().of_key(key) }
    }

    /// Whether nothing is known against what the node shows.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.is_empty.load(Ordering::Acquire)
    }

    /// Whether there is something to deliver.
    pub(crate) fn is_delivered(&self) -> bool {
        self.is_empty() || self.state.lock().is_delivered()
    }

    /// Flushes, which are to be delivered first, in the order in which they were commanded.
    pub(crate) fn floors(&self) -> Vec<Floor> {
        self.state.lock().floors().to_vec()
    }

    /// Up to `count` hints, the oldest first.
    pub(crate) fn oldest(&self, count: usize) -> Vec<(HintKey, Missed)> {
        self.state.lock().oldest(count)
    }

    /// Puts hints after all others.
    pub(crate) fn put_off(&self, keys: &[&[u8]]) {
        let mut state = self.state.lock();
        keys.iter().for_each(|key| state.put_off(key));
    }

    /// Hints, their bytes, and those that were too many.
    pub(crate) fn counts(&self) -> (u64, u64, u64) {
        self.state.lock().counts()
    }

    /// What of the node's keys is in doubt, by what this process knows itself. `None`: nothing.
    pub(crate) fn doubt(&self) -> Option<Doubt> {
        if self.is_empty() { None } else { self.state.lock().doubt().cloned() }
    }

    /// The node may lack these.
    pub(crate) fn add_doubt(&self, doubt: &Doubt) {
        let mut state = self.state.lock();
        self.is_empty.store(false, Ordering::Release);
        state.add_doubt(doubt);
        self.note_emptiness(&state);
    }

    /// The share of the node's keys that is in doubt.
    pub(crate) fn doubt_share(&self) -> f64 {
        if self.is_empty() { 0.0 } else { self.state.lock().doubt().map_or(0.0, Doubt::share) }
    }

    /// What was in doubt then was checked, but for the buckets in `keeps`.
    pub(crate) fn settle_doubt(&self, checked: &Doubt, keeps: &[bool]) {
        let mut state = self.state.lock();
        state.settle_doubt(checked, keeps);
        self.note_emptiness(&state);
    }

    /// Takes what other processes know that the node lacks, in place of what they knew before.
    pub(crate) fn tell(&self, told: Vec<Marks>) {
        if told.is_empty() && self.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.tell(told);
        self.note_emptiness(&state);
    }

    /// What the node lacks by what this process knows itself, for others, in up to so many marks of each kind. Requests go on
    /// meanwhile.
    pub(crate) fn lacks(&self, marks_max: usize) -> Vec<Marks> {
        if self.is_empty() {
            return Vec::new();
        }
        let mut missed = Places::new(marks_max);
        let mut from = Some(0);
        while let Some(place_of_first) = from {
            let (some, next) = self.state.lock().some_places(place_of_first);
            some.into_iter().for_each(|(place, version)| missed.add(place, version));
            from = next;
        }
        let state = self.state.lock();
        let flushed = state.floors().last().map(|floor| Marks::of_all(floor.version));
        let doubted = state.doubt().map(|doubt| Marks::of_buckets(doubt, marks_max));
        drop(state);
        [flushed, doubted, missed.marks()].into_iter().flatten().collect()
    }
}

#[cfg(test)]
mod tests;
