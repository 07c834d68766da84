//! A pool of threads for engines whose calls block: in a library's own I/O, in a page fault, under its locks.
//!
//! A worker hands such a call over as a closure and goes on with other requests; the answer comes as a [`Pending`], whose
//! waker brings the worker back. Nothing here knows what is called.
//!
//! ```text
//!  worker                          pool
//!    │  submit(closure) ──────────> queue ──> thread: closure runs, blocks as long as it likes
//!    │  <── Pending ─┐                          │
//!    ▼               └───────── Answer ◄────────┘   wakes the worker
//! ```

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use parking_lot::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

use crate::error::{ErrorKind, StoreError};
use crate::outcome::Pending;

/// How often a pool that is closed by a deadline looks at its threads.
const LOOK: Duration = Duration::from_millis(1);

/// What a thread is to do.
type Job = Box<dyn FnOnce() + Send>;

/// The sending end of a [`Pending`]: the thread that does the work answers through it.
#[derive(Debug)]
pub struct Answer<T>(oneshot::Sender<Result<T, StoreError>>);

impl<T> Answer<T> {
    /// Ends the request. Without a waiter, nothing happens.
    pub fn send(self, ended: Result<T, StoreError>) {
        let _ = self.0.send(ended);
    }
}

/// An answer to be given and the future that waits for it. If the answer is dropped, the future ends in an error.
pub fn answer<T: 'static>() -> (Answer<T>, Pending<T>) {
    let (sender, receiver) = oneshot::channel();
    let pending = async move {
        receiver.await.unwrap_or_else(|_| {
            Err(StoreError::new(ErrorKind::Device, "the engine gave the request up; it is closed, or has failed"))
        })
    };
    (Answer(sender), Box::pin(pending))
}

/// A pool of threads. Ends with everything done that was asked of it, when it is closed or dropped.
#[derive(Debug)]
pub struct Offload {
    queue: Arc<Queue>,
    threads: Mutex<Vec<Task>>,
}

/// What waits for a thread.
#[derive(Default)]
struct Queue {
    state: Mutex<OffloadState>,
    changed: Condvar,
}

#[derive(Default)]
struct OffloadState {
    jobs: VecDeque<Job>,
    closed: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Queue").field("jobs", &self.lock().jobs.len()).finish()
    }
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, OffloadState> {
        self.state.lock()
    }

    /// The next job; `None` when there are none left and none will come.
    fn next(&self) -> Option<Job> {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.closed {
                return None;
            }
            self.changed.wait(&mut state);
        }
    }
}

impl Offload {
    /// Starts `threads` threads, at least one, called `name` and a number.
    ///
    /// # Errors
    /// If the system refuses a thread.
    pub fn start(name: &str, threads: usize) -> std::io::Result<Self> {
        let pool = Self { queue: Arc::default(), threads: Mutex::default() };
        for number in 0..threads.max(1) {
            let queue = Arc::clone(&pool.queue);
            let run = move |task: &Run| {
                while let Some(job) = queue.next() {
                    // A panic ends its request (the answer is dropped), not the thread that others wait for.
                    if catch_unwind(AssertUnwindSafe(job)).is_err() {
                        task.failed(&"a job panicked");
                    }
                }
            };
            let thread = moneta_background::start(format!("{name}-{number}"), run)?;
            pool.threads.lock().push(thread);
        }
        Ok(pool)
    }

    /// Has `job` done by some thread, in no order with others. After [`Offload::close`] it is dropped instead.
    pub fn execute(&self, job: impl FnOnce() + Send + 'static) {
        let mut state = self.queue.lock();
        if !state.closed {
            state.jobs.push_back(Box::new(job));
            drop(state);
            self.queue.changed.notify_one();
        }
    }

