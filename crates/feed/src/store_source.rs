//! A store of this process as a source.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_store::Store;
use moneta_store::feed::{FeedPlace, Wanted};

use crate::log::{LogSource, horizon};
use crate::mark::{Line, Mark};
use crate::pace::Pace;
use crate::request::Begin;
use crate::source::{Next, Source, SourceError};

/// Changes that are read at once.
const CHANGES: usize = 1024;
/// Bytes of keys and values that are read at once, about.
const BYTES: usize = 256 << 10;
/// How often a source that follows looks for changes.
const LOOK_EVERY: Duration = Duration::from_millis(5);
/// Longest wait for a change.
const WAIT: Duration = Duration::from_secs(1);

/// Reads the feed of a store in this process.
pub struct StoreSource {
    store: Arc<dyn Store>,
    wanted: Wanted,
    follows: bool,
    log: Option<LogSource>,
    pace: Pace,
    /// All of a batch was told, but for how far that is.
    owes_mark: bool,
}

impl StoreSource {
    /// Reads what `store` tells; `follows`: and goes on as it changes.
    pub fn new(store: Arc<dyn Store>, wanted: Wanted, follows: bool) -> Self {
        Self { store, wanted, follows, log: None, pace: Pace::of(0), owes_mark: false }
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

impl Source for StoreSource {
    fn begin(&mut self, from: Begin, rate: u64) -> Result<(), SourceError> {
        let none = || SourceError::Refused("this store has no feed".to_owned());
        let feed = self.store.parts().feed.ok_or_else(none)?;
        let place: FeedPlace = match from {
            Begin::Now => feed.end(),
            Begin::Since(millis) => feed.since(millis),
            Begin::Cursor(place) => place,
        };
        self.log = Some(LogSource::new(&self.store, place, self.wanted.clone()).ok_or_else(none)?);
        (self.pace, self.owes_mark) = (Pace::of(rate), false);
        Ok(())
    }

    fn next(&mut self) -> Result<Next, SourceError> {
        let away = |error: moneta_store::StoreError| SourceError::Away(error.to_string());
        let log = self.log()?;
        if let Some(change) = log.next_change().map_err(away)? {
            self.owes_mark = true;
            self.pace.sent(change.size() as u64, Instant::now());
            return Ok(Next::Line(Line::Change(change)));
        }
        if std::mem::take(&mut self.owes_mark) {
            return Ok(Next::Line(Line::Mark(self.mark()?)));
        }
        if self.log()?.is_end() && !self.follows {
            return Ok(Next::Line(Line::End));
        }
        Ok(Next::Lacking(1))
    }

    fn wait(&mut self, _: usize) -> Result<(), SourceError> {
        sleep(self.pace.left(Instant::now()).min(WAIT));
        if !self.pace.left(Instant::now()).is_zero() {
            return Ok(());
        }
        let from = Instant::now();
        while self.log()?.is_end() && !self.log()?.has_more() && from.elapsed() < WAIT {
            sleep(LOOK_EVERY);
        }
        // How far it is is told also while nothing changes.
        self.owes_mark = true;
        self.log()?.read(CHANGES, BYTES).map_err(|error| SourceError::Away(error.to_string()))?;
        Ok(())
    }

    fn set_rate(&mut self, rate: u64) -> Result<bool, SourceError> {
        self.pace.set(rate, Instant::now());
        Ok(true)
    }
}
