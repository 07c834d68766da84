//! What the fleet was like at a time of the last seven days: a journal of the ledger's changes in files, beside the ledger.
//!
//! ```text
//!  segment-T0   all keys at T0, then each commit with its time, and a mark every minute
//!  segment-T1   the same from T1: begun at a start, after a day, or where the commits have grown larger than the keys
//! ```
//! A moment is answered by the last segment that began before it: its keys, and the commits up to there. Renewals are never written, so
//! neither is who was suspect, nor the numbers that travel with them. The journal is bounded in days and bytes; it is lost with its
//! folder, and nothing else depends on it. A process that did not run wrote nothing: the answer says since when.

mod segment;
mod times;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use moneta_background::Run;
use moneta_background::runtime::{self, AsyncTask};
use moneta_ledger::{Change, Cursor, Ledger, LedgerError, Snapshot, Step};
use tokio::time::{Instant, sleep, timeout};

use crate::commits::unix_ms;
use crate::error::Refusal;
use crate::leases::Moment;
use crate::names::{self, Key};
use crate::state::State;
use segment::{Segment, Writer};

pub use times::{NoTime, read as read_time, show as show_time};

/// How long changes are kept, in milliseconds.
const KEPT: u64 = 7 * 86_400_000;
/// Most bytes of all segments; the oldest go first.
const BYTES_MAX: u64 = 512 << 20;
/// A segment is followed by the next after so long, or once its commits take as much as its keys, and this at the least.
const SEGMENT_AGE: u64 = 86_400_000;
const SEGMENT_BYTES: u64 = 8 << 20;
/// How often it is written that nothing happened, and how long without that says that nothing was written.
const MARK_EVERY: Duration = Duration::from_secs(60);
const GAP: u64 = 150_000;
/// How often what is written is handed to the system.
const FLUSH_EVERY: Duration = Duration::from_secs(1);
/// How long the ledger may tell nothing.
const SILENT: Duration = Duration::from_secs(15);
/// Pause after a failure.
const REST: Duration = Duration::from_secs(1);
/// The period of renewals, of which history knows nothing, in milliseconds.
const PERIOD: u64 = 30_000;

/// The journal.
#[derive(Debug)]
pub struct History {
    folder: PathBuf,
}

/// What was at a time.
#[derive(Debug)]
pub struct Past {
    /// The state, without what travels with renewals.
    pub state: State,
    /// The moment that its leases are of.
    pub now: Moment,
    /// The time that was asked for, in milliseconds of Unix time.
    pub at: u64,
    /// The last time up to which anything was written before that.
    pub known_until: u64,
}

impl Past {
    /// Whether the journal has a gap at that time: the state is the last that was known.
    pub fn is_in_gap(&self) -> bool {
        self.at.saturating_sub(self.known_until) > GAP
    }
}

impl History {
    /// Writes down from now on what changes in `ledger`, in `folder`, which is made if it is not there. The task ends when it is
    /// stopped.
    ///
    /// # Errors
    /// If the folder cannot be made, or the system has no thread.
    pub fn start(ledger: Arc<dyn Ledger>, folder: &Path) -> io::Result<(Arc<Self>, AsyncTask)> {
        std::fs::create_dir_all(folder)?;
        let history = Arc::new(Self { folder: folder.to_owned() });
        let writes = Arc::clone(&history);
        let task = runtime::spawn("control-history", move |run| async move {
            while !run.is_stopped() {
                tokio::select! {
                    error = writes.follow(&*ledger) => {
                        tracing::warn!(%error, "the history has a gap");
                        run.failed(&error);
                        rest(&run).await;
                    }
                    () = run.stopped() => {}
                }
            }
        })?;
        Ok((history, task))
    }

