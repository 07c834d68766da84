//! The feed of a store in this process, for what takes a source: pumps, mends and relays in simulations.

use std::sync::Arc;

use moneta_feed::{Begin, FeedPlace, Line, LogSource, Mark, Next, Source, SourceError, Wanted, horizon};
use moneta_store::{Store, StoreError};

/// Changes that are read at once.
const CHANGES: usize = 1024;
/// Bytes of keys and values that are read at once, about.
const BYTES: usize = 256 << 10;

/// Reads what a store of this process has to tell, and ends. It has no rate.
pub struct StoreSource {
    store: Arc<dyn Store>,
    wanted: Wanted,
    log: Option<LogSource>,
    /// All of a batch was told, but for how far that is.
    owes_mark: bool,
}

impl StoreSource {
    /// Reads what `store` tells.
    pub fn new(store: Arc<dyn Store>, wanted: Wanted) -> Self {
        Self { store, wanted, log: None, owes_mark: false }
    }

    fn log(&mut self) -> Result<&mut LogSource, SourceError> {
        self.log.as_mut().ok_or_else(|| SourceError::Away("it is not read".to_owned()))
    }

    fn mark(&mut self) -> Result<Mark, SourceError> {
        let horizon = horizon(&self.store);
        let log = self.log()?;
        let (place, watermark, more) = (log.place(), log.watermark(), !log.is_end());
        Ok(Mark { cursor: place.to_string(), watermark, horizon, behind: None, more })
    }
}

fn away(error: StoreError) -> SourceError {
    SourceError::Away(error.to_string())
}

impl Source for StoreSource {
    fn begin(&mut self, from: Begin, _: u64) -> Result<(), SourceError> {
        let none = || SourceError::Refused("this store has no feed".to_owned());
        let feed = self.store.parts().feed.ok_or_else(none)?;
        let place: FeedPlace = match from {
            Begin::Now => feed.end(),
            Begin::Since(millis) => feed.since(millis),
            Begin::Cursor(place) => place,
        };
        self.log = Some(LogSource::new(&self.store, place, self.wanted.clone()).ok_or_else(none)?);
        self.owes_mark = false;
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        if let Some(change) = self.log()?.next_change().map_err(away)? {
            self.owes_mark = true;
            return Ok(Next::Line(Line::Change(change)));
        }
        if std::mem::take(&mut self.owes_mark) {
            return Ok(Next::Line(Line::Mark(self.mark()?)));
        }
        Ok(if self.log()?.is_end() { Next::Line(Line::End) } else { Next::Lacking(1) })
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        // How far it is is told also where a batch has nothing that is wanted.
        self.owes_mark = true;
        self.log()?.read(CHANGES, BYTES).map(drop).map_err(away)
    }

    fn set_rate(&mut self, _: u64) -> Result<bool, SourceError> {
        Ok(false)
    }
}
