//! The thread that checks passwords, so that no worker does: a bounded queue, one check at a time.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use moneta_background::{Run, Task};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::log_in::{LoggedIn, SlowCheck};

/// Checks that wait at most: a second or so of the thread's time. Further log-ins are refused untried.
const QUEUE: usize = 64;

/// The thread, begun with the first check.
#[derive(Debug, Default)]
pub(crate) struct Apart {
    queue: Arc<Mutex<VecDeque<Job>>>,
    // `None`: the system has no thread.
    task: OnceLock<Option<Task>>,
}

#[derive(Debug)]
struct Job {
    check: SlowCheck,
    answer: oneshot::Sender<Option<LoggedIn>>,
}

/// The answer of a check, when it is there.
#[derive(Debug)]
pub struct SlowAnswer(oneshot::Receiver<Option<LoggedIn>>);

impl Future for SlowAnswer {
    /// The log-in, if name and password were right.
    type Output = Option<LoggedIn>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<LoggedIn>> {
        // A thread that has ended refuses.
        Pin::new(&mut self.0).poll(cx).map(|answer| answer.ok().flatten())
    }
}

impl Apart {
    /// Puts a check into the queue; `None` if that is full, or there is no thread.
    pub(crate) fn begin(&self, check: SlowCheck) -> Option<SlowAnswer> {
        let start = || {
            let queue = Arc::clone(&self.queue);
            moneta_background::start("users-passwords", move |run| work(run, &queue))
                .inspect_err(|error| tracing::error!(%error, "no thread to check passwords"))
                .ok()
        };
        let task = self.task.get_or_init(start).as_ref().filter(|task| !task.is_finished())?;
        let (answer, waiting) = oneshot::channel();
        {
            let mut queue = self.queue.lock();
            if queue.len() >= QUEUE {
                // Of clients that have gone.
                queue.retain(|job| !job.answer.is_closed());
            }
            if queue.len() >= QUEUE {
                return None;
            }
            queue.push_back(Job { check, answer });
        }
        task.thread().unpark();
        Some(SlowAnswer(waiting))
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(Some(task)) = self.task.get() {
            task.stop();
        }
    }
}

fn work(run: &Run, queue: &Mutex<VecDeque<Job>>) {
    while !run.is_stopped() {
        let job = queue.lock().pop_front();
        match job {
            Some(Job { answer, .. }) if answer.is_closed() => {}
            Some(Job { check, answer }) => drop(answer.send(check.run())),
            // An unpark that came before is not lost.
            None => std::thread::park(),
        }
    }
    queue.lock().clear();
}
