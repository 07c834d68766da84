//! Whether what other processes have posted was heard once: one that has just started knows of none of them.

use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Poll, Waker};

use parking_lot::Mutex;

/// Lets others wait for the end of the first round in which boards are read.
#[derive(Default)]
pub(crate) struct Listening {
    is_awaited: AtomicBool,
    waiting: Mutex<Vec<Waker>>,
}

impl Listening {
    /// A thread that reads boards starts.
    pub(crate) fn begin(&self) {
        self.is_awaited.store(true, Ordering::Release);
    }

    /// A round has ended, or none will come.
    pub(crate) fn end(&self) {
        if self.is_awaited.swap(false, Ordering::AcqRel) {
            self.waiting.lock().drain(..).for_each(Waker::wake);
        }
    }

    /// Waits for the first round of the thread, if one has started.
    pub(crate) async fn heard(&self) {
        poll_fn(|context| {
            if !self.is_awaited.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            let mut waiting = self.waiting.lock();
            // It ends before the lock is taken for those that wait.
            if !self.is_awaited.load(Ordering::Acquire) {
                return Poll::Ready(());
            }
            waiting.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }
}
