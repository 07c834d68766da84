//! One run of the pump from a node into chains, and who owns it.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use bytes::Bytes;
use moneta_bulk::{BulkError, Counters, Watch};
use moneta_feed::{
    Begin, Change, Gap, GapCause, Mark, Owner, Pump, PumpError, Rate, Settings, Sink, Source, SourceError,
};
use moneta_store::Version;

use crate::error::BackupError;

/// Changes that are handed to a chain at once.
const BATCH: usize = 1024;
/// Bytes of them, about.
const BATCH_BYTES: usize = 512 << 10;
/// How often progress is told.
const TELL_EVERY: Duration = Duration::from_millis(200);
/// Pause before a source that does not answer is asked again.
const RETRY: Duration = Duration::from_secs(1);

/// Where changes go, and what is done at a mark.
pub(crate) trait Kept: Sink {
    /// Everything before this mark is in it.
    ///
    /// # Errors
    /// Why that cannot be kept.
    fn reached(&mut self, mark: &Mark) -> Result<(), BackupError>;
}

/// A run of the pump.
pub(crate) struct Run<'a> {
    pub(crate) watch: &'a dyn Watch,
    pub(crate) counters: &'a Counters,
    /// The source, for people.
    pub(crate) from: &'a str,
    /// The source goes on until it is stopped, or has told all until [`Run::until`].
    pub(crate) follows: bool,
    /// What is missing was there before the begin, and is no gap.
    pub(crate) from_begin: bool,
    /// Unix milliseconds by the source's clock; 0: without end.
    pub(crate) until: &'a AtomicU64,
    /// How often the source may fail in a row; `None`: for ever.
    pub(crate) failures: Option<u32>,
    /// Another part of the job has failed.
    pub(crate) ends: &'a AtomicBool,
}

/// How a run ended that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    /// The source has no more, or all until the end is told.
    Over,
    /// It was stopped.
    Stopped,
    /// Changes are missing.
    Gap(Gap),
}

impl Run<'_> {
    /// Runs from a place.
    pub(crate) fn run<S: Source, K: Kept>(self, source: S, sink: K, place: Begin) -> (K, Result<Ended, BackupError>) {
        let settings = Settings {
            batch: BATCH,
            batch_bytes: BATCH_BYTES,
            follows: self.follows,
            filter: None,
            needed: 0,
            margin: None,
            large: None,
            large_bytes: usize::MAX,
        };
        let mut pump = Pump::new(source, sink, settings, Rate::default(), place, 0);
        let mut owner = RunOwner {
            run: &self,
            gap: None,
            is_done: false,
            failed: 0,
            told: Instant::now(),
            raised: false,
            why: None,
        };
        let ended = pump.run(&mut owner);
        let RunOwner { gap, is_done, why, .. } = owner;
        self.watch.progress(self.counters.counts());
        let ended = match ended {
            Err(source) => Err(why.unwrap_or_else(|| BulkError::of_pump(self.from, source).into())),
            Ok(()) => Ok(match gap {
                Some(gap) => Ended::Gap(gap),
                None if !is_done && self.is_stopped() => Ended::Stopped,
                None => Ended::Over,
            }),
        };
        (pump.into_sink(), ended)
    }

    fn is_stopped(&self) -> bool {
        self.watch.should_stop() || self.ends.load(Ordering::Relaxed)
    }
}

struct RunOwner<'a, 'r> {
    run: &'a Run<'r>,
    gap: Option<Gap>,
    /// All until the end is told.
    is_done: bool,
    /// Failures in a row.
    failed: u32,
    told: Instant,
    /// It was said that the bound gave way.
    raised: bool,
    /// Why the sink does not go on.
    why: Option<BackupError>,
}

impl<K: Kept> Owner<K> for RunOwner<'_, '_> {
    fn is_over(&self) -> bool {
        self.gap.is_some() || self.is_done || self.run.is_stopped()
    }

    fn gap(&mut self, gap: Gap) {
        let was_before = matches!(gap.cause, Some(GapCause::Start | GapCause::Reclaimed));
        if !(self.run.from_begin && was_before) {
            self.gap = Some(gap);
        }
    }

    fn lost(&mut self, _: u64) {}

    fn reached(&mut self, mark: &Mark, sink: &mut K) -> Result<(), PumpError> {
        if self.failed > 0 {
            self.run.watch.note(&format!("{} answers again", self.run.from));
            self.failed = 0;
        }
        if self.told.elapsed() >= TELL_EVERY {
            self.told = Instant::now();
            self.run.watch.progress(self.run.counters.counts());
        }
        if self.run.counters.take_raised() && !std::mem::replace(&mut self.raised, true) {
            let from = self.run.from;
            self.run.watch.note(&format!("{from}: changes come faster than the rate allows: they are read faster"));
        }
        if let Err(error) = sink.reached(mark) {
            let text = error.to_string();
            self.why = Some(error);
            return Err(PumpError::Owner(text));
        }
        let until = self.run.until.load(Ordering::Relaxed);
        self.is_done = until > 0 && mark.watermark >= until;
        Ok(())
    }

    /// Sources pass over what is too large.
    fn oversized(&mut self, key: Bytes, version: Version) -> Result<Option<Change>, PumpError> {
        Ok(Some(Change::Delete { key, version }))
    }

    fn goes_on(&mut self, error: &PumpError) -> bool {
        let may_pass = matches!(error, PumpError::Source(SourceError::Away(_)) | PumpError::Ended);
        if !may_pass || self.run.failures.is_some_and(|most| self.failed >= most) {
            return false;
        }
        if self.failed == 0 {
            self.run.watch.note(&format!("{}: {error}; asking again", self.run.from));
        }
        self.failed += 1;
        sleep(RETRY);
        true
    }
}
