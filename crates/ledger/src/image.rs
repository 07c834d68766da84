//! All entries below a prefix in RAM, in step with a ledger.
//!
//! ```text
//!  nothing ──snapshot──> following ──marks come──> in step
//!     ^                      │   ^                    │ no mark for STEP_MAX
//!     │ Compacted, Future,   │   └────────────────────┴──> not in step: what is there may be old
//!     │ Replaced             v
//!     └───────────────── begins anew; what vanished meanwhile is told as deleted
//! ```
//!
//! One task applies steps and publishes a [`View`] after each: readers keep the one that they took, and wait for nobody. Every ten
//! minutes the image is compared with a fresh snapshot, since stores have been seen to lose changes on their way to followers (etcd
//! 3.4 deletes). What differs is logged, counted and put right.

mod compare;
mod subscriptions;
mod view;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, runtime};
use parking_lot::{Mutex, RwLock};
use tokio::runtime::Handle;
use tokio::sync::watch;

pub use self::subscriptions::Subscription;
pub use self::view::View;
use crate::deadline::within;
use crate::entry::Revision;
use crate::error::LedgerError;
use crate::image::subscriptions::Subscriptions;
use crate::ledger::{AT_EVERY, Follow, Ledger, Step};

/// How long after its last mark an image is out of step: two marks may be lost.
pub const STEP_MAX: Duration = Duration::from_secs(12);

/// How often an image is compared with a snapshot.
const COMPARE_EVERY: Duration = Duration::from_secs(600);

/// How long it waits after a failure, at first and at most.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// What an image waits for.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// How long after its last mark it is out of step.
    pub step_max: Duration,
    /// How often it is compared with a snapshot.
    pub compare_every: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self { step_max: STEP_MAX, compare_every: COMPARE_EVERY }
    }
}

/// What an image has met since it was begun.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Commits that were applied.
    pub commits: u64,
    /// Snapshots that it began with: one, if all went well.
    pub begun: u64,
    /// Times that following failed and went on from where it was, or anew.
    pub failures: u64,
    /// Comparisons with a snapshot.
    pub compared: u64,
    /// Keys that were not as in the snapshot, and were put right.
    pub mended: u64,
}

#[derive(Debug, Default)]
struct Counters {
    commits: AtomicU64,
    begun: AtomicU64,
    failures: AtomicU64,
    compared: AtomicU64,
    mended: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    ledger: Arc<dyn Ledger>,
    prefix: String,
    pace: Pace,
    view: RwLock<View>,
    /// When all was told last.
    marked: Mutex<Option<Instant>>,
    /// The last failure, for people; nothing while it is in step.
    trouble: Mutex<Option<LedgerError>>,
    subscriptions: Subscriptions,
    revision: watch::Sender<Revision>,
    counters: Counters,
    runtime: Handle,
}

/// An image. Dropped, it ends; views and subscriptions stay as they are.
#[derive(Debug)]
pub struct Image {
    shared: Arc<Shared>,
    task: runtime::AsyncTask,
}

impl Image {
    /// Begins an image of all keys that begin with `prefix`. It is empty and not in step until the first snapshot is there.
    ///
    /// # Errors
    /// If there is no runtime to follow on.
    pub fn follow(ledger: Arc<dyn Ledger>, prefix: impl Into<String>) -> io::Result<Self> {
        Self::follow_at(ledger, prefix, Pace::default())
    }

    /// The same at another pace.
    ///
    /// # Errors
    /// As [`follow`](Self::follow).
    pub fn follow_at(ledger: Arc<dyn Ledger>, prefix: impl Into<String>, pace: Pace) -> io::Result<Self> {
        let shared = Arc::new(Shared {
            ledger,
            prefix: prefix.into(),
            pace,
            view: RwLock::default(),
            marked: Mutex::default(),
            trouble: Mutex::default(),
            subscriptions: Subscriptions::default(),
            revision: watch::Sender::new(Revision(0)),
            counters: Counters::default(),
            runtime: runtime::handle()?,
        });
        let following = Arc::clone(&shared);
        let task = runtime::spawn("ledger-image", |run| async move {
            let stopped = run.stopped();
            let following = following.run(&run);
            let (mut stopped, mut following) = (std::pin::pin!(stopped), std::pin::pin!(following));
            std::future::poll_fn(|context| match stopped.as_mut().poll(context) {
                std::task::Poll::Pending => following.as_mut().poll(context),
                ready => ready,
            })
            .await;
        })?;
        Ok(Self { shared, task })
    }

    /// All entries at the newest revision that is here. Costs no copy.
    pub fn view(&self) -> View {
        self.shared.view.read().clone()
    }

    /// The same, if it is in step.
    ///
    /// # Errors
    /// [`LedgerError::Unavailable`] if it is not.
    pub fn view_in_step(&self) -> Result<View, LedgerError> {
        match self.is_in_step() {
            true => Ok(self.view()),
            false => {
                Err(LedgerError::Unavailable { reason: format!("not in step with the ledger: {}", self.trouble()) })
            }
        }
    }

    /// Whether all was told a short time ago: at most [`Pace::step_max`].
    pub fn is_in_step(&self) -> bool {
        self.shared.marked.lock().is_some_and(|marked| marked.elapsed() <= self.shared.pace.step_max)
    }

    /// Why it is not in step, as far as is known.
    pub fn trouble(&self) -> String {
        match &*self.shared.trouble.lock() {
            Some(error) => error.to_string(),
            None if self.is_in_step() => "it is in step".to_owned(),
            None => "nothing was told for some time".to_owned(),
        }
    }

