//! Hints in memory, and what of them is not on disk yet.

use std::collections::{BTreeMap, HashMap};

use moneta_store::versions::Floor;
use moneta_store::{ClientTag, Version};

use super::doubt::{Doubt, place};
use super::known::Known;
use super::log::Entry;
use super::marks::Marks;
use super::missed::{HintKey, Missed};

/// Bytes that a hint takes beside its key: entries of two tables, and the key's counts.
const EXTRA: u64 = 120;
/// Longer keys may take half of the memory, in bytes: those of one client are not to put keys of others in doubt.
const LONG: usize = 64;
/// A client may take so many times the memory that is left.
const SHARE: u64 = 3;
/// Records that wait to be written, in bytes, at most: where the disk does not take them so fast, the file is written anew when
/// it does.
const UNWRITTEN_MAX: usize = 8 << 20;
/// Bytes of records by which the file may grow beyond twice what it was when it was written anew.
const GROWTH: u64 = 1 << 20;
/// Hints that are gone through under one lock: requests wait for it.
const AT_ONCE: usize = 512;
/// Flushes that are kept. A flush that takes effect at once replaces all before it.
const FLOORS_MAX: usize = 32;

#[derive(Default)]
pub(super) struct HintsState {
    missed: HashMap<HintKey, Hint>,
    /// Keys in the order in which they were missed first, or were put off.
    order: BTreeMap<u64, HintKey>,
    /// The next place in it.
    next: u64,
    bytes: u64,
    /// Of these, of keys longer than [`LONG`].
    long_bytes: u64,
    /// The same of each client that has an address.
    of_clients: HashMap<ClientTag, u64>,
    /// By version.
    floors: Vec<Floor>,
    doubt: Option<Doubt>,
    /// What other processes know.
    told: Vec<Marks>,
    /// Hints that were too many.
    overflowed: u64,
    /// Records that are not in the file yet; `None`: there is no file.
    unwritten: Option<Vec<u8>>,
    /// Bytes of records since the file was written anew, those not included; and of those.
    appended: u64,
    kept: u64,
    /// The file is to be written anew: little of it still holds, or it lacks some.
    pub(super) wants_compaction: bool,
    /// The doubt has changed since it was written.
    has_new_doubt: bool,
}

/// A hint.
struct Hint {
    /// Its place in the order.
    place: u64,
    missed: Missed,
    /// Whose memory it takes.
    client: ClientTag,
}

/// What is to be written.
pub(super) enum Unwritten {
    Nothing,
    /// These, after what is there.
    Records(Vec<u8>),
    /// All there is, in place of what is there.
    All,
}

impl HintsState {
    pub(super) fn is_empty(&self) -> bool {
        self.is_delivered() && self.doubt.is_none() && self.told.is_empty()
    }

    pub(super) fn is_delivered(&self) -> bool {
        self.missed.is_empty() && self.floors.is_empty()
    }

    /// Takes what a file says.
    pub(super) fn load(&mut self, entry: Entry, bytes_max: u64) {
        match entry {
            Entry::Missed(key, missed) => self.note(ClientTag::NONE, &key, missed, bytes_max),
            Entry::Settled(key) => self.settle(&key, Version(u64::MAX)),
            Entry::Floor(floor) => self.note_floor(floor),
            Entry::NoFloor => self.floors.clear(),
        }
    }

    /// What was loaded is in the file.
    pub(super) fn is_on_disk(&mut self) {
        (self.unwritten, self.wants_compaction) = (Some(Vec::new()), false);
    }

    pub(super) fn known(&self, key: &[u8]) -> Known {
        let flushed = self.floors.last().map(|floor| Missed::delete(floor.version, 0));
        let missed = Missed::both(self.of_key(key), flushed);
        if self.doubt.is_none() && self.told.is_empty() {
            return Known { missed, doubt: Version::ZERO };
        }
        let place = place(key);
        let own = self.doubt.as_ref().map_or(Version::ZERO, |doubt| doubt.version(place));
        let told = self.told.iter().map(|marks| marks.version(place));
        Known { missed, doubt: told.fold(own, Version::max) }
    }

