//! An answer on its way from one thread to another.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::connection::Outcome;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Promise(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    outcome: Option<Outcome>,
    waker: Option<Waker>,
}

impl Promise {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Puts the answer in; whoever waits for it is to be woken.
    pub(crate) fn keep(&self, outcome: Outcome) -> Option<Waker> {
        let mut state = self.0.lock();
        state.outcome = Some(outcome);
        state.waker.take()
    }

    /// Takes the answer out, once it is there.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        let mut state = self.0.lock();
        match state.outcome.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}
