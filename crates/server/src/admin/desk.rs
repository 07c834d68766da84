//! The admin side's state: a node that starts, serves, or is about to stop.

use std::sync::Arc;
use std::time::Duration;

use moneta_store::Progress;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::observed::Observed;

/// Answers from the feed that are made at once.
pub(super) const FEEDS: usize = 4;

/// The phase of the node.
#[derive(Clone, Debug)]
enum Life {
    Starting,
    Serving(Arc<Observed>),
    Closing,
}

/// State shared by all requests of the admin side.
#[derive(Debug)]
pub(super) struct Desk {
    // Read once for each request, written twice in the node's life.
    life: RwLock<Life>,
    recovery: Arc<Progress>,
    /// Admits one request at a time that asks the store.
    pub(super) metrics: Arc<Semaphore>,
    /// As above.
    pub(super) readiness: Arc<Semaphore>,
    /// As above.
    pub(super) statistics: Arc<Semaphore>,
    /// Admits a few requests at a time that read the feed.
    pub(super) feed: Arc<Semaphore>,
}

/// The store has not answered in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unanswered;

impl Desk {
    /// The state of a node that starts; its tiers report their progress to `recovery`.
    pub(super) fn new(recovery: Arc<Progress>) -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self {
            life: RwLock::new(Life::Starting),
            recovery,
            metrics: one(),
            readiness: one(),
            statistics: one(),
            feed: Arc::new(Semaphore::new(FEEDS)),
        }
    }

    /// The server runs.
    pub(super) fn serve(&self, observed: Arc<Observed>) {
        self.enter(Life::Serving(observed));
    }

    /// The store is about to be closed: no further calls to it.
    pub(super) fn close(&self) {
        self.enter(Life::Closing);
    }

    fn enter(&self, life: Life) {
        *self.life.write() = life;
    }

    /// The running server; else a sentence about what the node is doing.
    pub(super) fn observed(&self) -> Result<Arc<Observed>, String> {
        match &*self.life.read() {
            Life::Serving(observed) => Ok(Arc::clone(observed)),
            Life::Starting => Err(match self.recovery.percent() {
                Some(percent) => format!("starting: recovering, {percent} %"),
                None => "starting".to_owned(),
            }),
            Life::Closing => Err("stopping: the store is being closed".to_owned()),
        }
    }
}

/// Calls the store, which may hang, on a helper thread and waits at most `within`. One call of each kind at a time: a hanging call
/// keeps its permit, so at most one thread of each kind hangs.
pub(super) async fn ask<T: Send + 'static>(
    turn: &Arc<Semaphore>,
    within: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    let asked = async {
        let turn = Arc::clone(turn).acquire_owned().await.map_err(|_| Unanswered)?;
        let answered = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            question()
        });
        answered.await.map_err(|error| {
            tracing::error!(%error, "a page of the admin side failed");
            Unanswered
        })
    };
    timeout(within, asked).await.unwrap_or(Err(Unanswered))
}
