//! The pump: from a source to a sink, changes in batches, marks after what they say is done.
//!
//! ```text
//!          begin at a cursor, a moment, or now
//!                        │
//!      ┌─────────────────▼──────────────┐  fails: once its owner says so, from the last mark
//!      │ source ─ filter ─▶ batch ─▶ sink ◀──────────────┐
//!      └────────────┬───────────────────┘                │
//!         mark: everything before it is settled           │
//!                   │                                     │
//!                   ▼                                     │
//!      owner: keeps the cursor, looks at the watermark    │
//!                   └── the sink lacks something: from the last watermark less a margin
//! ```
//!
//! What a mark covers has ended when its owner hears of it, so a cursor that was kept never passes over a change.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use moneta_store::Version;
use moneta_store::feed::{Change, Gap};

use crate::mark::{Line, Mark};
use crate::request::Begin;
use crate::sink::{Sink, SinkError};
use crate::source::{Next, Source, SourceError};

/// Which keys are wanted.
pub type Filter = Arc<dyn Fn(&[u8]) -> bool + Send + Sync>;

/// How a pump works.
#[derive(Clone)]
pub struct Settings {
    /// Changes that are handed to the sink at once, at most.
    pub batch: usize,
    /// Bytes of keys and values after which a batch is handed on. One value more may be held.
    pub batch_bytes: usize,
    /// The source has no end: one that it tells is a failure.
    pub follows: bool,
    /// Only changes of these keys; `None`: of all.
    pub filter: Option<Filter>,
    /// A gap that ends by then is none: what is missing was there before. Milliseconds since the Unix epoch.
    pub needed: u64,
    /// How far before the last watermark is read again when the sink may lack something, in milliseconds; `None`: it is not.
    pub margin: Option<u64>,
    /// Held while a change is fetched that needs more than [`Settings::large_bytes`]: of all pumps that share it, one holds such
    /// a change.
    pub large: Option<Arc<Mutex<()>>>,
    /// As above.
    pub large_bytes: usize,
}

/// The rate of a pump, in bytes a second as its source sends them; 0: no bound. It may be changed while the pump runs; clones are
/// the same rate.
#[derive(Clone, Debug, Default)]
pub struct Rate(Arc<AtomicU64>);

impl Rate {
    /// A rate, in bytes a second.
    pub fn of(rate: u64) -> Self {
        Self(Arc::new(AtomicU64::new(rate)))
    }

    /// Sets it, in bytes a second.
    pub fn set(&self, rate: u64) {
        self.0.store(rate, Ordering::Relaxed);
    }

    /// Bytes a second.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Who runs a pump: hears what it does, and decides when it ends.
pub trait Owner<K: Sink> {
    /// Whether the pump is to end. Asked after each line and each wait.
    fn is_over(&self) -> bool;

    /// The source is about to be asked, at first and after each failure.
    ///
    /// # Errors
    /// When it is not to be.
    fn beginning(&mut self) -> Result<(), PumpError> {
        Ok(())
    }

    /// Changes are missing.
    fn gap(&mut self, gap: Gap);

    /// The source was killed, and lost what it took last before this moment, in milliseconds since the Unix epoch.
    fn lost(&mut self, until: u64);

    /// Everything before this mark has ended.
    ///
    /// # Errors
    /// When the pump cannot go on.
    fn reached(&mut self, mark: &Mark, sink: &mut K) -> Result<(), PumpError>;

    /// A key was given a value over the limit. The change that is applied in its place; `None`: none.
    ///
    /// # Errors
    /// When the pump is not to go on without the value.
    fn oversized(&mut self, key: Bytes, version: Version) -> Result<Option<Change>, PumpError>;

    /// The source has no more, and all that it told has ended. The sink may still say that it lacks something.
    ///
    /// # Errors
    /// When that cannot count as the end.
    fn ended(&mut self, _sink: &mut K) -> Result<(), PumpError> {
        Ok(())
    }

    /// The sink may lack what it took: it is told again, after a pause that the owner makes, from where this says; `None`: from
    /// the last watermark less the margin.
    fn goes_back(&mut self, _sink: &mut K) -> Option<Begin> {
        None
    }

