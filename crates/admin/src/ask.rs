//! Questions that may hang: asked on helper threads, for a bounded time, a few of each kind at once.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
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

/// The same, one question of each asker at a time: who asks many waits for its own, and costs another the time of one.
#[derive(Clone, Debug)]
pub struct FairTurn {
    all: Turn,
    /// Those who ask now.
    each: Arc<Mutex<HashMap<Arc<str>, Turn>>>,
}

impl FairTurn {
    /// Admits `most` at a time, all askers together.
    pub fn of(most: usize) -> Self {
        Self { all: Turn::of(most), each: Arc::default() }
    }

    fn own(&self, asker: &str) -> Turn {
        let mut each = self.each.lock();
        // What a question or a wait has, has two owners at least.
        each.retain(|_, turn| Arc::strong_count(&turn.0) > 1);
        match each.get(asker) {
            Some(turn) => turn.clone(),
            None => each.entry(asker.into()).or_insert_with(|| Turn::of(1)).clone(),
        }
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
    ask_in([turn.clone()], within, question).await
}

/// The same, with a turn of the asker's own before that of all.
///
/// # Errors
/// As [`ask`].
pub async fn ask_as<T: Send + 'static>(
    asker: &str,
    turn: &FairTurn,
    within: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    ask_in([turn.own(asker), turn.all.clone()], within, question).await
}

async fn ask_in<T: Send + 'static, const N: usize>(
    turns: [Turn; N],
    within: Duration,
    question: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Unanswered> {
    let asked = async {
        let mut taken = Vec::with_capacity(N);
        for Turn(turn) in turns {
            taken.push(turn.acquire_owned().await.map_err(|_| Unanswered)?);
        }
        let answered = tokio::task::spawn_blocking(move || {
            let _taken = taken;
            question()
        });
        answered.await.map_err(|error| {
            tracing::error!(%error, "a page of the admin side failed");
            Unanswered
        })
    };
    timeout(within, asked).await.unwrap_or(Err(Unanswered))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tokio::runtime::Builder;
    use tokio::task::yield_now;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Who asks many has one of them answered, and then another's turn comes.
    #[test]
    fn who_asks_many_questions_costs_another_the_time_of_one() {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let turn = FairTurn::of(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        runtime.block_on(async {
            let (open, gate) = mpsc::channel::<()>();
            let gate = Arc::new(Mutex::new(gate));
            let ask = |asker: &'static str| {
                let (turn, order, gate) = (turn.clone(), Arc::clone(&order), Arc::clone(&gate));
                tokio::spawn(async move {
                    let question = move || {
                        gate.lock().recv().unwrap();
                        order.lock().push(asker);
                    };
                    ask_as(asker, &turn, LONG, question).await.unwrap();
                })
            };
            let mut asked: Vec<_> = (0..5).map(|_| ask("greedy")).collect();
            yield_now().await;
            asked.push(ask("other"));
            yield_now().await;
            (0..asked.len()).for_each(|_| open.send(()).unwrap());
            for one in asked {
                one.await.unwrap();
            }
        });
        assert_eq!(*order.lock(), ["greedy", "other", "greedy", "greedy", "greedy", "greedy"]);
        turn.own("next");
        assert_eq!(turn.each.lock().len(), 1, "who asks no more is forgotten");
    }
}
