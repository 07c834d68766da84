//! Reads the feed of one node, and applies what concerns this one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_client::wire::blocking::{Dialogue, DialogueError, Next};
use moneta_client::wire::changes::Told;
use moneta_client::wire::{Answer, PROBE_KEY, Protocol, Refusal, Request, Verb};
use moneta_net::Address;
use moneta_store::StoreError;
use parking_lot::Mutex;

use super::State;
use super::apply::ApplyError;
use super::peers::Keys;

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
    pub(super) state: Arc<State>,
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

/// Why reading ended.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("{0}")]
    Dialogue(#[from] DialogueError),
    #[error("{0}")]
    Apply(#[from] ApplyError),
    #[error("it ended its feed")]
    Ended,
}

impl Reader {
    /// Runs until it is told to stop, or the store is closed.
    pub(super) fn run(self) {
        let mut cursor = None;
        let mut told = None;
        while !self.is_over() {
            let Err(error) = self.read(&mut cursor) else { return };
            if matches!(error, ReadError::Apply(ApplyError::Closed)) {
                return;
            }
            self.progress.failures.fetch_add(1, Ordering::Relaxed);
            self.progress.reached.lock().answers = false;
            let why = error.to_string();
            if told.as_ref() != Some(&why) {
                tracing::warn!(node = %self.address, error = why, "the feed of a node cannot be read: trying again");
                told = Some(why);
            }
            std::thread::sleep(RETRY);
        }
    }

    fn is_over(&self) -> bool {
        self.progress.stop.load(Ordering::Relaxed) || self.state.is_closed()
    }

    fn connect(&self) -> Result<Dialogue, DialogueError> {
        let endpoint = self.state.endpoint(&self.address, TIMEOUT);
        Dialogue::open(&endpoint, Some(Protocol::Meta), self.state.config.item_max)
    }

    /// Whether the node answers reads itself.
    fn is_whole(&self) -> Result<bool, DialogueError> {
        let peek = Request { verb: Verb::Peek { value: false }, key: PROBE_KEY, value: &[] };
        let mut dialogue = self.connect()?;
        dialogue.limit(Some(TIMEOUT));
        let answer = dialogue.call(&peek)?;
        Ok(!matches!(&answer, Answer::Refused(Refusal::Server, why) if why == StoreError::CATCHING_UP))
    }

    fn read(&self, cursor: &mut Option<String>) -> Result<(), ReadError> {
        let whole = self.ask_whole()?;
        {
            let mut reached = self.progress.reached.lock();
            (reached.answers, reached.whole) = (true, whole);
        }
        let mut dialogue = self.connect()?;
        let from = match &*cursor {
            Some(cursor) => format!("cursor {cursor}"),
            None => format!("since {}", self.since),
        };
        dialogue.changes(&format!("{from} follow values name {}", self.name))?;
        let (mut batch, mut bytes) = (Vec::new(), 0);
        let mut asked = Instant::now();
        let mut large = None;
        while !self.is_over() {
            let told = match dialogue.next_change()? {
                Next::Told(told) => told,
                Next::Lacking(lacking) => {
                    if lacking > LARGE && large.is_none() {
                        // First what may wait for the one that has a large value.
                        self.state.apply(&std::mem::take(&mut batch))?;
                        bytes = 0;
                        large = Some(self.state.large.lock());
                    }
                    dialogue.await_change(lacking)?;
                    continue;
                }
            };
            let is_full = batch.len() >= BATCH || bytes >= BATCH_BYTES;
            if is_full || matches!(told, Told::At { .. } | Told::Flush { .. }) {
                self.state.apply(&batch)?;
                batch.clear();
                bytes = 0;
            }
            match told {
                Told::Set(ref set) if self.keys.contains(&set.key) => {
                    bytes += set.key.len() + set.value.as_ref().map_or(0, Vec::len);
                    batch.push(told);
                }
                Told::Delete { ref key, .. } | Told::TooLarge { ref key, .. } if self.keys.contains(key) => {
                    batch.push(told);
                }
                Told::Flush { .. } => self.state.apply(&[told])?,
                // What is missing from within the margin alone may be missing: it was here.
                Told::Gap { since } if since <= self.needed => {}
                Told::Gap { .. } => self.progress.reached.lock().gap = true,
                Told::At { cursor: at, watermark } => {
                    *cursor = Some(at);
                    // It may have caught up meanwhile.
                    let is_whole = self.progress.reached().whole;
                    let ask = !is_whole && asked.elapsed() >= ASK_EVERY;
                    let whole = if ask { self.ask_whole()? } else { is_whole };
                    if ask {
                        asked = Instant::now();
                    }
                    let mut reached = self.progress.reached.lock();
                    reached.whole = whole;
                    reached.watermark = reached.watermark.max(watermark);
                }
                // What the node has lost, others have.
                Told::Lost { .. } | Told::Set(_) | Told::Delete { .. } | Told::TooLarge { .. } => {}
                Told::End => return Err(ReadError::Ended),
            }
            if large.is_some() {
                self.state.apply(&std::mem::take(&mut batch))?;
                (bytes, large) = (0, None);
            }
        }
        Ok(())
    }

    /// As [`Reader::is_whole`]; takes note of it.
    fn ask_whole(&self) -> Result<bool, DialogueError> {
        let whole = self.is_whole();
        self.progress.reached.lock().serves = *whole.as_ref().unwrap_or(&false);
        whole
    }
}
