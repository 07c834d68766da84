//! A reader, and what it was told.

use crate::tier::{feed, number};
use fastrand::Rng;
use moneta_flash::Flash;
use moneta_store::feed::{Batch, Change, FeedPlace, GapCause, Reader, Recorded, Wanted};
use moneta_store::{Clock, Version};
use std::collections::HashMap;

/// A change that a client was told has happened.
#[derive(Clone, Copy, Debug)]
pub struct Done {
    pub millis: u64,
    pub key: u32,
    /// The least version that says of it.
    pub version: Version,
    /// When the item dies, Unix second; 0: never.
    pub expiry: u32,
}

/// What a reader was told.
#[derive(Default)]
pub struct Heard {
    pub newest: HashMap<u32, Version>,
    /// Changes before this moment may be missing.
    pub gap: u64,
    pub gaps: u32,
    /// Why, the last time.
    pub cause: Option<GapCause>,
    /// It was told that the node lost something before this moment.
    pub lost: u64,
    pub watermark: u64,
}

/// The changes of a batch. The log has what a key holds.
pub fn whole(batch: &Batch) -> impl Iterator<Item = &Change> {
    batch.entries.iter().map(|entry| match &entry.recorded {
        Recorded::Whole(change) => change,
        Recorded::KeyOnly(_) => panic!("the log has what a key holds"),
    })
}

impl Heard {
    pub fn note(&mut self, batch: &Batch) {
        if let Some(gap) = batch.gap {
            assert!(gap.since >= self.gap, "a gap is told once");
            (self.gap, self.cause) = (gap.since, gap.cause);
            self.gaps += 1;
        }
        for change in whole(batch) {
            let (key, version) = match change {
                Change::Set(set) => {
                    assert!(set.value.is_some());
                    (number(&set.key), set.meta.version())
                }
                Change::Delete { key, version } => (number(key), *version),
                Change::Lost { until } => {
                    self.lost = self.lost.max(*until);
                    continue;
                }
                Change::Flush(_) => continue,
                Change::Gap(_) => panic!("a batch has its gap in front"),
            };
            let newest = self.newest.entry(key).or_default();
            *newest = version.max(*newest);
        }
        self.watermark = self.watermark.max(batch.watermark);
    }

    /// That nothing of `journal`, from `from` up to the watermark, was kept from it. `lost`: what the node may have lost.
    pub fn check(&self, journal: &[Done], from: u64, lost: impl Fn(usize) -> bool) {
        let due = |done: &Done| (from.max(self.gap)..=self.watermark).contains(&done.millis);
        for (place, done) in journal.iter().enumerate().filter(|(_, done)| due(done)) {
            let heard = self.newest.get(&done.key).copied().unwrap_or_default();
            // An item that has expired is told as a delete just below it.
            let least = if done.expiry == 0 { done.version } else { done.version.just_below() };
            let excused = lost(place) && self.lost > done.millis;
            assert!(
                heard >= least || excused,
                "key {} was changed at {} to {:?}, and all that was told is {heard:?} (from {from}, gap {}, watermark {})",
                done.key,
                done.millis,
                done.version,
                self.gap,
                self.watermark
            );
        }
    }
}

/// A reader, as its cursor is kept.
pub struct Follower {
    pub from: u64,
    pub cursor: String,
    pub heard: Heard,
}

impl Follower {
    pub fn begin(flash: &Flash, clock: &Clock, rng: &mut Rng) -> Self {
        let back = rng.u64(0..2000);
        let from = if rng.bool() { clock.millis() - back } else { clock.millis() + 1 };
        let place = if from > clock.millis() { feed(flash).end() } else { feed(flash).since(from) };
        Self { from, cursor: place.to_string(), heard: Heard::default() }
    }

    pub fn reader(&self, flash: &Flash) -> Box<dyn Reader> {
        let place: FeedPlace = self.cursor.parse().expect("a cursor");
        feed(flash).reader(place, Wanted { values: true, ..Wanted::default() })
    }

    pub fn read(&mut self, reader: &mut dyn Reader, limit: usize) -> bool {
        let batch = reader.read(limit, 100_000).expect("the device answers");
        self.heard.note(&batch);
        self.cursor = batch.next.to_string();
        batch.is_end
    }

    pub fn read_all(&mut self, flash: &Flash) {
        let mut reader = self.reader(flash);
        while !self.read(&mut *reader, 50) {}
    }
}
