//! Requests that wait for the flusher: each has one entry, however often it is polled, and a deadline.

use std::task::Waker;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use slab::Slab;

use moneta_device::io::running::{Deadline, RunningTime};

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
    state: Mutex<WaitingState>,
    /// There is a deadline to watch, or the engine ends.
    news: Condvar,
}

#[derive(Default)]
struct WaitingState {
    waiting: Slab<Waiter>,
    /// The thread that watches deadlines has none and sleeps.
    is_idle: bool,
    ended: bool,
}

struct Waiter {
    goal: Goal,
    deadline: Option<Deadline>,
    /// Taken when the request is woken. The entry is removed with its [`Wait`](super::wait::Wait).
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

    /// Registers a waker: in `entry`, or in a new one if that is none.
    pub(super) fn enter(&self, entry: &mut Option<usize>, goal: Goal, deadline: Option<Deadline>, waker: &Waker) {
        let mut state = self.state.lock();
        match *entry {
            Some(entry) => match &mut state.waiting[entry].waker {
                Some(known) => known.clone_from(waker),
                none => *none = Some(waker.clone()),
            },
            None => *entry = Some(state.waiting.insert(Waiter { goal, deadline, waker: Some(waker.clone()) })),
        }
        if state.is_idle && deadline.is_some() {
            self.news.notify_one();
        }
    }

    /// Removes an entry.
    pub(super) fn leave(&self, entry: usize) {
        self.state.lock().waiting.remove(entry);
    }

    /// Ends [`Waiters::watch`].
    pub(super) fn end(&self) {
        self.state.lock().ended = true;
        self.news.notify_all();
    }

    /// Wakes waiters past their deadlines, after calling `late`, and calls `look` every `every`; returns when the engine ends.
    pub(super) fn watch(&self, time: &RunningTime, late: impl Fn(), every: Duration, look: impl Fn()) {
        let mut next_look = Instant::now() + every;
        let mut state = self.state.lock();
        while !state.ended {
            let now = Instant::now();
            // What is done before it sleeps again takes less than a look is apart from the next.
            time.wakes_by(now + every);
            if next_look <= now {
                next_look = now + every;
                drop(state);
                look();
                state = self.state.lock();
                continue;
            }
            let pending = state.waiting.iter().filter(|(_, waiter)| waiter.waker.is_some());
            match pending.filter_map(|(_, waiter)| waiter.deadline).min() {
                Some(first) if first.is_over(time) => {
                    let is_late = |waiter: &Waiter| waiter.deadline.is_some_and(|deadline| deadline.is_over(time));
                    let over = state.waiting.iter_mut().filter(|(_, waiter)| is_late(waiter));
                    let woken: Vec<Waker> = over.filter_map(|(_, waiter)| waiter.waker.take()).collect();
                    drop(state);
                    late();
                    woken.into_iter().for_each(Waker::wake);
                    state = self.state.lock();
                }
                first => {
                    state.is_idle = first.is_none();
                    let left = first.map(|first| now + first.left(time));
                    let wakes_by = left.map_or(next_look, |left| left.min(next_look));
                    time.wakes_by(wakes_by);
                    self.news.wait_until(&mut state, wakes_by);
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
