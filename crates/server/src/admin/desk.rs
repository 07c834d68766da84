//! What the admin side knows at the moment: a node that starts, one that serves, or one that is about to leave.

use std::sync::Arc;
use std::time::Duration;

use moneta_store::Progress;
use parking_lot::RwLock;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::observed::Observed;

/// Where the node is in its life.
#[derive(Clone, Debug)]
enum Life {
    Starting,
    Serving(Arc<Observed>),
    Closing,
}

/// Shared by all requests of the admin side.
#[derive(Debug)]
pub(super) struct Desk {
    // Read once a request, written twice in the node's life.
    life: RwLock<Life>,
    recovery: Arc<Progress>,
    /// One request at a time asks the store for this.
    pub(super) metrics: Arc<Semaphore>,
    /// As above.
    pub(super) readiness: Arc<Semaphore>,
    /// As above.
    pub(super) statistics: Arc<Semaphore>,
}

/// The store has not answered within the time it had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unanswered;

impl Desk {
    /// The desk of a node that starts; its tiers tell `recovery` how far they are.
    pub(super) fn new(recovery: Arc<Progress>) -> Self {
        let one = || Arc::new(Semaphore::new(1));
        Self { life: RwLock::new(Life::Starting), recovery, metrics: one(), readiness: one(), statistics: one() }
    }

    /// The server runs.
    pub(super) fn serve(&self, observed: Arc<Observed>) {
        self.enter(Life::Serving(observed));
    }

    /// The store is about to be closed: it is asked nothing from now on.
    pub(super) fn close(&self) {
        self.enter(Life::Closing);
    }

    fn enter(&self, life: Life) {
        *self.life.write() = life;
    }

    /// The server, while there is one; else what the node is doing, in words.
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

/// Puts a question that may hang to the store: on a thread beside, one of a kind at a time, for no longer than `within`. What
/// hangs keeps its turn, so that no more than one thread of a kind ever hangs.
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
