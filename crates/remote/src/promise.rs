//! An answer on its way from one thread to another.

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

use crate::connection::outcome::{Claim, Outcome, Won};
use crate::failure::Failure;

/// An answer on its way from one thread to another.
#[derive(Debug, Default)]
pub(crate) struct Promise(Mutex<PromiseState>);

#[derive(Debug, Default)]
struct PromiseState {
    outcome: Option<Outcome<'static>>,
    waker: Option<Waker>,
    /// The answer is not waited for any more, and what the answer may have won is to be given back.
    given_up: Option<Claim>,
}

impl Promise {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Sets the answer and wakes the waiter. If the waiter is gone, returns the recache that the answer has won.
    pub(crate) fn keep(&self, outcome: Outcome<'static>) -> (Option<Waker>, Option<Won>) {
        let mut state = self.0.lock();
        let won = state.given_up.take().and_then(|claim| claim.won(&outcome));
        state.outcome = Some(outcome);
        (state.waker.take(), won)
    }

    /// Sets a failure and wakes the waiter.
    pub(crate) fn fail(&self, failure: Failure) {
        let (waker, _) = self.keep(Err(failure));
        waker.into_iter().for_each(Waker::wake);
    }

    /// The answer is not waited for any more. What it has won, if it is there already.
    pub(crate) fn give_up(&self, claim: Claim) -> Option<Won> {
        let mut state = self.0.lock();
        match state.outcome.take() {
            Some(outcome) => claim.won(&outcome),
            None => {
                state.given_up = Some(claim);
                None
            }
        }
    }

    /// Takes the answer out, once it is there.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome<'static>> {
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
