//! The answers of a thread's connections, each in the slot of the future that waits for it.

use std::task::{Context, Poll, Waker};
use std::time::Instant;

use moneta_client::wire::Answer;
use moneta_store::{Key, StoreError};
use slab::Slab;

use super::entry::{Entry, Target};
use super::outcome::{Claim, Outcome, Won};
use super::together::{Together, Told};
use crate::counters::{Counters, Tally};
use crate::failure::Failure;

/// The answers of a thread's connections, each in a slot.
#[derive(Default)]
pub(crate) struct Replies {
    slots: Slab<Slot>,
    /// Reads begun together.
    together: Slab<Together>,
    /// Memory for those that begin next.
    spare: Vec<Together>,
    /// Wakers to call when nothing is borrowed any more.
    pub(crate) wakers: Vec<Waker>,
    pub(crate) tally: Tally,
    /// What is to be given back.
    pub(crate) won: Vec<Won>,
}

/// Reads begun together whose memory is kept.
const SPARE: usize = 64;

enum Slot {
    Waiting(Option<Waker>),
    Ended(Outcome<'static>),
    /// The answer is not waited for any more; the slot goes when the reply has come, and what it has won is given back.
    Abandoned(Option<Claim>),
}

impl Replies {
    /// A slot for a request that begins.
    pub(crate) fn open(&mut self) -> usize {
        self.slots.insert(Slot::Waiting(None))
    }

    /// A slot for a request that did not begin after all.
    pub(crate) fn cancel(&mut self, slot: usize) {
        self.slots.remove(slot);
    }

    /// A reply came.
    #[inline]
    pub(crate) fn answer(&mut self, entry: Entry, now: Instant, answer: Answer<'_>) {
        self.tally.replied(entry.idempotent, now.saturating_duration_since(entry.begun));
        self.end(entry.target, Ok(answer));
    }

    /// There will be none.
    pub(crate) fn fail(&mut self, target: Target, counters: &Counters, failure: Failure) {
        self.tally.failed();
        counters.failure(failure.kind);
        self.end(target, Err(failure));
    }

    /// It cannot be sent after all, which is counted already.
    pub(crate) fn end_unsent(&mut self, target: Target, failure: Failure) {
        self.tally.failed();
        self.end(target, Err(failure));
    }

    #[inline]
    fn end(&mut self, target: Target, outcome: Outcome<'_>) {
        match target {
            Target::Local(key) => match &mut self.slots[key] {
                Slot::Waiting(waker) => {
                    self.wakers.extend(waker.take());
                    self.slots[key] = Slot::Ended(outcome.map(Answer::into_owned));
                }
                _ => {
                    if let Slot::Abandoned(Some(claim)) = self.slots.remove(key) {
                        self.won.extend(claim.won(&outcome));
                    }
                }
            },
            Target::Together { slot, index } => {
                let (waker, won) = self.together[slot].end(index, outcome);
                self.wakers.extend(waker);
                self.won.extend(won);
                if self.together[slot].is_abandoned() {
                    self.forget_together(slot);
                }
            }
            Target::Shared(promise) => {
                let (waker, won) = promise.keep(outcome.map(Answer::into_owned));
                self.wakers.extend(waker);
                self.won.extend(won);
            }
            Target::Unanswered | Target::Check => {}
        }
    }

    /// A slot for reads that begin together.
    pub(crate) fn open_together(&mut self, keys: &[Key<'_>]) -> usize {
        let mut together = self.spare.pop().unwrap_or_default();
        together.begin(keys);
        self.together.insert(together)
    }

    /// One of them did not begin.
    #[cold]
    pub(crate) fn refuse_together(&mut self, slot: usize, index: usize, error: StoreError) {
        self.together[slot].refuse(index, error);
    }

    /// Looks for the answer to one of them, which is told once.
    #[inline]
    pub(crate) fn poll_together(
        &mut self,
        slot: usize,
        index: usize,
        context: &Context<'_>,
    ) -> Poll<(Key<'_>, Told<'_>)> {
        self.together[slot].poll(index, context)
    }

    /// Their answers are not waited for any more. What those that are there have won.
    pub(crate) fn abandon_together(&mut self, slot: usize) -> Vec<Won> {
        let won = self.together[slot].abandon();
        self.forget_together(slot);
        won
    }

    /// Drops the slot of abandoned reads when nothing comes any more.
    fn forget_together(&mut self, slot: usize) {
        if self.together[slot].is_over() {
            let mut together = self.together.remove(slot);
            if self.spare.len() < SPARE {
                together.shrink();
                self.spare.push(together);
            }
        }
    }

    /// Looks for the answer in a slot, which is gone once it was there.
    pub(crate) fn poll(&mut self, key: usize, context: &Context<'_>) -> Poll<Outcome<'static>> {
        match &mut self.slots[key] {
            Slot::Waiting(waker) => {
                match waker {
                    Some(waker) => waker.clone_from(context.waker()),
                    None => *waker = Some(context.waker().clone()),
                }
                Poll::Pending
            }
            _ => match self.slots.remove(key) {
                Slot::Ended(outcome) => Poll::Ready(outcome),
                _ => unreachable!("only a dropped future's slot is abandoned"),
            },
        }
    }

    /// A slot's answer is not waited for any more. What it has won, if it is there already.
    pub(crate) fn abandon(&mut self, key: usize, claim: Option<Claim>) -> Option<Won> {
        match &mut self.slots[key] {
            slot @ Slot::Waiting(_) => {
                *slot = Slot::Abandoned(claim);
                None
            }
            _ => match self.slots.remove(key) {
                Slot::Ended(outcome) => claim?.won(&outcome),
                _ => None,
            },
        }
    }
}
