//! Questions that may hang: asked on helper threads, for a bounded time, a few of each kind at once.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Admits so many questions of one kind at a time. A question that hangs keeps its place, so no more threads of its kind can
/// hang.
#[derive(Clone, Debug)]
pub struct Turn(Arc<Semaphore>);

impl Turn {
    /// Admits `most` at a time. The threads for what blocks are those of the process's runtime: all turns together should admit
    /// fewer.
    pub fn of(most: usize) -> Self {
        Self(Arc::new(Semaphore::new(most)))
    }
}

/// There was no answer in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unanswered;

/// Asks on a helper thread and waits at most `within`, the wait for a turn included.
///
/// # Errors
/// If there is no answer in time, or the question panics.
pub async fn ask<T: Send + 'static>(
    turn: &Turn,
    within: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    let asked = async {
        let turn = Arc::clone(&turn.0).acquire_owned().await.map_err(|_| Unanswered)?;
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