    pub(super) fn of_key(&self, key: &[u8]) -> Option<Missed> {
        self.missed.get(key).map(|hint| hint.missed)
    }

    pub(super) fn note(&mut self, client: ClientTag, key: &[u8], missed: Missed, bytes_max: u64) {
        if let Some(Hint { missed: known, .. }) = self.missed.get_mut(key) {
            let both = known.and(missed);
            if both == std::mem::replace(known, both) {
                return;
            }
        } else {
            let bytes = key.len() as u64 + EXTRA;
            let is_long = key.len() > LONG;
            let of_client = self.of_clients.get(&client).map_or(0, |bytes| *bytes) + bytes;
            let is_greedy =
                client != ClientTag::NONE && of_client > SHARE * bytes_max.saturating_sub(self.bytes + bytes);
            let is_full = self.bytes + bytes > bytes_max;
            if is_full || is_greedy || (is_long && self.long_bytes + bytes > bytes_max / 2) {
                self.overflowed += 1;
                let is_new = self.doubt.get_or_insert_default().mark(place(key), missed.version);
                self.has_new_doubt |= is_new;
                return;
            }
            if client != ClientTag::NONE {
                self.of_clients.insert(client, of_client);
            }
            self.bytes += bytes;
            self.long_bytes += if is_long { bytes } else { 0 };
            let key: HintKey = key.into();
            self.order.insert(self.next, key.clone());
            self.missed.insert(key, Hint { place: self.next, missed, client });
            self.next += 1;
        }
        self.append(&Entry::Missed(key.into(), missed));
    }

    pub(super) fn settle(&mut self, key: &[u8], version: Version) {
        if self.missed.get(key).is_none_or(|hint| hint.missed.version > version) {
            return;
        }
        let bytes = key.len() as u64 + EXTRA;
        if let Some(Hint { place, client, .. }) = self.missed.remove(key) {
            self.order.remove(&place);
            if let Some(held) = self.of_clients.get_mut(&client) {
                *held = held.saturating_sub(bytes);
                if *held == 0 {
                    self.of_clients.remove(&client);
                }
            }
        }
        self.bytes = self.bytes.saturating_sub(bytes);
        if key.len() > LONG {
            self.long_bytes = self.long_bytes.saturating_sub(bytes);
        }
        self.append(&Entry::Settled(key.into()));
        if self.missed.is_empty() {
            self.missed = HashMap::new();
            self.wants_compaction = true;
        }
    }

    pub(super) fn floors(&self) -> &[Floor] {
        &self.floors
    }

    pub(super) fn note_floor(&mut self, floor: Floor) {
        if floor.is_local() {
            // Of a build that gave a node up where hints were too many.
            return self.add_doubt(&Doubt::of_all(floor.version));
        }
        if self.floors.contains(&floor) {
            return;
        }
        if floor.is_at_once() {
            // It takes what those before it take, and they do not take effect after it.
            if self.floors.iter().any(|known| known.is_at_once() && known.version > floor.version) {
                return;
            }
            self.floors.retain(|known| known.version > floor.version);
        }
        let at = self.floors.partition_point(|known| known.version < floor.version);
        self.floors.insert(at, floor);
        if self.floors.len() > FLOORS_MAX {
            let oldest = self.floors.remove(0);
            self.add_doubt(&Doubt::of_all(oldest.bound()));
        }
        self.append(&Entry::Floor(floor));
    }

    pub(super) fn settle_floor(&mut self, floor: Floor) {
        if !self.floors.contains(&floor) {
            return;
        }
        self.floors.retain(|known| *known != floor);
        self.append(&Entry::NoFloor);
        for floor in self.floors.clone() {
            self.append(&Entry::Floor(floor));
        }
    }

    pub(super) fn doubt(&self) -> Option<&Doubt> {
        self.doubt.as_ref()
    }

    pub(super) fn add_doubt(&mut self, doubt: &Doubt) {
        self.doubt.get_or_insert_default().add(doubt);
        self.doubt.take_if(|doubt| doubt.is_empty());
        self.has_new_doubt = true;
    }

