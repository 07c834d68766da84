//! Requests that wait for the flusher: each has one entry, however often it is polled, and a deadline.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use moneta_store::{ErrorKind, StoreError};
use parking_lot::{Condvar, Mutex};
use slab::Slab;

use super::queue::FlushQueue;

/// What a request waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Goal {
    /// The append with this number, and all before it, are on the devices.
    Durable(u64),
    /// Reclaiming has freed a region since this count of rounds.
    Room(u64),
}

/// All that wait.
#[derive(Default)]
pub(super) struct Waiters {
    // Held for an insert or a removal, and for a pass over all entries when a goal may have been reached.
    state: Mutex<State>,
    /// There is a deadline to watch, or the engine ends.
    news: Condvar,
}

#[derive(Default)]
struct State {
    waiting: Slab<Waiter>,
    /// The thread that watches deadlines has none and sleeps.
    is_idle: bool,
    ended: bool,
}

struct Waiter {
    goal: Goal,
    deadline: Option<Instant>,
    /// Taken when the request is woken. The entry is removed with its [`Wait`].
    waker: Option<Waker>,
}

impl Waiters {
    /// Wakes those whose goal `is_reached`.
    pub(super) fn wake(&self, mut is_reached: impl FnMut(Goal) -> bool) {
        let woken: Vec<Waker> = {
            let mut state = self.state.lock();
            let reached = state.waiting.iter_mut().filter(|(_, waiter)| is_reached(waiter.goal));
            reached.filter_map(|(_, waiter)| waiter.waker.take()).collect()
        };
        woken.into_iter().for_each(Waker::wake);
    }

    /// Ends [`Waiters::watch`].
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.news.notify_all();
    }

    /// Wakes waiters past their deadlines, after calling `late`, and calls `look` every `every`; returns when the engine ends.
    pub(super) fn watch(&self, late: impl Fn(), every: Duration, look: impl Fn()) {
        let mut next_look = Instant::now() + every;
        let mut state = self.state.lock();
        while !state.ended {
            let now = Instant::now();
            if next_look <= now {
                next_look = now + every;
                drop(state);
                look();
                state = self.state.lock();
                continue;
            }
            let pending = state.waiting.iter().filter(|(_, waiter)| waiter.waker.is_some());
            match pending.filter_map(|(_, waiter)| waiter.deadline).min() {
                Some(first) if first <= now => {
                    let is_late = |waiter: &Waiter| waiter.deadline.is_some_and(|deadline| deadline <= now);
                    let over = state.waiting.iter_mut().filter(|(_, waiter)| is_late(waiter));
                    let woken: Vec<Waker> = over.filter_map(|(_, waiter)| waiter.waker.take()).collect();
                    drop(state);
                    late();
                    woken.into_iter().for_each(Waker::wake);
                    state = self.state.lock();
                }
                first => {
                    state.is_idle = first.is_none();
                    self.news.wait_until(&mut state, first.map_or(next_look, |first| first.min(next_look)));
                    state.is_idle = false;
                }
            }
        }
    }

    /// The number of waiters.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

/// Waits for a [`Goal`].
pub(crate) struct Wait {
    queue: Arc<FlushQueue>,
    goal: Goal,
    deadline: Option<Instant>,
    entry: Option<usize>,
}

impl Wait {
    pub(super) fn new(queue: Arc<FlushQueue>, goal: Goal, deadline: Option<Instant>) -> Self {
        Self { queue, goal, deadline, entry: None }
    }

    fn outcome(&self) -> Option<Result<(), StoreError>> {
        self.queue.outcome(self.goal).or_else(|| {
            let late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
            late.then(|| Err(StoreError::new(ErrorKind::Timeout, "the device of the SSD tier is too slow")))
        })
    }

    /// Registers the waker.
    fn enter(&mut self, waker: &Waker) {
        let waiters = &self.queue.waiters;
        let mut state = waiters.state.lock();
        match self.entry {
            Some(entry) => match &mut state.waiting[entry].waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            },
            None => {
                let (goal, deadline, waker) = (self.goal, self.deadline, Some(waker.clone()));
                self.entry = Some(state.waiting.insert(Waiter { goal, deadline, waker }));
            }
        }
        if state.is_idle && self.deadline.is_some() {
            waiters.news.notify_one();
        }
    }
}

impl Future for Wait {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(ended) = self.outcome() {
            return Poll::Ready(ended);
        }
        self.enter(cx.waker());
        // The goal may have been reached before the waker was registered.
        match self.outcome() {
            Some(ended) => Poll::Ready(ended),
            None => Poll::Pending,
        }
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        if let Some(entry) = self.entry {
            self.queue.waiters.state.lock().waiting.remove(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use pollster::block_on;

    use super::*;

    #[test]
    fn a_request_that_is_polled_again_and_again_has_one_entry_and_none_when_it_is_gone() {
        let queue = FlushQueue::new(Duration::from_secs(60));
        {
            let mut first = pin!(queue.wait_until(Goal::Durable(1), queue.deadline()));
            let mut second = pin!(queue.wait_until(Goal::Room(0), queue.deadline()));
            for _ in 0..1000 {
                let mut context = Context::from_waker(Waker::noop());
                assert!(first.as_mut().poll(&mut context).is_pending());
                assert!(second.as_mut().poll(&mut context).is_pending());
            }
            assert_eq!(queue.waiters.len(), 2);
        }
        assert_eq!(queue.waiters.len(), 0);
    }

    #[test]
    fn who_waits_too_long_is_told_so_and_others_wait_on() {
        let queue = FlushQueue::new(Duration::from_millis(1));
        std::thread::scope(|scope| {
            scope.spawn(|| queue.watch(Duration::from_secs(60), || {}));
            let late = block_on(queue.wait_until(Goal::Room(0), queue.deadline()));
            assert_eq!(late.expect_err("there is no room").kind(), ErrorKind::Timeout);
            assert!(!queue.is_off(), "no call of a device is under way");
            let patient = scope.spawn(|| block_on(queue.wait(Goal::Room(0))));
            while queue.waiters.len() == 0 {
                std::thread::yield_now();
            }
            queue.note_room();
            patient.join().expect("it ends").expect("there is room");
            queue.end();
        });
    }
}