    /// What was at a time, in milliseconds of Unix time. Takes up to a second for a large fleet.
    ///
    /// # Errors
    /// 404 for a time before the first, or one to come; 503 if the files cannot be read.
    pub fn at(&self, at: u64) -> Result<Past, Refusal> {
        if at > unix_ms().saturating_add(1_000) {
            return Err(Refusal::missing("that time is still to come"));
        }
        let segments = segment::list(&self.folder).map_err(unreadable)?;
        let Some(found) = segments.iter().rev().find(|segment| segment.begun <= at) else {
            let first = segments.first().map_or_else(|| "now".to_owned(), |first| show_time(first.begun));
            return Err(Refusal::missing(format!("the history begins at {first}")));
        };
        let mut state = State::new(PERIOD);
        let now = Moment(1);
        let known_until = segment::read(&found.path, at, &mut state, now).map_err(unreadable)?;
        Ok(Past { state, now, at, known_until })
    }

    /// Follows the ledger until that fails.
    async fn follow(&self, ledger: &dyn Ledger) -> Failure {
        match self.try_follow(ledger).await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    async fn try_follow(&self, ledger: &dyn Ledger) -> Result<std::convert::Infallible, Failure> {
        loop {
            let (at, mut writer) = self.begin(ledger).await?;
            let mut follower = ledger.follow("", at).await?;
            let mut marked = Instant::now();
            while !writer.is_full(unix_ms()) {
                let step = {
                    let mut step = std::pin::pin!(follower.step());
                    loop {
                        tokio::select! {
                            step = &mut step => break step?,
                            () = sleep(FLUSH_EVERY) => writer.flush()?,
                        }
                    }
                };
                match step {
                    Step::Changes { revision, changes } => {
                        let of_state = changes.into_iter().filter(|change| is_told(change.key()));
                        let of_state: Vec<Change> = of_state.collect();
                        if !of_state.is_empty() {
                            writer.changes(unix_ms(), revision, &of_state)?;
                        }
                    }
                    Step::At(_) if marked.elapsed() >= MARK_EVERY => {
                        writer.mark(unix_ms())?;
                        marked = Instant::now();
                    }
                    Step::At(_) => {}
                }
            }
            writer.flush()?;
        }
    }

    /// Begins a segment with all there is, and removes those that are too old or too many.
    async fn begin(&self, ledger: &dyn Ledger) -> Result<(Cursor, Writer), Failure> {
        let environments = within(ledger.snapshot(names::ENVIRONMENTS)).await?;
        let at = environments.cursor();
        let regions = within(ledger.snapshot(names::REGIONS)).await?;
        let folder = self.folder.clone();
        let writer = tokio::task::spawn_blocking(move || -> io::Result<Writer> {
            let now = unix_ms();
            segment::remove_old(&folder, now.saturating_sub(KEPT), BYTES_MAX)?;
            let begun = segment::list(&folder)?.last().map_or(now, |last: &Segment| now.max(last.begun + 1));
            let entries = [&environments, &regions].into_iter().flat_map(|snapshot: &Snapshot| &snapshot.entries);
            let kept = entries.filter(|entry| is_told(&entry.key));
            Writer::begin(&folder, begun, at, kept, (SEGMENT_AGE, SEGMENT_BYTES))
        });
        Ok((at, writer.await.map_err(io::Error::other)??))
    }
}

/// A verb of the ledger, which is given up after a while.
async fn within<T>(verb: impl Future<Output = Result<T, LedgerError>>) -> Result<T, LedgerError> {
    let late = || LedgerError::Unavailable { reason: "it does not answer".into() };
    timeout(SILENT, verb).await.unwrap_or_else(|_| Err(late()))
}

async fn rest(run: &Run) {
    tokio::select! {
        () = sleep(REST) => {}
        () = run.stopped() => {}
    }
}

fn unreadable(error: io::Error) -> Refusal {
    Refusal::unavailable(format!("the history cannot be read: {error}"))
}

/// Why it is not written.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error("the ledger cannot be followed: {0}")]
    Ledger(#[from] LedgerError),
    #[error("it cannot be written: {0}")]
    Io(#[from] io::Error),
}

/// Whether queries are told of a key. Jobs, which no query is of, have checkpoints every few seconds.
fn is_told(key: &str) -> bool {
    Key::read(key).is_some_and(|key| !key.is_held() && !matches!(key, Key::Job { .. }))
}
