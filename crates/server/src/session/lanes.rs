//! Wakers for single parked requests of a session: only woken requests are polled.
//!
//! A waker is an allocation, so those of answered requests are kept with their queue for the next requests. A late wake, for a
//! request that is gone, costs another request a poll.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake, Waker};

use parking_lot::Mutex;

/// Most wakers that a queue keeps.
const SPARE: usize = 16;

/// The wake flag of a request.
struct Flag {
    woken: AtomicBool,
    session: Arc<Mutex<Waker>>,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            self.session.lock().wake_by_ref();
        }
    }
}

/// The waker of one parked request.
pub(super) struct Lane {
    flag: Arc<Flag>,
    waker: Waker,
}

impl Lane {
    /// Whether the request has to be polled: it was woken since the last call, or is new.
    #[inline]
    pub(super) fn take_wake(&self) -> bool {
        // A plain load first: most requests further back in the queue were not woken.
        self.flag.woken.load(Ordering::Relaxed) && self.flag.woken.swap(false, Ordering::AcqRel)
    }

    /// The waker to poll the request with.
    #[inline]
    pub(super) fn context(&self) -> Context<'_> {
        Context::from_waker(&self.waker)
    }
}

/// The wakers of a queue of requests.
pub(super) struct Lanes {
    /// Wakes the worker for the session. Locked for a comparison, or for a wake, which is a push to a list.
    session: Arc<Mutex<Waker>>,
    /// Unused wakers.
    spare: Vec<Lane>,
}

impl Default for Lanes {
    fn default() -> Self {
        Self { session: Arc::new(Mutex::new(Waker::noop().clone())), spare: Vec::new() }
    }
}

impl Lanes {
    /// Sets the waker that is called when one of the requests is woken. Call it before polling requests.
    #[inline]
    pub(super) fn belong_to(&self, session: &Waker) {
        let mut told = self.session.lock();
        if !told.will_wake(session) {
            told.clone_from(session);
        }
    }

    /// A lane for a new request.
    pub(super) fn take(&mut self) -> Lane {
        if let Some(lane) = self.spare.pop() {
            lane.flag.woken.store(true, Ordering::Release);
            return lane;
        }
        let flag = Arc::new(Flag { woken: AtomicBool::new(true), session: Arc::clone(&self.session) });
        Lane { waker: Waker::from(Arc::clone(&flag)), flag }
    }

    /// A request is answered.
    pub(super) fn give_back(&mut self, lane: Lane) {
        if self.spare.len() < SPARE {
            self.spare.push(lane);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_is_of_one_request_and_of_the_session_that_is_polled_now() {
        let (first, second) = (Arc::new(Count::default()), Arc::new(Count::default()));
        let woken = |count: &Arc<Count>| count.0.load(Ordering::Relaxed);
        let mut lanes = Lanes::default();
        lanes.belong_to(&Waker::from(Arc::clone(&first)));
        let (one, other) = (lanes.take(), lanes.take());
        assert!(one.take_wake() && other.take_wake(), "new ones are polled");
        assert!(!one.take_wake() && !other.take_wake());

        one.context().waker().wake_by_ref();
        one.context().waker().wake_by_ref();
        assert_eq!(woken(&first), 1, "once for however many wakes");
        assert!(one.take_wake() && !one.take_wake() && !other.take_wake());

        lanes.belong_to(&Waker::from(Arc::clone(&second)));
        other.context().waker().wake_by_ref();
        assert_eq!((woken(&first), woken(&second)), (1, 1));

        lanes.give_back(other);
        assert!(lanes.take().take_wake(), "of the next request in it, which is new");
    }

    #[test]
    fn wakes_from_other_threads_are_not_lost() {
        let count = Arc::new(Count::default());
        let mut lanes = Lanes::default();
        lanes.belong_to(&Waker::from(Arc::clone(&count)));
        let lane = lanes.take();
        assert!(lane.take_wake());
        let (rounds, done) = (10_000, AtomicUsize::new(0));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=rounds {
                    done.store(round, Ordering::Release);
                    lane.context().waker().wake_by_ref();
                }
            });
            let mut seen = 0;
            while seen < rounds {
                if lane.take_wake() {
                    seen = done.load(Ordering::Acquire);
                }
                std::hint::spin_loop();
            }
        });
        assert!(count.0.load(Ordering::Relaxed) > 0);
    }
}
