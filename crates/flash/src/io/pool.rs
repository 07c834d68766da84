//! Threads that read for requests where there is no ring.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread::JoinHandle;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

use super::aligned::Aligned;
use super::counters::{ReadCounters, Tally};
use super::media::Media;
use crate::error::FlashError;

/// A few threads and the queue they take reads from, in order. Dropping it ends what is queued, then the threads.
pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    media: Vec<Arc<dyn Media>>,
    counters: Arc<ReadCounters>,
    queue: Mutex<Queue>,
    /// Something is queued, or it is time to stop.
    news: Condvar,
}

#[derive(Default)]
struct Queue {
    tasks: VecDeque<Arc<Task>>,
    stopping: bool,
}

/// A read under way on the pool; shared by who waits for it and by the thread that does it.
pub(super) struct Task {
    device: usize,
    offset: u64,
    bytes: usize,
    asked: Instant,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waker: Option<Waker>,
    outcome: Option<io::Result<Aligned>>,
    /// Nobody waits any more.
    abandoned: bool,
}

impl Pool {
    pub(super) fn start(
        media: Vec<Arc<dyn Media>>,
        threads: usize,
        counters: Arc<ReadCounters>,
    ) -> Result<Self, FlashError> {
        let shared = Arc::new(Shared { media, counters, queue: Mutex::default(), news: Condvar::new() });
        let mut pool = Self { shared, threads: Vec::with_capacity(threads) };
        for number in 0..threads.max(1) {
            let shared = Arc::clone(&pool.shared);
            let thread = std::thread::Builder::new()
                .name(format!("flash-read-{number}"))
                .spawn(move || shared.run())
                .map_err(|source| FlashError::Start { what: "a thread that reads", source })?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    pub(super) fn read(&self, device: usize, offset: u64, bytes: usize) -> Arc<Task> {
        let task = Arc::new(Task { device, offset, bytes, asked: Instant::now(), state: Mutex::default() });
        self.shared.counters.change_in_flight(0, 1);
        self.shared.queue.lock().tasks.push_back(Arc::clone(&task));
        self.shared.news.notify_one();
        task
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.queue.lock().stopping = true;
        self.shared.news.notify_all();
        for thread in self.threads.drain(..) {
            // A waker that held the last handle drops it on one of these threads.
            if thread.thread().id() != std::thread::current().id() {
                // It cannot have panicked but in a device of a test.
                let _ = thread.join();
            }
        }
    }
}

impl Shared {
    fn run(&self) {
        while let Some(task) = self.next() {
            if !task.state.lock().abandoned {
                self.perform(&task);
            }
            self.counters.change_in_flight(1, 0);
        }
    }

    fn next(&self) -> Option<Arc<Task>> {
        let mut queue = self.queue.lock();
        loop {
            if let Some(task) = queue.tasks.pop_front() {
                return Some(task);
            }
            if queue.stopping {
                return None;
            }
            self.news.wait(&mut queue);
        }
    }

    fn perform(&self, task: &Task) {
        let mut buffer = Aligned::recycled(task.bytes);
        let outcome = self.media[task.device].read_at(&mut buffer, task.offset).map(|()| buffer);
        let mut tally = Tally::default();
        tally.note(outcome.is_ok().then_some(task.bytes), task.asked.elapsed());
        self.counters.add(&mut tally);
        task.finish(outcome);
    }
}

impl Task {
    fn finish(&self, outcome: io::Result<Aligned>) {
        let waker = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(super) fn poll(&self, context: &mut Context<'_>) -> Poll<io::Result<Aligned>> {
        let mut state = self.state.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker.get_or_insert_with(|| context.waker().clone()).clone_from(context.waker());
                Poll::Pending
            }
        }
    }

    pub(super) fn abandon(&self) {
        let mut state = self.state.lock();
        state.abandoned = true;
        state.waker = None;
    }
}
