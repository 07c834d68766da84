//! What one thread did to the keys that are its alone, and so what each may show: now, and after a crash at any event of the
//! device.

use std::fmt::Write;

use super::super::history::{value, version_of};

/// A change that is not known to be on the device.
const UNSURE: usize = usize::MAX;
/// Changes of a key that a failure tells.
const HISTORY: usize = 30;

/// Seconds between which something happened: the clock may turn during a request.
pub type Seconds = (u32, u32);

/// What a key holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    pub version: u32,
    /// When it dies; both `u32::MAX`: never.
    pub dies: Seconds,
}

impl Held {
    fn told(self) -> String {
        let Self { version, dies } = self;
        if dies.0 == u32::MAX { format!("{version}") } else { format!("{version} until {dies:?}") }
    }
}

/// One change of a key.
#[derive(Clone, Debug)]
struct Change {
    /// What the key may hold from then on, or nothing.
    outcomes: Vec<Option<Held>>,
    /// Events of the device when it was begun.
    begun: usize,
    /// Events of the device by which it is known to be on the device.
    sure: usize,
    /// What was asked for, and the answer.
    what: String,
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
    /// In an error before it changed anything, or as above.
    Unsure,
}

impl Book {
    /// Of so many keys from number `first` on, that all hold nothing.
    pub fn new(first: usize, keys: usize) -> Self {
        let nothing = Change { outcomes: vec![None], begun: 0, sure: 0, what: "nothing yet".into() };
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

    fn last(&self, key: usize) -> &Change {
        self.keys[key].last().expect("there is a first one")
    }

    /// A key was changed; `events` had happened to the device before.
    pub fn note(&mut self, key: usize, to: Option<Held>, ended: Ended, events: usize, what: String) {
        let mut outcomes = vec![to];
        if ended != Ended::Well {
            outcomes.push(None);
        }
        if ended == Ended::Unsure {
            outcomes.extend(&self.last(key).outcomes);
        }
        self.keys[key].push(Change { outcomes, begun: events, sure: UNSURE, what });
    }

    /// A key was read, and what it holds got another time to live. `shown`: what the read showed; an error if it failed.
    pub fn note_touched(
        &mut self,
        key: usize,
        shown: Result<Option<u32>, ()>,
        dies: Seconds,
        events: usize,
        what: String,
    ) {
        let outcomes = match shown {
            Ok(None) => return,
            Ok(Some(version)) => vec![Some(Held { version, dies })],
            Err(()) => {
                let before = &self.last(key).outcomes;
                let touched = before.iter().flatten().map(|held| Some(Held { dies, ..*held }));
                touched.chain(before.iter().copied()).chain([None]).collect()
            }
        };
        self.keys[key].push(Change { outcomes, begun: events, sure: UNSURE, what });
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

    /// Whether `shown` is what a key may show between these seconds while nothing has crashed. Tells the version.
    pub fn check_now(
        &self,
        key: usize,
        shown: Option<&[u8]>,
        now: Seconds,
        may_miss: bool,
    ) -> Result<Option<u32>, String> {
        let held = self.allows(key, shown, &self.last(key).outcomes, now, may_miss)?;
        Ok(held.map(|held| held.version))
    }

    /// Whether `shown` is what a key may show in the second `now` after a crash after so many events. Tells what it holds. A
    /// key that was being changed may be a miss: a record that is torn cannot be told from one that was damaged later, and
    /// where that was the newest, nothing older may take its place.
    pub fn check_after(
        &self,
        key: usize,
        shown: Option<&[u8]>,
        events: usize,
        now: u32,
        may_miss: bool,
    ) -> Result<Option<Held>, String> {
        let changes = &self.keys[key];
        let sure = changes.iter().rposition(|change| change.sure <= events).unwrap_or(0);
        let possible = changes[sure..].iter().filter(|change| change.begun <= events);
        let outcomes: Vec<_> = possible.clone().flat_map(|change| change.outcomes.clone()).collect();
        self.allows(key, shown, &outcomes, (now, now), may_miss || possible.count() > 1)
    }

    /// Begins anew from what keys hold after a crash.
    pub fn restart(&mut self, held: Vec<Option<Held>>) {
        for (changes, held) in self.keys.iter_mut().zip(held) {
            *changes = vec![Change { outcomes: vec![held], begun: 0, sure: 0, what: "the life before".into() }];
        }
    }

    fn allows(
        &self,
        key: usize,
        shown: Option<&[u8]>,
        outcomes: &[Option<Held>],
        now: Seconds,
        may_miss: bool,
    ) -> Result<Option<Held>, String> {
        let number = self.number(key);
        let shown = shown.map(|shown| version_of(number, shown)).transpose()?;
        let is_gone = |held: &Option<Held>| held.is_none_or(|held| held.dies.0 <= now.1);
        match shown {
            None if may_miss || outcomes.iter().any(is_gone) => return Ok(None),
            None => {}
            Some(version) => {
                let alike = outcomes.iter().flatten().filter(|held| held.version == version && now.0 < held.dies.1);
                let merged = alike.copied().reduce(|one, other| Held {
                    dies: (one.dies.0.min(other.dies.0), one.dies.1.max(other.dies.1)),
                    ..one
                });
                if merged.is_some() {
                    return Ok(merged);
                }
            }
        }
        Err(format!(
            "key {number} shows {shown:?} in second {now:?}, and it may be one of {outcomes:?}; {}",
            self.history(key)
        ))
    }

    /// What was done to a key lately, a line each.
    pub fn history(&self, key: usize) -> String {
        let changes = &self.keys[key];
        let mut told = format!("what was done to key {} lately:\n", self.number(key));
        for Change { outcomes, begun, sure, what } in &changes[changes.len().saturating_sub(HISTORY)..] {
            let outcomes: Vec<String> = outcomes.iter().map(|held| held.map_or("nothing".into(), Held::told)).collect();
            let sure = if *sure == UNSURE { "never".into() } else { format!("by {sure}") };
            let _ = writeln!(told, "  behind {begun}, sure {sure}: {what}: holds {}", outcomes.join(" or "));
        }
        told
    }

    /// The value of a version of a key.
    pub fn value(&self, key: usize, version: u32) -> Vec<u8> {
        value(self.number(key), version)
    }
}
