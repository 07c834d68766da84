//! Operations on several nodes at once, whose outcomes are taken one after the other as they come.

use std::future::poll_fn;
use std::task::Poll;

use moneta_store::{Outcome, Pending, Step, StoreError};
use smallvec::SmallVec;

/// How a node ended an operation.
pub(crate) type Ended = (usize, Result<Outcome, StoreError>);

/// Operations under way, by node.
#[derive(Default)]
pub(crate) struct Spread {
    waiting: SmallVec<[(usize, Pending); 4]>,
    ended: SmallVec<[Ended; 4]>,
}

impl Spread {
    /// Adds an operation on a node.
    pub(crate) fn add(&mut self, node: usize, step: Step) {
        match step {
            Step::Done(outcome) => self.ended.push((node, outcome)),
            Step::Wait(pending) => self.waiting.push((node, pending)),
        }
    }

    /// Operations whose outcome was not taken yet.
    pub(crate) fn left(&self) -> usize {
        self.waiting.len() + self.ended.len()
    }

    /// The nodes with operations whose outcome was not taken yet.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = usize> {
        self.waiting.iter().map(|(node, _)| *node).chain(self.ended.iter().map(|(node, _)| *node))
    }

    /// Whether the outcome of an operation on one of these nodes was not taken yet.
    pub(crate) fn waits_for(&self, nodes: impl Fn(usize) -> bool) -> bool {
        self.nodes().any(nodes)
    }

    /// The outcome of the operation that ends next; `None`: there are no more.
    pub(crate) async fn next(&mut self) -> Option<Ended> {
        poll_fn(|context| {
            if let Some(ended) = self.ended.pop() {
                return Poll::Ready(Some(ended));
            }
            for at in 0..self.waiting.len() {
                let (node, pending) = &mut self.waiting[at];
                if let Poll::Ready(outcome) = pending.as_mut().poll(context) {
                    let node = *node;
                    drop(self.waiting.swap_remove(at));
                    return Poll::Ready(Some((node, outcome)));
                }
            }
            if self.waiting.is_empty() { Poll::Ready(None) } else { Poll::Pending }
        })
        .await
    }
}
