//! One run of the pump, and who owns it.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moneta_feed::{
    Begin, Change, Gap, GapCause, Mark, Owner, Pump, PumpError, Rate, Settings, Sink, SinkError, Source, SourceError,
};
use moneta_store::Version;

use crate::error::BulkError;
use crate::stages::{For, Lap, Meter, waiting};
use crate::watch::{Counters, Watch};

/// Changes that are handed to a sink at once.
const BATCH: usize = 1024;
/// Bytes of them, about.
const BATCH_BYTES: usize = 512 << 10;
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// After how many changes it is looked whether it is time for that.
const LOOKS: u32 = 16;
/// Pause before a source that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// A sink that keeps how far it is.
pub(crate) trait Checkpoint: Sink {
    /// Everything before this mark has ended. Tells the watermark up to which the sink would not lose that in a crash, if that is
    /// another one now.
    ///
    /// # Errors
    /// Why that cannot be kept.
    fn reached(&mut self, mark: &Mark) -> Result<Option<u64>, BulkError>;

    /// A run begins, of another source than that of before.
    fn begin(&mut self) {}

    /// The source has no more, and what it told has ended: waits, unless `is_over`, until the sink would not lose that in a crash. What
    /// it has lost by then it lacks.
    ///
    /// # Errors
    /// If it does not come to that.
    fn ended(&mut self, _is_over: &dyn Fn() -> bool) -> Result<(), BulkError> {
        Ok(())
    }

    /// It lacks something: what came after this mark is to be told again; `None`: all of this run. Also why, for people.
    fn goes_back(&mut self) -> (Option<&Mark>, String) {
        (None, String::new())
    }
}

/// How a run ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The source has no more.
    Over,
    /// Its user, or the other half of the job, ended it.
    Stopped,
    /// Changes are missing.
    Gap(Gap),
}

/// Which gaps end a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Gaps {
    /// Each.
    End,
    /// Those in what was there before: what a log does not hold any more, its node does not hold either.
    EndUnlessBefore,
    /// None: they were looked at when they were written down.
    Pass,
}

/// A run of the pump.
pub(crate) struct Passage<'a> {
    pub(crate) watch: &'a dyn Watch,
    pub(crate) counters: &'a Counters,
    /// The source, for people.
    pub(crate) from: &'a str,
    pub(crate) gaps: Gaps,
    /// How often the source may fail in a row; `None`: for ever.
    pub(crate) failures: Option<u32>,
    /// Set when another part of the job has ended in a way that ends this one.
    pub(crate) ends: &'a AtomicBool,
    /// The source cannot be begun but at its begin.
    pub(crate) is_list: bool,
}

impl Passage<'_> {
    /// Runs from a place until the source has no more, its user stops it, or it fails.
    pub(crate) fn run<S: Source, K: Checkpoint>(
        self,
        source: S,
        mut sink: K,
        place: Begin,
        follows: bool,
    ) -> (K, Result<Ended, BulkError>) {
        let settings = Settings {
            batch: BATCH,
            batch_bytes: BATCH_BYTES,
            follows,
            filter: None,
            needed: 0,
            // Where it goes back to, its owner says.
            margin: Some(0),
            large: None,
            large_bytes: usize::MAX,
        };
        sink.begin();
        let sink = Given { sink, meter: self.counters.meter().clone(), given: (0, 0) };
        let mut pump = Pump::new(source, sink, settings, Rate::default(), place, 0);
        let mut owner = RunOwner {
            passage: &self,
            start: place,
            follows,
            gap: None,
            failed: 0,
            told: Cell::new(Instant::now()),
            asked: Cell::new(0),
            lap: RefCell::new(Lap::begin()),
            raised: false,
            why: None,
        };
        let ended = pump.run(&mut owner);
        owner.tell();
        let RunOwner { gap, why, .. } = owner;
        let ended = match (ended, gap) {
            (Err(source), _) => Err(why.unwrap_or_else(|| BulkError::of_pump(self.from, source))),
            (Ok(()), Some(gap)) => Ok(Ended::Gap(gap)),
            (Ok(()), None) if self.is_stopped() => Ok(Ended::Stopped),
            (Ok(()), None) => Ok(Ended::Over),
        };
        (pump.into_sink().sink, ended)
    }

    fn is_stopped(&self) -> bool {
        self.watch.should_stop() || self.ends.load(Ordering::Relaxed)
    }

    fn ends_at(&self, gap: Gap) -> bool {
        match self.gaps {
            Gaps::End => true,
            Gaps::EndUnlessBefore => !matches!(gap.cause, Some(GapCause::Start | GapCause::Reclaimed)),
            Gaps::Pass => false,
        }
    }
}

