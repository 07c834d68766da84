//! A chain as the end of a feed's pump.

use std::io;

use moneta_feed::{Mark, Sink, SinkError};
use moneta_store::feed::Change;

use crate::chain::{Chain, Draft};
use crate::error::SegmentError;
use crate::form::Form;

/// Writes changes into segments. They end at marks: the pump's owner tells of these by [`ChainSink::reached`].
pub struct ChainSink {
    chain: Chain,
    form: Form,
    now: Box<dyn Fn() -> u64 + Send>,
    draft: Option<Draft>,
}

impl ChainSink {
    /// Adds to `chain`. `now`: Unix milliseconds.
    pub fn new(chain: Chain, form: Form, now: Box<dyn Fn() -> u64 + Send>) -> Self {
        Self { chain, form, now, draft: None }
    }

    /// The chain, with what is committed.
    pub fn chain(&self) -> &Chain {
        &self.chain
    }

    /// All up to this mark was taken. Commits the segment if it is long enough, or `must` be.
    ///
    /// # Errors
    /// If the archive does not take it, or another process writes the chain.
    pub fn reached(&mut self, mark: &Mark, must: bool) -> Result<(), SegmentError> {
        let is_due = |draft: &Draft| must || draft.length() >= self.form.segment_bytes;
        match self.draft.take_if(|draft| is_due(draft)) {
            Some(draft) => self.chain.commit(draft, &mark.cursor, mark.watermark),
            None => Ok(()),
        }
    }

    /// Nothing is under way, and the source has come to this mark: has the chain end there, by a segment without changes if need be.
    /// Else a source of which little is wanted would be asked again for all that it told meanwhile.
    ///
    /// # Errors
    /// As [`ChainSink::reached`].
    pub fn advance(&mut self, mark: &Mark) -> Result<(), SegmentError> {
        if self.chain.end() != mark.cursor {
            self.draft()?;
        }
        self.reached(mark, true)
    }

    /// The same, also where the chain ends there already: its readers hear that nothing changed until the mark's watermark.
    ///
    /// # Errors
    /// As [`ChainSink::reached`].
    pub fn tell(&mut self, mark: &Mark) -> Result<(), SegmentError> {
        self.draft()?;
        self.reached(mark, true)
    }

    /// No more comes: the chain is done. What is not committed is dropped. `to`: as of [`Chain::finish`].
    ///
    /// # Errors
    /// If the archive does not take it.
    pub fn finish(mut self, to: Option<&str>) -> Result<Chain, SegmentError> {
        self.draft = None;
        self.chain.finish(to)?;
        Ok(self.chain)
    }

    fn draft(&mut self) -> Result<&mut Draft, SegmentError> {
        if self.draft.is_none() {
            self.draft = Some(self.chain.begin(&self.form, (self.now)())?);
        }
        Ok(self.draft.as_mut().expect("it was begun"))
    }
}

impl Sink for ChainSink {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        if changes.is_empty() {
            return Ok(());
        }
        let now = (self.now)();
        let draft = self.draft().map_err(io::Error::from)?;
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
