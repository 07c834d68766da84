//! Who watches a job: hears what it says, sees how far it is, ends it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde::Serialize;

use crate::law::Room;
use crate::stages::{Meter, Stages};

/// Watches a job.
pub trait Watch: Sync {
    /// Something that its user should read.
    fn note(&self, text: &str);

    /// A phase begins, of which so many items are expected, about; `None`: that is not known.
    fn phase(&self, what: &str, expected: Option<u64>);

    /// How far it is. Called some times a second.
    fn progress(&self, counts: Counts);

    /// Where the time went since the phase began. Called after [`Watch::progress`].
    fn stages(&self, _stages: &Stages) {}

    /// What it may have of its bound, of a job with a limit on what clients have to wait. Called each second.
    fn room(&self, _room: &Room) {}

    /// All changes of its source until then are done, of a job that follows them: Unix milliseconds by the source's clock. Of several
    /// sources each tells this for itself.
    fn reached(&self, _watermark: u64) {}

    /// Whether it is to end.
    fn should_stop(&self) -> bool;
}

/// What came from a source, as it comes.
#[derive(Clone, Debug, Default)]
pub struct Counters(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    items: AtomicU64,
    bytes: AtomicU64,
    deletes: AtomicU64,
    others: AtomicU64,
    replaced: AtomicU64,
    short_lived: AtomicU64,
    unwanted: AtomicU64,
    vanished: AtomicU64,
    too_large: AtomicU64,
    refused: AtomicU64,
    flushes: AtomicU64,
    is_raised: AtomicBool,
    meter: Meter,
}

/// What came from a source, and what was left out, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// Items that were passed on.
    pub items: u64,
    /// Bytes of keys and values that were passed on.
    pub bytes: u64,
    /// Deletes that were passed on, those in place of items that live too shortly among them.
    pub deletes: u64,
    /// Flushes, gaps and losses.
    pub others: u64,
    /// Among the items: those that their keys did not hold any more when a feed told them.
    pub replaced: u64,
    /// Left out: they had too little left to live.
    pub short_lived: u64,
    /// Left out: listed keys of another prefix or slot.
    pub unwanted: u64,
    /// Listed, and gone when they were asked for: expired, deleted or evicted.
    pub vanished: u64,
    /// Left out: larger than what is taken.
    pub too_large: u64,
    /// Left out: the source would not give them.
    pub refused: u64,
    /// Flushes that were left out, since only some keys are wanted.
    pub flushes_left_out: u64,
}

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counted {
    /// Bytes beside it.
    Item(u64),
    Delete(u64),
    Other,
    Replaced,
    ShortLived,
    Unwanted,
    Vanished,
    TooLarge,
    Refused,
    Flush,
}

impl Counts {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            items: self.items + other.items,
            bytes: self.bytes + other.bytes,
            deletes: self.deletes + other.deletes,
            others: self.others + other.others,
            replaced: self.replaced + other.replaced,
            short_lived: self.short_lived + other.short_lived,
            unwanted: self.unwanted + other.unwanted,
            vanished: self.vanished + other.vanished,
            too_large: self.too_large + other.too_large,
            refused: self.refused + other.refused,
            flushes_left_out: self.flushes_left_out + other.flushes_left_out,
        }
    }
}

impl Counters {
    pub(crate) fn add(&self, counted: Counted) {
        let inner = &*self.0;
        let (field, bytes) = match counted {
            Counted::Item(bytes) => (&inner.items, bytes),
            Counted::Delete(bytes) => (&inner.deletes, bytes),
            Counted::Other => (&inner.others, 0),
            Counted::Replaced => (&inner.replaced, 0),
            Counted::ShortLived => (&inner.short_lived, 0),
            Counted::Unwanted => (&inner.unwanted, 0),
            Counted::Vanished => (&inner.vanished, 0),
            Counted::TooLarge => (&inner.too_large, 0),
            Counted::Refused => (&inner.refused, 0),
            Counted::Flush => (&inner.flushes, 0),
        };
        field.fetch_add(1, Ordering::Relaxed);
        if bytes > 0 {
            inner.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// The bound was raised for changes that come faster.
    pub(crate) fn note_raised(&self) {
        self.0.is_raised.store(true, Ordering::Relaxed);
    }

    /// Whether it was since this was asked last.
    pub fn take_raised(&self) -> bool {
        self.0.is_raised.swap(false, Ordering::Relaxed)
    }

    /// What takes the times of who counts here.
    pub fn meter(&self) -> &Meter {
        &self.0.meter
    }

    /// Where the time went by now.
    pub fn stages(&self) -> Stages {
        let Counts { items, deletes, bytes, .. } = self.counts();
        self.0.meter.stages(items + deletes, bytes)
    }

    /// By now.
    pub fn counts(&self) -> Counts {
        let inner = &*self.0;
        let read = |field: &AtomicU64| field.load(Ordering::Relaxed);
        Counts {
            items: read(&inner.items),
            bytes: read(&inner.bytes),
            deletes: read(&inner.deletes),
            others: read(&inner.others),
            replaced: read(&inner.replaced),
            short_lived: read(&inner.short_lived),
            unwanted: read(&inner.unwanted),
            vanished: read(&inner.vanished),
            too_large: read(&inner.too_large),
            refused: read(&inner.refused),
            flushes_left_out: read(&inner.flushes),
        }
    }
}