    /// The source or the sink failed. True: go on from the last mark, which the owner may pause before.
    fn goes_on(&mut self, error: &PumpError) -> bool;
}

/// Why a pump stops.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PumpError {
    /// The source does not go on.
    #[error("{0}")]
    Source(#[from] SourceError),
    /// The sink does not take what was told.
    #[error("{0}")]
    Sink(#[from] SinkError),
    /// The source ended a feed that it should follow.
    #[error("it ended its feed")]
    Ended,
    /// Its owner cannot go on.
    #[error("{0}")]
    Owner(String),
}

/// Moves changes from a source to a sink.
pub struct Pump<S, K> {
    source: S,
    sink: K,
    settings: Settings,
    rate: Rate,
    /// Where it began, and where to begin the next time.
    start: Begin,
    place: Begin,
    /// Everything until then was told and has ended, in milliseconds since the Unix epoch; 0: that is not known.
    watermark: u64,
}

/// Bytes that are fetched at most while what was fetched before is under way.
const FETCHED_MAX: usize = 1 << 20;

/// What was read and not handed on.
#[derive(Default)]
struct Batch {
    changes: Vec<Change>,
    bytes: usize,
    /// The last mark that came with them: changes may have come after it.
    mark: Option<Mark>,
}

impl Batch {
    fn add(&mut self, change: Change) {
        self.bytes += change.size();
        self.changes.push(change);
    }

    fn take(&mut self) -> (Vec<Change>, Option<Mark>) {
        // The next one is likely as large.
        let changes = Vec::with_capacity(self.changes.len());
        self.bytes = 0;
        (std::mem::replace(&mut self.changes, changes), self.mark.take())
    }
}

impl<S: Source, K: Sink> Pump<S, K> {
    /// From `source` to `sink`. `watermark`: everything until then was told before, in milliseconds since the Unix epoch; 0: that
    /// is not known.
    pub fn new(source: S, sink: K, settings: Settings, rate: Rate, place: Begin, watermark: u64) -> Self {
        Self { source, sink, settings, rate, start: place, place, watermark }
    }

    /// Runs until its owner says that it is over, the source has no more, or neither will go on.
    ///
    /// # Errors
    /// What its owner does not go on after.
    pub fn run(&mut self, owner: &mut impl Owner<K>) -> Result<(), PumpError> {
        while !owner.is_over() {
            match self.read(owner) {
                Ok(Ended::Over) => return Ok(()),
                // Told again from before what the sink may have lost.
                Ok(Ended::Lacks(from)) => {
                    self.place = owner.goes_back(&mut self.sink).unwrap_or(from);
                }
                Err(error) if owner.goes_on(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// What it wrote to.
    pub fn into_sink(self) -> K {
        self.sink
    }

    /// Where to begin the next time.
    pub fn place(&self) -> Begin {
        self.place
    }

    fn read(&mut self, owner: &mut impl Owner<K>) -> Result<Ended, PumpError> {
        let mut rate = self.rate.get();
        owner.beginning()?;
        self.source.begin(self.place, rate)?;
        let shared = self.settings.large.clone();
        let mut large: Option<MutexGuard<'_, ()>> = None;
        let mut batch = Batch::default();
        // How far the source is with what is under way.
        let mut due: Option<Mark> = None;
        while !owner.is_over() {
            if self.rate.get() != rate {
                rate = self.rate.get();
                self.source.set_rate(rate)?;
            }
            match self.source.next()? {
                Next::Lacking(lacking) => {
                    let needs_large = lacking > self.settings.large_bytes && large.is_none();
                    // While more is there, what is under way need not end first.
                    if needs_large || lacking > FETCHED_MAX || !self.source.is_ready() {
                        if (batch.mark.is_some() || needs_large)
                            && let Some(ended) = self.hand_on(&mut batch, &mut due, owner)?
                        {
                            return Ok(ended);
                        }
                        if due.is_some() || needs_large {
                            self.sink.settle()?;
                        }
                        if let Some(mark) = due.take()
                            && let Some(ended) = self.reach(&mark, owner)?
                        {
                            return Ok(ended);
                        }
                        if needs_large && let Some(shared) = &shared {
                            // What may wait for the one that has a large value has ended.
                            large = Some(shared.lock().unwrap_or_else(PoisonError::into_inner));
                        }
                    }
                    self.source.wait(lacking)?;
                    continue;
                }
                Next::Oversized { key, version } if self.wants(&key) => {
                    owner.oversized(key, version)?.into_iter().for_each(|change| batch.add(change));
                }
                Next::Oversized { .. } => {}
                Next::Line(Line::Change(change)) => self.receive(change, &mut batch, owner),
                Next::Line(Line::Mark(mark)) => {
                    batch.mark = Some(mark);
                    continue;
                }
                Next::Line(Line::End) if self.settings.follows => return Err(PumpError::Ended),
                Next::Line(Line::End) => {
                    if let Some(ended) = self.hand_on(&mut batch, &mut due, owner)? {
                        return Ok(ended);
                    }
                    self.sink.settle()?;
                    let before = self.watermark;
                    if let Some(mark) = due.take()
                        && let Some(ended) = self.reach(&Mark { more: false, ..mark }, owner)?
                    {
                        return Ok(ended);
                    }
                    owner.ended(&mut self.sink)?;
                    return Ok(self.look_back(before).unwrap_or(Ended::Over));
                }
            }
            let is_full = batch.changes.len() >= self.settings.batch || batch.bytes >= self.settings.batch_bytes;
            if (is_full || large.is_some())
                && let Some(ended) = self.hand_on(&mut batch, &mut due, owner)?
            {
                return Ok(ended);
            }
            if large.take().is_some() {
                self.sink.settle()?;
            }
        }
        Ok(Ended::Over)
    }

    /// Hands a batch to the sink, which ends what was under way first: then the owner hears of the mark that was `due`. The mark
    /// of the batch is due next.
    fn hand_on(
        &mut self,
        batch: &mut Batch,
        due: &mut Option<Mark>,
        owner: &mut impl Owner<K>,
    ) -> Result<Option<Ended>, PumpError> {
        let (changes, mark) = batch.take();
        self.sink.take(changes)?;
        let ended = std::mem::replace(due, mark);
        ended.map_or(Ok(None), |mark| self.reach(&mark, owner))
    }

    /// A change that was told. Of gaps and losses the owner hears at once, and the sink in their turn.
    fn receive(&self, change: Change, batch: &mut Batch, owner: &mut impl Owner<K>) {
        match &change {
            Change::Gap(gap) if gap.since <= self.settings.needed => return,
            Change::Gap(gap) => owner.gap(*gap),
            Change::Lost { until } => owner.lost(*until),
            change if change.key().is_some_and(|key| !self.wants(key)) => return,
            _ => {}
        }
        batch.add(change);
    }

    fn wants(&self, key: &[u8]) -> bool {
        self.settings.filter.as_ref().is_none_or(|filter| filter(key))
    }

    /// Everything before a mark has ended. Told is how reading ends, if the sink lacks something that it took since the last
    /// mark, or shortly before.
    fn reach(&mut self, mark: &Mark, owner: &mut impl Owner<K>) -> Result<Option<Ended>, PumpError> {
        let before = self.watermark;
        if let Ok(place) = mark.cursor.parse() {
            self.place = Begin::Cursor(place);
        }
        self.watermark = before.max(mark.watermark);
        owner.reached(mark, &mut self.sink)?;
        Ok(self.look_back(before))
    }

    /// How reading ends if the sink lacks something that it took since this watermark was reached, or shortly before.
    fn look_back(&mut self, watermark: u64) -> Option<Ended> {
        let margin = self.settings.margin.filter(|_| self.sink.take_lacks())?;
        Some(Ended::Lacks(match watermark {
            0 => self.start,
            watermark => Begin::Since(watermark.saturating_sub(margin)),
        }))
    }
}

/// How reading ended.
enum Ended {
    /// There is no more, or its owner said so.
    Over,
    /// The sink may lack what was told from there on.
    Lacks(Begin),
}
