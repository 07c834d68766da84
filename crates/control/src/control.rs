//! The control plane of a process: what it follows, keeps and runs.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use moneta_background::Run;
use moneta_ledger::{Compare, Cursor, Ledger, LedgerError, Revision, Step};
use parking_lot::MutexGuard;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::commits::{Commits, Plan, Who};
use crate::error::Refusal;
use crate::member::Membership;
use crate::members::Members;
use crate::names;
use crate::properties::looked::Rolling;
use crate::properties::schema::PropertyOptions;
use crate::shared::Shared;
use crate::state::{SILENT, State};

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

/// The users of this process, as they are handed on to nodes and proxies.
pub trait Users: Send + Sync {
    /// Those that concern a client who registers in an environment; it may take as long as a second.
    ///
    /// # Errors
    /// 403 if it has no app there, or is gone.
    fn handed_to(&self, who: &Who, environment: &str) -> Result<Told, Refusal>;
    /// Tells when users were replaced.
    fn changes(&self) -> Changes;
}

/// Tells of changes of users.
pub type Changes = watch::Receiver<()>;

/// A table of users.
#[derive(Clone, Debug)]
pub struct Told {
    /// The text, as a file of users.
    pub text: Bytes,
    /// What tells it from others.
    pub tag: String,
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
    /// How often what is known is compared with the ledger.
    pub compare_every: Duration,
    /// What this process is to others that share its ledger; `None`: it has the ledger to itself.
    pub member: Option<Membership>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            period: Duration::from_secs(30),
            at_every: Duration::from_secs(5),
            compare_every: Duration::from_secs(600),
            member: None,
            options: PropertyOptions::default(),
        }
    }
}

/// The control plane of a process.
pub struct Control {
    pub(crate) shared: Arc<Shared>,
    pub(crate) commits: Commits,
    /// Up to where the ledger was told.
    pub(crate) seen: watch::Receiver<Revision>,
    pub(crate) ledger: Arc<dyn Ledger>,
    pub(crate) period: Duration,
    pub(crate) at_every: Duration,
    pub(crate) options: PropertyOptions,
    pub(crate) rollouts: Rolling,
    pub(crate) compare_every: Duration,
    /// What others that share the ledger know of this process, and what is handed to them.
    pub(crate) members: Members,
    /// The ledger is to be read anew.
    pub(crate) anew: Notify,
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
    pub(crate) fn new(
        ledger: Arc<dyn Ledger>,
        shared: Arc<Shared>,
        commits: Commits,
        seen: watch::Receiver<Revision>,
        config: &ControlConfig,
    ) -> Self {
        Self {
            shared,
            seen,
            commits,
            ledger,
            period: config.period,
            at_every: config.at_every,
            options: config.options,
            rollouts: Rolling::default(),
            compare_every: config.compare_every,
            members: Members::new(config.member.clone()),
            anew: Notify::new(),
            probing: Arc::new(Semaphore::new(PROBES)),
            backing_up: Arc::new(Semaphore::new(1)),
        }
    }

    /// The state, if it is as the ledger is.
    ///
    /// # Errors
    /// 503 if it is not: never less than there is.
    pub(crate) fn state_in_step(&self) -> Result<MutexGuard<'_, State>, Refusal> {
        let state = self.shared.state();
        if state.is_in_step { Ok(state) } else { Err(Refusal::not_in_step()) }
    }

    /// What has to hold for what the keeper of leases commits; `None`: this process does not keep them, or is not in step.
    pub(crate) fn keeps(&self) -> Option<Vec<Compare>> {
        let state = self.shared.state();
        self.members.guards(&state).filter(|_| state.is_in_step)
    }

    /// A plan that does nothing unless this process keeps the leases when it is committed.
    pub(crate) fn kept(&self, plan: Plan) -> Plan {
        self.members.kept(plan)
    }

    /// Whether it is in step with its ledger.
    pub fn is_in_step(&self) -> bool {
        self.shared.state().is_in_step
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
            let step = tokio::select! {
                step = timeout(Duration::from_millis(SILENT), follower.step()) => step,
                () = self.anew.notified() => {
                    *known = None;
                    return LedgerError::Damaged { reason: "it has not told all that it has".into() };
                }
            };
            let step = match step {
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
                        state.marked(revision, self.shared.now());
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
        let fleet = self.ledger.snapshot(names::FLEET).await?;
        self.shared.resyncs.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        self.shared.state.lock().replace(&[environments, fleet], at, self.shared.now());
        seen.send_replace(at.revision);
        Ok(at)
    }
}