    /// Waits until it has this revision, for so long at most; returns whether it has. Who has committed sees that from then on.
    pub async fn reaches(&self, revision: Revision, limit: Duration) -> bool {
        let mut reached = self.shared.revision.subscribe();
        let waiting = async { while *reached.borrow_and_update() < revision && reached.changed().await.is_ok() {} };
        within(&self.shared.runtime, limit, waiting).await.is_some() && *self.shared.revision.borrow() >= revision
    }

    /// Wakes when a key changes that begins with `prefix`, which is empty, ends with a slash, or is a whole key.
    pub fn subscribe(&self, prefix: &str) -> Subscription {
        self.shared.subscriptions.add(prefix)
    }

    /// What it has met.
    pub fn counts(&self) -> Counts {
        let Counters { commits, begun, failures, compared, mended } = &self.shared.counters;
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            commits: of(commits),
            begun: of(begun),
            failures: of(failures),
            compared: of(compared),
            mended: of(mended),
        }
    }
}

impl Drop for Image {
    fn drop(&mut self) {
        self.task.stop();
    }
}

impl Shared {
    /// Follows for ever.
    async fn run(&self, run: &Run) {
        let (mut wait, mut is_new) = (RETRY.0, true);
        loop {
            let error = self.follow(is_new, &mut wait).await;
            is_new = matches!(
                error,
                LedgerError::Compacted { .. } | LedgerError::Future { .. } | LedgerError::Replaced { .. }
            ) || self.counters.begun.load(Ordering::Relaxed) == 0;
            self.counters.failures.fetch_add(1, Ordering::Relaxed);
            run.failed(&error);
            tracing::warn!("following the ledger failed{}: {error}", if is_new { ", it begins anew" } else { "" });
            *self.trouble.lock() = Some(error);
            let _ = within(&self.runtime, wait, std::future::pending::<()>()).await;
            wait = (wait * 2).min(RETRY.1);
        }
    }

    /// Follows until that fails.
    async fn follow(&self, is_new: bool, wait: &mut Duration) -> LedgerError {
        if is_new {
            match self.ledger.snapshot(&self.prefix).await {
                Ok(snapshot) => {
                    self.counters.begun.fetch_add(1, Ordering::Relaxed);
                    let next = self.view.read().begun_anew(snapshot);
                    self.publish(next);
                }
                Err(error) => return error,
            }
        }
        let cursor = self.view.read().cursor();
        let mut follower = match self.ledger.follow(&self.prefix, cursor).await {
            Ok(follower) => follower,
            Err(error) => return error,
        };
        let mut compare_at = Instant::now() + self.pace.compare_every;
        loop {
            if Instant::now() >= compare_at {
                compare_at = Instant::now() + self.pace.compare_every;
                if let Err(error) = self.compare(&mut *follower).await {
                    return error;
                }
            }
            if let Err(error) = self.step(&mut *follower).await {
                return error;
            }
            *wait = RETRY.0;
        }
    }

    /// Takes one step.
    async fn step(&self, follower: &mut dyn Follow) -> Result<(), LedgerError> {
        // A follower fails by itself when nothing comes; this is for one that does not.
        let limit = AT_EVERY * 3;
        let Some(step) = within(&self.runtime, limit, follower.step()).await else {
            return Err(LedgerError::Unavailable { reason: format!("nothing was told for {} s", limit.as_secs()) });
        };
        match step? {
            Step::Changes { revision, changes } => {
                self.counters.commits.fetch_add(1, Ordering::Relaxed);
                let next = self.view.read().changed(revision, &changes);
                let keys: Vec<&str> = changes.iter().map(crate::entry::Change::key).collect();
                self.set(next);
                self.subscriptions.wake(&keys);
            }
            Step::At(revision) => {
                let next = self.view.read().at(revision);
                self.set(next);
                *self.marked.lock() = Some(Instant::now());
                *self.trouble.lock() = None;
            }
        }
        Ok(())
    }

    fn set(&self, next: View) {
        let revision = next.cursor().revision;
        // The one of before goes when nobody reads it, not under the lock.
        let before = std::mem::replace(&mut *self.view.write(), next);
        drop(before);
        self.revision.send_replace(revision);
    }

    /// Sets what may differ in any key.
    fn publish(&self, next: View) {
        self.set(next);
        self.subscriptions.wake_all();
    }

    /// Compares with a fresh snapshot, and puts right what differs.
    async fn compare(&self, follower: &mut dyn Follow) -> Result<(), LedgerError> {
        let snapshot = self.ledger.snapshot(&self.prefix).await?;
        let known = self.view.read().cursor();
        if snapshot.incarnation != known.incarnation {
            return Err(LedgerError::Replaced { now: snapshot.incarnation });
        }
        // All up to the snapshot has to be told before it can be missed.
        while self.view.read().cursor().revision < snapshot.revision {
            self.step(follower).await?;
        }
        self.counters.compared.fetch_add(1, Ordering::Relaxed);
        let view = self.view.read().clone();
        let Some(differences) = compare::differences(&view, &snapshot) else { return Ok(()) };
        let keys: Vec<&str> = differences.iter().map(|difference| difference.key.as_str()).collect();
        tracing::error!(
            "{} keys are not as the ledger has them, and were put right: {:?}",
            keys.len(),
            &keys[..keys.len().min(10)]
        );
        self.counters.mended.fetch_add(keys.len() as u64, Ordering::Relaxed);
        self.set(view.mended(&differences));
        self.subscriptions.wake(&keys);
        Ok(())
    }
}