    pub(super) fn settle_doubt(&mut self, checked: &Doubt, keeps: &[bool]) {
        if let Some(doubt) = &mut self.doubt {
            doubt.settle(checked, keeps);
        }
        self.doubt.take_if(|doubt| doubt.is_empty());
        self.has_new_doubt = true;
    }

    pub(super) fn tell(&mut self, told: Vec<Marks>) {
        self.told = told;
    }

    pub(super) fn oldest(&self, count: usize) -> Vec<(HintKey, Missed)> {
        let known = self.order.values().filter_map(|key| self.missed.get(key).map(|hint| (key.clone(), hint.missed)));
        known.take(count).collect()
    }

    pub(super) fn put_off(&mut self, key: &[u8]) {
        if let Some(Hint { place, .. }) = self.missed.get_mut(key)
            && let Some(key) = self.order.remove(place)
        {
            *place = self.next;
            self.order.insert(self.next, key);
            self.next += 1;
        }
    }

    /// Some hints from a place in the order on, and the place of the next one.
    pub(super) fn some(&self, from: u64) -> (Vec<(HintKey, Missed)>, Option<u64>) {
        let mut range = self.order.range(from..);
        let some = range.by_ref().take(AT_ONCE);
        let some = some.filter_map(|(_, key)| self.missed.get(key).map(|hint| (key.clone(), hint.missed))).collect();
        (some, range.next().map(|(place, _)| *place))
    }

    /// Places of the keys of some hints with the versions missed, from a place in the order on, and the place of the next one.
    pub(super) fn some_places(&self, from: u64) -> (Vec<(u64, Version)>, Option<u64>) {
        let mut range = self.order.range(from..);
        let some = range.by_ref().take(AT_ONCE);
        let some = some.filter_map(|(_, key)| self.missed.get(key).map(|hint| (place(key), hint.missed.version)));
        (some.collect(), range.next().map(|(place, _)| *place))
    }

    pub(super) fn counts(&self) -> (u64, u64, u64) {
        (self.missed.len() as u64, self.bytes, self.overflowed)
    }

    fn append(&mut self, entry: &Entry) {
        let Some(unwritten) = self.unwritten.as_mut().filter(|_| !self.wants_compaction) else { return };
        let before = unwritten.len();
        entry.encode(unwritten);
        self.appended += (unwritten.len() - before) as u64;
        if unwritten.len() > UNWRITTEN_MAX || self.appended > self.kept + GROWTH {
            *unwritten = Vec::new();
            self.wants_compaction = true;
        }
    }

    /// Of [`Unwritten::All`] the caller writes what [`HintsState::some`] tells; what changes meanwhile is told after that.
    pub(super) fn take_unwritten(&mut self) -> Unwritten {
        let Some(unwritten) = &mut self.unwritten else { return Unwritten::Nothing };
        if std::mem::take(&mut self.wants_compaction) {
            (*unwritten, self.appended) = (Vec::new(), 0);
            return Unwritten::All;
        }
        if unwritten.is_empty() { Unwritten::Nothing } else { Unwritten::Records(std::mem::take(unwritten)) }
    }

    /// The file was written anew, with so many bytes.
    pub(super) fn note_kept(&mut self, bytes: u64) {
        self.kept = bytes;
    }

    /// The doubt, if it has changed since this was last called.
    pub(super) fn take_doubt(&mut self) -> Option<Option<Doubt>> {
        std::mem::take(&mut self.has_new_doubt).then(|| self.doubt.clone())
    }

    /// It was not written.
    pub(super) fn doubt_is_unwritten(&mut self) {
        self.has_new_doubt = true;
    }
}

/// The records of some hints, for a file that has these alone.
pub(super) fn records(hints: &[(HintKey, Missed)], out: &mut Vec<u8>) {
    for (key, missed) in hints {
        let key: Box<[u8]> = (**key).into();
        // A delete that a set came after has a record too, before that.
        if !missed.deleted && missed.buried > Version::ZERO {
            Entry::Missed(key.clone(), Missed::delete(missed.buried, missed.at)).encode(out);
        }
        Entry::Missed(key, *missed).encode(out);
    }
}
