//! The control plane of a process: what it follows, keeps and runs.

use std::sync::Arc;
use std::time::Duration;

use moneta_background::Run;
use moneta_ledger::{Cursor, Ledger, LedgerError, Revision, Step};
use parking_lot::MutexGuard;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::commits::{Commits, Who};
use crate::error::Refusal;
use crate::names;
use crate::properties::looked::Rolling;
use crate::properties::schema::PropertyOptions;
use crate::shared::Shared;
use crate::state::State;

/// How long the ledger may tell nothing before this process counts as not in step: it tells something every five seconds.
const SILENT: Duration = Duration::from_secs(15);
/// Pause after a failure of the ledger.
const REST: Duration = Duration::from_millis(500);
/// Probes at once.
const PROBES: usize = 32;

/// Who may do what, where a request's path does not tell it all.
pub trait Access: Send + Sync {
    /// Whether a client registers instances of an app.
    fn registers(&self, who: &Who, environment: &str, app: &str) -> bool;
    /// Whether a client reads everything of an environment.
    fn reads_all(&self, who: &Who, environment: &str) -> bool;
}

/// How it runs.
#[derive(Clone, Debug)]
pub struct ControlConfig {
    /// How often instances renew that ask for nothing else.
    pub period: Duration,
    /// How often readers of a feed are told that nothing happened.
    pub at_every: Duration,
    /// The options that properties set.
    pub options: PropertyOptions,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self { period: Duration::from_secs(30), at_every: Duration::from_secs(5), options: PropertyOptions::default() }
    }
}

/// The control plane of a process.
pub struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commits: Commits,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) period: Duration,
    pub(crate) at_every: Duration,
    pub(crate) options: PropertyOptions,
    pub(crate) rollouts: Rolling,
    pub(crate) probing: Arc<Semaphore>,
    /// One backup at a time.
    pub(crate) backing_up: Arc<Semaphore>,
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control").finish_non_exhaustive()
    }
}

impl Control {
    pub(crate) fn new(ledger: Arc<dyn Ledger>, shared: Arc<Shared>, commits: Commits, config: &ControlConfig) -> Self {
        Self {
            shared,
            commits,
            ledger,
            period: config.period,
            at_every: config.at_every,
            options: config.options,
            rollouts: Rolling::default(),
            probing: Arc::new(Semaphore::new(PROBES)),
            backing_up: Arc::new(Semaphore::new(1)),
        }
    }

    /// The state, if it is as the ledger is.
    ///
    /// # Errors
    /// 503 if it is not: never less than there is.
    pub(crate) fn state_in_step(&self) -> Result<MutexGuard<'_, State>, Refusal> {
        let state = self.shared.state.lock();
        if state.is_in_step { Ok(state) } else { Err(Refusal::not_in_step()) }
    }

    /// Whether it is in step with its ledger.
    pub fn is_in_step(&self) -> bool {
        self.shared.state.lock().is_in_step
    }

    pub(crate) async fn follow(&self, run: &Run, seen: &watch::Sender<Revision>) {
        let mut known: Option<Cursor> = None;
        while !run.is_stopped() {
            let followed = async {
                let error = self.follow_from(&mut known, seen).await;
                let is_lost = matches!(
                    error,
                    LedgerError::Compacted { .. } | LedgerError::Future { .. } | LedgerError::Replaced { .. }
                );
                if is_lost {
                    known = None;
                }
                self.shared.state.lock().is_in_step = false;
                tracing::warn!(%error, "the ledger cannot be followed: requests are refused meanwhile");
                run.failed(&error);
                sleep(REST).await;
            };
            tokio::select! {
                () = followed => {}
                () = run.stopped() => {}
            }
        }
        self.shared.state.lock().is_in_step = false;
    }

    /// Follows until it fails.
    async fn follow_from(&self, known: &mut Option<Cursor>, seen: &watch::Sender<Revision>) -> LedgerError {
        let mut from = match *known {
            Some(cursor) => cursor,
            None => match self.read_anew(seen).await {
                Ok(cursor) => cursor,
                Err(error) => return error,
            },
        };
        *known = Some(from);
        let mut follower = match self.ledger.follow("", from).await {
            Ok(follower) => follower,
            Err(error) => return error,
        };
        loop {
            let step = match timeout(SILENT, follower.step()).await {
                Ok(Ok(step)) => step,
                Ok(Err(error)) => return error,
                Err(_) => return LedgerError::Unavailable { reason: "it tells nothing".into() },
            };
            let revision = {
                let mut state = self.shared.state.lock();
                match step {
                    Step::Changes { revision, changes } => {
                        state.apply(revision, &changes, self.shared.now());
                        revision
                    }
                    Step::At(revision) => {
                        state.at.revision = state.at.revision.max(revision);
                        // Also where it had fallen silent for a while.
                        state.is_in_step = true;
                        revision
                    }
                }
            };
            from.revision = from.revision.max(revision);
            *known = Some(from);
            seen.send_replace(from.revision);
        }
    }

    /// Reads all there is.
    async fn read_anew(&self, seen: &watch::Sender<Revision>) -> Result<Cursor, LedgerError> {
        let environments = self.ledger.snapshot(names::ENVIRONMENTS).await?;
        let at = environments.cursor();
        // Later than the other, and followed from there: what came between is told once more, which changes nothing.
        let regions = self.ledger.snapshot(names::REGIONS).await?;
        self.shared.resyncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.shared.state.lock().replace(&[environments, regions], at, self.shared.now());
        seen.send_replace(at.revision);
        Ok(at)
    }
}
