//! Chains as the end of a run: of a base, and of the changes, part after part.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_feed::{Change, Mark, Sink, SinkError};
use moneta_segments::chain::Draft;
use moneta_segments::{Chain, ChainSink, Form};

use crate::error::BackupError;
use crate::follow::Kept;
use crate::layout::{PartRecord, Slot};
use crate::moment::millis;

/// How often it is committed that nothing changed.
const IDLE_EVERY: Duration = Duration::from_secs(300);

/// A base as the end of a run.
pub(crate) struct BaseSink {
    sink: ChainSink,
    last: Option<Mark>,
}

impl BaseSink {
    /// Adds to a chain that is not done.
    pub(crate) fn new(chain: Chain, form: Form) -> Self {
        Self { sink: ChainSink::new(chain, form, Box::new(millis)), last: None }
    }

    /// All is there. `to`: where changes go on, if not where it ended. Tells that, and up to when all is in it.
    pub(crate) fn finish(mut self, to: Option<&str>) -> Result<(String, u64), BackupError> {
        if let Some(mark) = self.last.take() {
            match to {
                Some(_) => self.sink.reached(&mark, true)?,
                None => self.sink.advance(&mark)?,
            }
        }
        let chain = self.sink.finish(to)?;
        Ok(chain.done().map(|done| (done.to.clone(), done.watermark)).unwrap_or_default())
    }
}

impl Sink for BaseSink {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        self.sink.take(changes)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.sink.settle()
    }

    fn take_lacks(&mut self) -> bool {
        false
    }
}

impl Kept for BaseSink {
    fn reached(&mut self, mark: &Mark) -> Result<(), BackupError> {
        self.sink.reached(mark, false)?;
        self.last = Some(mark.clone());
        Ok(())
    }
}

/// When segments and parts end.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cadence {
    /// How often changes are committed.
    pub(crate) every: Duration,
    /// Age at which a part ends.
    pub(crate) part_age: Duration,
}

impl Cadence {
    /// Whether a part is to end.
    pub(crate) fn is_old(self, part: &PartRecord) -> bool {
        u128::from(millis().saturating_sub(part.begun)) >= self.part_age.as_millis()
    }
}

/// A part of the changes as the end of a run, and the parts after it.
pub(crate) struct PartSink<'a> {
    slot: &'a mut Slot,
    form: Form,
    part: PartRecord,
    pace: Cadence,
    chain: Chain,
    draft: Option<Draft>,
    /// A watermark that is to be committed as soon as it is reached, Unix milliseconds; 0: none.
    wanted: &'a AtomicU64,
    committed: Instant,
    last: Option<Mark>,
    /// The watermark of the newest segment, Unix milliseconds; 0: there is none of this run.
    pub(crate) restore_point: u64,
}

impl<'a> PartSink<'a> {
    /// Adds to a part, whose chain is not done.
    pub(crate) fn new(
        slot: &'a mut Slot,
        form: Form,
        part: PartRecord,
        pace: Cadence,
        chain: Chain,
        wanted: &'a AtomicU64,
    ) -> Self {
        let committed = Instant::now();
        Self { slot, form, part, pace, chain, draft: None, wanted, committed, last: None, restore_point: 0 }
    }

    /// No more comes in this run: what came is committed, and that nothing else did.
    pub(crate) fn end(&mut self) -> Result<(), BackupError> {
        match self.last.take() {
            Some(mark) => self.commit(&mark),
            None => Ok(()),
        }
    }

    fn commit(&mut self, mark: &Mark) -> Result<(), BackupError> {
        let draft = match self.draft.take() {
            Some(draft) => draft,
            None => self.chain.begin(&self.form, millis())?,
        };
        self.chain.commit(draft, &mark.cursor, mark.watermark)?;
        self.committed = Instant::now();
        self.restore_point = self.restore_point.max(mark.watermark);
        Ok(())
    }

    /// Another part begins where this one ends.
    fn turn(&mut self) -> Result<(), BackupError> {
        self.chain.finish(None)?;
        self.part = self.slot.add_part(&self.form.source, self.chain.end(), Some(self.part.number), millis())?;
        self.chain = self.slot.part_chain(&self.part)?;
        Ok(())
    }

    /// Whether a segment ends at this mark.
    fn is_due(&self, mark: &Mark) -> bool {
        let passed = self.committed.elapsed();
        let wanted = self.wanted.load(Ordering::Relaxed);
        match &self.draft {
            _ if wanted > 0 && mark.watermark >= wanted => true,
            Some(draft) => passed >= self.pace.every || draft.length() >= self.form.segment_bytes,
            None => passed >= self.pace.every.max(IDLE_EVERY),
        }
    }
}

impl Sink for PartSink<'_> {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        if changes.is_empty() {
            return Ok(());
        }
        if self.draft.is_none() {
            self.draft = Some(self.chain.begin(&self.form, millis()).map_err(io::Error::from)?);
        }
        let now = millis();
        let Some(draft) = &mut self.draft else { return Ok(()) };
        for change in &changes {
            draft.add(change, now).map_err(io::Error::from)?;
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        Ok(())
    }

    fn take_lacks(&mut self) -> bool {
        false
    }
}

impl Kept for PartSink<'_> {
    fn reached(&mut self, mark: &Mark) -> Result<(), BackupError> {
        if !self.is_due(mark) {
            self.last = Some(mark.clone());
            return Ok(());
        }
        self.commit(mark)?;
        self.last = None;
        if mark.watermark >= self.wanted.load(Ordering::Relaxed) {
            self.wanted.store(0, Ordering::Relaxed);
        }
        if self.pace.is_old(&self.part) { self.turn() } else { Ok(()) }
    }
}