    /// Runs `job` on a thread of the pool; returns a future for its end. The job runs even if the future is dropped.
    pub fn submit<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
    ) -> Pending<T> {
        let (answer, pending) = answer();
        self.execute(move || answer.send(job()));
        pending
    }

    /// Does what was asked so far and ends the threads. Called on one of them, which a job does that drops the last handle, it
    /// waits for the others only.
    pub fn close(&self) {
        for thread in self.begin_close() {
            thread.join();
        }
    }

    /// The same, up to `deadline`: a thread that a call does not let go of runs on by itself. False if any does.
    pub fn close_by(&self, deadline: Instant) -> bool {
        let threads = self.begin_close();
        while !threads.iter().all(Task::is_finished) && Instant::now() < deadline {
            std::thread::sleep(LOOK);
        }
        threads.iter().all(Task::is_finished)
    }

    /// Takes no more, and tells the threads to wait for, all but this one.
    fn begin_close(&self) -> Vec<Task> {
        self.queue.lock().closed = true;
        self.queue.changed.notify_all();
        let mut threads = std::mem::take(&mut *self.threads.lock());
        threads.retain(|thread| thread.thread().id() != std::thread::current().id());
        threads
    }
}

impl Drop for Offload {
    fn drop(&mut self) {
        self.close();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use pollster::block_on;

    use super::*;

    #[test]
    fn blocking_calls_wait_only_for_their_own_thread() {
        let pool = Offload::start("test", 2).expect("threads");
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let blocked = pool.submit(move || {
            gate.recv().expect("the test opens it");
            Ok("blocked")
        });
        assert_eq!(block_on(pool.submit(|| Ok("free"))).expect("an answer"), "free");
        open.send(()).expect("it waits");
        assert_eq!(block_on(blocked).expect("an answer"), "blocked");
    }

    #[test]
    fn a_job_that_panics_fails_its_request_and_no_other() {
        let pool = Offload::start("test", 1).expect("threads");
        let failed = pool.submit(|| -> Result<(), StoreError> { panic!("as planned") });
        assert_eq!(block_on(failed).expect_err("no answer").kind(), ErrorKind::Device);
        assert_eq!(block_on(pool.submit(|| Ok(1))).expect("the thread goes on"), 1);
    }

    #[test]
    fn a_job_may_drop_the_pool_that_runs_it() {
        let pool = Arc::new(Offload::start("test", 2).expect("threads"));
        let (give, given) = std::sync::mpsc::channel::<Arc<Offload>>();
        let dropped = pool.submit(move || {
            drop(given.recv().expect("it is given the last handle"));
            Ok(())
        });
        give.send(pool).expect("it waits");
        block_on(dropped).expect("an answer");
    }

    #[test]
    fn a_pool_that_is_closed_by_a_deadline_leaves_a_call_that_does_not_return() {
        let pool = Offload::start("test", 2).expect("threads");
        let (open, gate) = std::sync::mpsc::channel::<()>();
        let blocked = pool.submit(move || {
            gate.recv().expect("the test opens it");
            Ok("blocked")
        });
        assert!(!pool.close_by(Instant::now() + Duration::from_millis(20)));
        drop(pool);
        open.send(()).expect("it waits");
        assert_eq!(block_on(blocked).expect("an answer"), "blocked");
        let quick = Offload::start("test", 2).expect("threads");
        let done = quick.submit(|| Ok(1));
        assert!(quick.close_by(Instant::now() + Duration::from_secs(60)));
        assert_eq!(block_on(done).expect("it is done first"), 1);
    }

    #[test]
    fn closing_does_what_was_asked_and_nothing_more() {
        let pool = Offload::start("test", 3).expect("threads");
        let done = Arc::new(AtomicUsize::new(0));
        for _ in 0..1000 {
            let done = Arc::clone(&done);
            // These have no waiters.
            drop(pool.submit(move || {
                done.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }));
        }
        pool.close();
        assert_eq!(done.load(Ordering::Relaxed), 1000);
        assert!(block_on(pool.submit(|| Ok(()))).is_err(), "a closed pool takes no more");
    }
}