struct RunOwner<'a, 'p> {
    passage: &'a Passage<'p>,
    start: Begin,
    follows: bool,
    gap: Option<Gap>,
    /// Failures in a row.
    failed: u32,
    told: Cell<Instant>,
    /// How often it was asked whether it is over.
    asked: Cell<u32>,
    /// Since when its time is not in the meter.
    lap: RefCell<Lap>,
    /// It was said that the bound gave way.
    raised: bool,
    /// Why it cannot be kept how far it is.
    why: Option<BulkError>,
}

impl RunOwner<'_, '_> {
    fn tell(&self) {
        let Passage { watch, counters, .. } = self.passage;
        counters.meter().lap(&mut self.lap.borrow_mut());
        watch.progress(counters.counts());
        watch.stages(&counters.stages());
    }

    fn or_why<T>(&mut self, ended: Result<T, BulkError>) -> Result<T, PumpError> {
        ended.map_err(|error| {
            let text = error.to_string();
            self.why = Some(error);
            PumpError::Owner(text)
        })
    }
}

impl<K: Checkpoint> Owner<Given<K>> for RunOwner<'_, '_> {
    fn is_over(&self) -> bool {
        // Here, and not at marks: a list of keys has few.
        self.asked.set(self.asked.get().wrapping_add(1));
        if self.asked.get().is_multiple_of(LOOKS) && self.told.get().elapsed() >= TELL_EVERY {
            self.told.set(Instant::now());
            self.tell();
        }
        self.gap.is_some() || self.passage.is_stopped()
    }

    fn gap(&mut self, gap: Gap) {
        if self.passage.ends_at(gap) {
            self.gap = Some(gap);
        }
    }

    fn lost(&mut self, _: u64) {}

    fn reached(&mut self, mark: &Mark, Given { sink, .. }: &mut Given<K>) -> Result<(), PumpError> {
        if self.failed > 0 {
            self.passage.watch.note(&format!("{} answers again", self.passage.from));
            self.failed = 0;
        }
        let reached = sink.reached(mark);
        let watermark = self.or_why(reached)?;
        if self.follows {
            if self.passage.counters.take_raised() && !std::mem::replace(&mut self.raised, true) {
                let from = self.passage.from;
                self.passage
                    .watch
                    .note(&format!("{from}: changes come faster than the rate allows: they are read faster"));
            }
            if let Some(watermark) = watermark {
                self.passage.watch.reached(watermark);
            }
        }
        Ok(())
    }

    fn ended(&mut self, Given { sink, .. }: &mut Given<K>) -> Result<(), PumpError> {
        let passage = self.passage;
        let ended = waiting(For::Target, || sink.ended(&|| passage.is_stopped()));
        self.or_why(ended)
    }

    fn goes_back(&mut self, Given { sink, .. }: &mut Given<K>) -> Option<Begin> {
        let (mark, why) = sink.goes_back();
        self.passage.watch.note(&why);
        let place = mark.filter(|_| !self.passage.is_list).and_then(|mark| mark.cursor.parse().ok());
        Some(place.map_or(self.start, Begin::Cursor))
    }

    /// Sources pass over what is too large.
    fn oversized(&mut self, key: Bytes, version: Version) -> Result<Option<Change>, PumpError> {
        Ok(Some(Change::Delete { key, version }))
    }

    fn goes_on(&mut self, error: &PumpError) -> bool {
        let may_pass = matches!(error, PumpError::Source(SourceError::Away(_)) | PumpError::Ended);
        if !may_pass || self.passage.failures.is_some_and(|most| self.failed >= most) {
            return false;
        }
        if self.failed == 0 {
            self.passage.watch.note(&format!("{}: {error}; asking again", self.passage.from));
        }
        self.failed += 1;
        sleep(RETRY);
        true
    }
}

/// A sink, and what it was given that has not ended.
struct Given<K> {
    sink: K,
    meter: Meter,
    /// Items and deletes, and their bytes.
    given: (u64, u64),
}

impl<K> Given<K> {
    /// All before `given` has ended.
    fn ended(&mut self, given: (u64, u64)) {
        let (items, bytes) = std::mem::replace(&mut self.given, given);
        self.meter.wrote(items, bytes);
    }
}

impl<K: Sink> Sink for Given<K> {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        let items = changes.iter().filter(|change| change.key().is_some()).count();
        let bytes = changes.iter().map(Change::size).sum::<usize>();
        self.sink.take(changes)?;
        self.ended((items as u64, bytes as u64));
        Ok(())
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.sink.settle()?;
        self.ended((0, 0));
        Ok(())
    }

    fn take_lacks(&mut self) -> bool {
        self.sink.take_lacks()
    }
}
