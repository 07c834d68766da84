//! Reads the feed of one node, and applies what concerns this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moneta_client::wire::blocking::{Dialogue, DialogueError};
use moneta_client::wire::{Answer, PROBE_KEY, Protocol, Refusal, Request, Verb};
use moneta_feed::{
    Begin, Change, Filter, Gap, Mark, NodeSource, Owner, Pump, PumpError, Rate, Settings, SinkError, SourceError,
    Wanted,
};
use moneta_net::Address;
use moneta_store::{ErrorCode, Version};
use parking_lot::Mutex;

use super::apply::OwnStore;
use super::peers::Keys;
use super::state::CatchUpState;

/// Longest wait for a node: one that follows hears something each second.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Pause before a node that fails is asked again.
const RETRY: Duration = Duration::from_millis(500);
/// How often a node that is behind itself is asked whether it still is.
const ASK_EVERY: Duration = Duration::from_secs(1);
/// Changes that are applied at once.
const BATCH: usize = 256;
/// Bytes of keys and values that are applied at once, about.
const BATCH_BYTES: usize = 256 << 10;
/// Bytes that one change may need before only one reader of all may hold such a one.
const LARGE: usize = 256 << 10;

/// How far a reader is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Reached {
    /// The node has answered since the reader began or failed.
    pub(super) answers: bool,
    /// The node answers reads, as far as is known: it was asked, and has not failed to answer since.
    pub(super) serves: bool,
    /// The node answers reads itself.
    pub(super) whole: bool,
    /// The node's feed does not reach back to where the reader began.
    pub(super) gap: bool,
    /// What the node took until then was applied, in milliseconds since the Unix epoch.
    pub(super) watermark: u64,
}

/// A reader, as those see it that wait for it.
#[derive(Default)]
pub(super) struct Progress {
    reached: Mutex<Reached>,
    /// Times that it failed.
    failures: AtomicU64,
    stop: AtomicBool,
}

impl Progress {
    pub(super) fn reached(&self) -> Reached {
        *self.reached.lock()
    }

    pub(super) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Relaxed)
    }

    /// The reader is to end.
    pub(super) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Reads until it is told to stop. Times are in milliseconds since the Unix epoch.
pub(super) struct Reader {
    pub(super) state: Arc<CatchUpState>,
    pub(super) address: Address,
    pub(super) keys: Arc<Keys>,
    /// Where to begin.
    pub(super) since: u64,
    /// Since when every change is needed.
    pub(super) needed: u64,
    /// Under which the node lists this reader.
    pub(super) name: String,
    pub(super) progress: Arc<Progress>,
}

impl Reader {
    /// Runs until it is told to stop, or the store is closed.
    pub(super) fn run(self) {
        let wanted = Wanted { values: true, ..Wanted::default() };
        let request = moneta_feed::Request {
            wanted,
            follow: true,
            name: Some(self.name.clone()),
            ..moneta_feed::Request::default()
        };
        let source = NodeSource::new(self.state.endpoint(&self.address, TIMEOUT), request, self.state.config.item_max);
        let keys = Arc::clone(&self.keys);
        let filter: Filter = Arc::new(move |key| keys.contains(key));
        let settings = Settings {
            batch: BATCH,
            batch_bytes: BATCH_BYTES,
            follows: true,
            filter: Some(filter),
            // What is missing from within the margin alone may be missing: it was here.
            needed: self.needed,
            margin: None,
            large: Some(Arc::clone(&self.state.large)),
            large_bytes: LARGE,
        };
        let sink = OwnStore::of(&self.state);
        let mut pump = Pump::new(source, sink, settings, Rate::default(), Begin::Since(self.since), 0);
        let mut reading = Reading { reader: self, told: None, asked: Instant::now() };
        // Why it ended was told, or it was asked to.
        let _ = pump.run(&mut reading);
    }

    fn connect(&self) -> Result<Dialogue, DialogueError> {
        Dialogue::open(&self.state.endpoint(&self.address, TIMEOUT), Some(Protocol::Meta), self.state.config.item_max)
    }

    /// Whether the node answers reads itself.
    fn is_whole(&self) -> Result<bool, DialogueError> {
        let peek = Request { verb: Verb::Peek { value: false }, key: PROBE_KEY, value: &[] };
        let mut dialogue = self.connect()?;
        dialogue.limit(Some(TIMEOUT));
        let answer = dialogue.call(&peek)?;
        Ok(!matches!(answer, Answer::Refused(Refusal::Told(ErrorCode::CatchingUp), _)))
    }

    /// As [`Reader::is_whole`]; takes note of it.
    fn ask_whole(&self) -> Result<bool, SourceError> {
        let whole = self.is_whole();
        self.progress.reached.lock().serves = *whole.as_ref().unwrap_or(&false);
        Ok(whole?)
    }
}

/// A reader that runs.
struct Reading {
    reader: Reader,
    /// Why it failed last.
    told: Option<String>,
    /// When the node was asked last whether it answers reads.
    asked: Instant,
}

impl Reading {
    fn progress(&self) -> &Progress {
        &self.reader.progress
    }
}

impl Owner<OwnStore> for Reading {
    fn is_over(&self) -> bool {
        self.progress().stop.load(Ordering::Relaxed) || self.reader.state.is_closed()
    }

    fn beginning(&mut self) -> Result<(), PumpError> {
        let whole = self.reader.ask_whole()?;
        self.asked = Instant::now();
        let mut reached = self.progress().reached.lock();
        (reached.answers, reached.whole) = (true, whole);
        Ok(())
    }

    fn gap(&mut self, _: Gap) {
        self.progress().reached.lock().gap = true;
    }

    /// What the node has lost, others have.
    fn lost(&mut self, _: u64) {}

    fn reached(&mut self, mark: &Mark, _: &mut OwnStore) -> Result<(), PumpError> {
        let mut whole = self.progress().reached().whole;
        // It may have caught up meanwhile.
        if !whole && self.asked.elapsed() >= ASK_EVERY {
            whole = self.reader.ask_whole()?;
            self.asked = Instant::now();
        }
        let mut reached = self.progress().reached.lock();
        reached.whole = whole;
        reached.watermark = reached.watermark.max(mark.watermark);
        Ok(())
    }

    /// The node would not take it, and what is older is gone.
    fn oversized(&mut self, key: Bytes, version: Version) -> Result<Option<Change>, PumpError> {
        Ok(Some(Change::Delete { key, version: version.just_below() }))
    }

    fn goes_on(&mut self, error: &PumpError) -> bool {
        if matches!(error, PumpError::Sink(SinkError::Closed)) {
            return false;
        }
        self.progress().failures.fetch_add(1, Ordering::Relaxed);
        self.progress().reached.lock().answers = false;
        let why = error.to_string();
        if self.told.as_ref() != Some(&why) {
            let node = &self.reader.address;
            tracing::warn!(%node, error = why, "the feed of a node cannot be read: trying again");
            self.told = Some(why);
        }
        std::thread::sleep(RETRY);
        true
    }
}
