//! A source whose changes are counted, and trimmed to what is wanted of them.

use std::mem::take;
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_feed::{Begin, Change, Line, Next, Source, SourceError};

use crate::moment::millis;
use crate::stages::{For, waiting};
use crate::throttle::{Advance, Throttle};
use crate::watch::{Counted, Counters};
use crate::which::Which;

/// Longest pause before it is looked whether the job is to end.
const PAUSE: Duration = Duration::from_millis(200);

/// Of what moment the items count that a source tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// As the source says.
    Told,
    /// As current, whatever the source says: of lists of keys, whose items all were when they were read.
    Current,
    /// Of so many milliseconds before what the source says, or before now if that says nothing: the way here took some.
    Before(u64),
}

/// Counts what a source tells. A flush takes all of a node, so one is not passed on where only some keys are wanted. Of a feed,
/// an item with too little left to live becomes a delete, and so does one that is too large:
/// what the key held before is gone, too.
pub struct Metered<S> {
    source: S,
    which: Which,
    moment: Moment,
    counters: Counters,
    throttle: Throttle,
    /// The throttle held back the last change, not the source: that is not waited for, since it may have all that it is going to have.
    is_held: bool,
    /// Of changes that are followed.
    follows: Option<Advance>,
}

impl<S: Source> Metered<S> {
    /// Counts what `source` tells.
    pub fn new(source: S, which: Which, moment: Moment, counters: Counters) -> Self {
        Self { source, which, moment, counters, throttle: Throttle::of(0, 0), is_held: false, follows: None }
    }

    /// The same, no faster than `throttle` says.
    #[must_use]
    pub fn throttled(self, throttle: &Throttle) -> Self {
        Self { throttle: throttle.clone(), ..self }
    }

    /// Changes that are followed: the bound is raised for them where they come faster, and the counters tell that.
    #[must_use]
    pub fn keeping_up(self) -> Self {
        Self { follows: Some(Advance::from(0, Instant::now())), ..self }
    }

    fn is_wanted(&self, change: &Change) -> bool {
        let left_out = match change {
            Change::Flush(_) if self.which.is_part() => Counted::Flush,
            change if change.key().is_some_and(|key| !self.which.has_key(key)) => Counted::Unwanted,
            _ => return true,
        };
        self.counters.add(left_out);
        false
    }

    /// In place: moving changes on costs as much as copying small values.
    fn trim(&self, change: &mut Change) {
        match change {
            Change::Set(set) if !self.which.lives_on(set.meta.expiry.0) => {
                self.counters.add(Counted::ShortLived);
                *change = self.deleted(Change::Delete { key: take(&mut set.key), version: set.meta.version() });
            }
            Change::Set(set) => {
                match self.moment {
                    Moment::Told if set.as_of.is_some() => self.counters.add(Counted::Replaced),
                    Moment::Told => {}
                    Moment::Current => set.as_of = None,
                    Moment::Before(margin) => {
                        set.as_of = Some(set.as_of.unwrap_or_else(millis).saturating_sub(margin));
                    }
                }
                self.counters.add(Counted::Item(change.size() as u64));
            }
            Change::Delete { .. } => self.counters.add(Counted::Delete(change.size() as u64)),
            Change::Flush(_) | Change::Gap(_) | Change::Lost { .. } => self.counters.add(Counted::Other),
        }
    }

    fn deleted(&self, change: Change) -> Change {
        self.counters.add(Counted::Delete(change.size() as u64));
        change
    }
}

impl<S: Source> Source for Metered<S> {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        self.source.begin(from, rate)
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        self.is_held = !self.throttle.left().is_zero();
        if self.is_held {
            return Ok(Next::Lacking(1));
        }
        let next = self.passed_on()?;
        if let Next::Line(Line::Change(change)) = &next {
            self.throttle.sent(1, change.size() as u64);
        }
        if let (Next::Line(Line::Mark(mark)), Some(advance)) = (&next, &mut self.follows)
            && self.throttle.keep_up(advance, mark.watermark, Instant::now())
        {
            self.counters.note_raised();
        }
        Ok(next)
    }

    fn is_ready(&self) -> bool {
        self.source.is_ready()
    }

    fn wait(&mut self, bytes: usize) -> Result<(), SourceError> {
        if !self.is_held {
            return waiting(For::Source, || self.source.wait(bytes));
        }
        let pause = self.throttle.left().min(PAUSE);
        waiting(For::Bound, || sleep(pause));
        if let Some(advance) = &mut self.follows {
            advance.held(pause);
        }
        Ok(())
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.source.set_rate(rate)
    }
}

impl<S: Source> Metered<S> {
    fn passed_on(&mut self) -> Result<Next, SourceError> {
        loop {
            let mut next = self.source.next()?;
            match &mut next {
                Next::Line(Line::Change(change)) if !self.is_wanted(change) => continue,
                Next::Line(Line::Change(change)) => self.trim(change),
                Next::Oversized { key, .. } if !self.which.has_key(key) => continue,
                Next::Oversized { key, version } => {
                    self.counters.add(Counted::TooLarge);
                    let (key, version) = (take(key), *version);
                    next = Next::Line(Line::Change(self.deleted(Change::Delete { key, version })));
                }
                _ => {}
            }
            return Ok(next);
        }
    }
}
