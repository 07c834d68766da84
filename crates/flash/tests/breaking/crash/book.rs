//! What one thread did to the keys that are its alone, and so what each may show: now, and after a crash at any event of the
//! device.

use super::super::history::{value, version_of};

/// A change that is not known to be on the device.
const UNSURE: usize = usize::MAX;

/// One change of a key.
#[derive(Clone, Debug)]
struct Change {
    /// What the key may show from then on: a version, or nothing.
    outcomes: Vec<Option<u32>>,
    /// Events of the device when it was begun.
    begun: usize,
    /// Events of the device by which it is known to be on the device.
    sure: usize,
}

/// All changes of some keys.
#[derive(Clone, Debug)]
pub struct Book {
    /// Number of the first key.
    first: usize,
    keys: Vec<Vec<Change>>,
    versions: Vec<u32>,
}

/// What a change came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// As it should.
    Well,
    /// In an error: it may have taken effect, or have left the key with nothing.
    Badly,
}

impl Book {
    /// Of so many keys from number `first` on, that all hold nothing.
    pub fn new(first: usize, keys: usize) -> Self {
        let nothing = Change { outcomes: vec![None], begun: 0, sure: 0 };
        Self { first, keys: vec![vec![nothing]; keys], versions: vec![0; keys] }
    }

    pub fn keys(&self) -> usize {
        self.keys.len()
    }

    /// The number of one of its keys among all there are.
    pub fn number(&self, key: usize) -> usize {
        self.first + key
    }

    /// A version that a key never had.
    pub fn next_version(&mut self, key: usize) -> u32 {
        self.versions[key] += 1;
        self.versions[key]
    }

    /// A key was changed; `events` had happened to the device before.
    pub fn note(&mut self, key: usize, to: Option<u32>, ended: Ended, events: usize) {
        let outcomes = if ended == Ended::Well { vec![to] } else { vec![to, None] };
        self.keys[key].push(Change { outcomes, begun: events, sure: UNSURE });
    }

    /// What a key holds was written again.
    pub fn note_rewritten(&mut self, key: usize, well: bool, events: usize) {
        let mut outcomes = self.keys[key].last().expect("there is a first one").outcomes.clone();
        if !well && !outcomes.contains(&None) {
            outcomes.push(None);
        }
        self.keys[key].push(Change { outcomes, begun: events, sure: UNSURE });
    }

    /// The last change of a key is on the device by now.
    pub fn note_sure(&mut self, key: usize, events: usize) {
        let last = self.keys[key].last_mut().expect("there is a first one");
        last.sure = last.sure.min(events);
    }

    /// Everything done so far is on the device by now.
    pub fn note_all_sure(&mut self, events: usize) {
        (0..self.keys.len()).for_each(|key| self.note_sure(key, events));
    }

    /// Whether `shown` is what a key may show while nothing has crashed.
    pub fn check_now(&self, key: usize, shown: Option<&[u8]>, may_miss: bool) -> Result<(), String> {
        let last = self.keys[key].last().expect("there is a first one");
        self.allows(key, shown, &last.outcomes, may_miss).map(drop)
    }

    /// Whether `shown` is what a key may show after a crash behind so many events. Tells the version. A key that was being
    /// changed may be a miss: a record that is torn cannot be told from one that was damaged later, and where that was the
    /// newest, nothing older may take its place.
    pub fn check_after(
        &self,
        key: usize,
        shown: Option<&[u8]>,
        events: usize,
        may_miss: bool,
    ) -> Result<Option<u32>, String> {
        let changes = &self.keys[key];
        let sure = changes.iter().rposition(|change| change.sure <= events).unwrap_or(0);
        let possible = changes[sure..].iter().filter(|change| change.begun <= events);
        let outcomes: Vec<_> = possible.clone().flat_map(|change| change.outcomes.clone()).collect();
        self.allows(key, shown, &outcomes, may_miss || possible.count() > 1)
    }

    /// Begins anew from what keys show after a crash.
    pub fn restart(&mut self, shown: Vec<Option<u32>>) {
        for (changes, version) in self.keys.iter_mut().zip(shown) {
            *changes = vec![Change { outcomes: vec![version], begun: 0, sure: 0 }];
        }
    }

    fn allows(
        &self,
        key: usize,
        shown: Option<&[u8]>,
        outcomes: &[Option<u32>],
        may_miss: bool,
    ) -> Result<Option<u32>, String> {
        let number = self.number(key);
        let version = shown.map(|shown| version_of(number, shown)).transpose()?;
        if outcomes.contains(&version) || (may_miss && version.is_none()) {
            return Ok(version);
        }
        let last = self.keys[key].iter().rev().take(4).collect::<Vec<_>>();
        Err(format!("key {number} shows {version:?}, and it may be one of {outcomes:?}; its last changes: {last:?}"))
    }

    /// The value of a version of a key.
    pub fn value(&self, key: usize, version: u32) -> Vec<u8> {
        value(self.number(key), version)
    }
}
