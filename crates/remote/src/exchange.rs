//! A request in flight, as a future.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use moneta_client::wire::Answer;
use moneta_store::StoreError;

use crate::connection::{Claim, Outcome, Won};
use crate::promise::Promise;
use crate::worker_client::WorkerClient;

/// A request in flight. If it is dropped early, its reply is still received and discarded.
pub(crate) struct Exchange {
    way: Way,
    over: bool,
}

/// Who asks.
enum Way {
    /// This thread, on one of its connections.
    Local { client: Rc<WorkerClient>, slot: usize },
    /// The background thread.
    Shared(Arc<Promise>),
}

impl Exchange {
    #[inline]
    pub(crate) fn local(client: Rc<WorkerClient>, slot: usize) -> Self {
        Self { way: Way::Local { client, slot }, over: false }
    }

    pub(crate) fn shared(promise: Arc<Promise>) -> Self {
        Self { way: Way::Shared(promise), over: false }
    }

    /// Forgets a read that may have won what it does not want: `claim` is given back when the reply shows that. What it is
    /// known to have won already is returned.
    pub(crate) fn give_up(&mut self, claim: impl FnOnce() -> Claim) -> Option<Won> {
        if std::mem::replace(&mut self.over, true) {
            return None;
        }
        match &self.way {
            Way::Local { client, slot } => client.abandon(*slot, Some(claim())),
            Way::Shared(promise) => promise.give_up(claim()),
        }
    }
}

impl Exchange {
    /// How it ends.
    #[inline]
    pub(crate) fn poll_outcome(&mut self, context: &mut Context<'_>) -> Poll<Outcome<'static>> {
        let outcome = ready!(match &self.way {
            Way::Local { client, slot } => client.poll(*slot, context),
            Way::Shared(promise) => promise.poll(context),
        });
        self.over = true;
        Poll::Ready(outcome)
    }
}

impl Future for Exchange {
    type Output = Result<Answer<'static>, StoreError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_outcome(context).map_err(StoreError::from)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        if let Way::Local { client, slot } = &self.way
            && !self.over
        {
            client.abandon(*slot, None);
        }
    }
}
