//! The future of a request that waits for the flusher.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use moneta_store::{ErrorKind, StoreError};

use super::queue::FlushQueue;
use super::waiting::Goal;
use moneta_device::io::running::Deadline;

impl FlushQueue {
    /// Waits for `goal` until a deadline, as requests do.
    pub(crate) fn wait_until(self: &Arc<Self>, goal: Goal, deadline: Deadline) -> Wait {
        self.ask(goal);
        Wait::new(Arc::clone(self), goal, Some(deadline))
    }

    /// Waits for `goal` as long as devices accept writes, however slowly.
    pub(crate) fn wait(self: &Arc<Self>, goal: Goal) -> Wait {
        self.ask(goal);
        Wait::new(Arc::clone(self), goal, None)
    }
}

/// Waits for a [`Goal`].
pub(crate) struct Wait {
    queue: Arc<FlushQueue>,
    goal: Goal,
    deadline: Option<Deadline>,
    entry: Option<usize>,
}

impl Wait {
    fn new(queue: Arc<FlushQueue>, goal: Goal, deadline: Option<Deadline>) -> Self {
        Self { queue, goal, deadline, entry: None }
    }

    fn outcome(&self) -> Option<Result<(), StoreError>> {
        self.queue.outcome(self.goal).or_else(|| {
            let late = self.deadline.is_some_and(|deadline| deadline.is_over(self.queue.time()));
            late.then(|| Err(StoreError::new(ErrorKind::Timeout, "the device of the SSD tier is too slow")))
        })
    }
}

impl Future for Wait {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        if let Some(ended) = self.outcome() {
            return Poll::Ready(ended);
        }
        let Self { queue, goal, deadline, entry } = &mut *self;
        queue.waiters.enter(entry, *goal, *deadline, cx.waker());
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
            self.queue.waiters.leave(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::Waker;
    use std::time::Duration;

    use pollster::block_on;

    use super::*;
    use moneta_device::io::running::RunningTime;

    #[test]
    fn a_request_that_is_polled_again_and_again_has_one_entry_and_none_when_it_is_gone() {
        let queue = FlushQueue::new(Duration::from_secs(60), Arc::new(RunningTime::new()));
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
        let queue = FlushQueue::new(Duration::from_millis(1), Arc::new(RunningTime::new()));
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
