//! The answers of a thread's connections, each in the slot of the future that waits for it.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use moneta_client::wire::{Answer, Verb};
use moneta_store::{Key, OwnedKey, StoreError};
use slab::Slab;

use super::entry::Target;
use super::outcome::{Claim, Outcome, Won};
use super::together::{ReadTold, Together};
use crate::counters::{RemoteCounters, Tally, Times};
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
    /// Bytes of values that were not taken yet.
    held: usize,
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

/// Bytes of the value that a read has found.
#[inline]
fn value_bytes(outcome: &Outcome<'_>) -> usize {
    match outcome {
        Ok(Answer::Hit(seen)) => seen.value.len(),
        _ => 0,
    }
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
    pub(crate) fn answer(&mut self, target: Target, kind: Times, took: Duration, answer: Answer<'_>) {
        self.tally.replied(kind, took);
        self.end(target, Ok(answer));
    }

    /// There will be none.
    pub(crate) fn fail(&mut self, target: Target, counters: &RemoteCounters, failure: Failure) {
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
    pub(crate) fn end(&mut self, target: Target, outcome: Outcome<'_>) {
        match target {
            Target::Local(key) => match &mut self.slots[key] {
                Slot::Waiting(waker) => {
                    self.wakers.extend(waker.take());
                    self.held += value_bytes(&outcome);
                    self.slots[key] = Slot::Ended(outcome.map(Answer::into_owned));
                }
                _ => {
                    if let Slot::Abandoned(Some(claim)) = self.slots.remove(key) {
                        self.won.extend(claim.won(&outcome));
                    }
                }
            },
            Target::Together { slot, index } => {
                let together = &mut self.together[slot];
                if together.is_abandoned() {
                    return self.end_abandoned(slot, index, &outcome);
                }
                let before = together.held();
                let waker = together.end(index, outcome);
                self.held += together.held() - before;
                if let Some(waker) = waker {
                    self.wakers.push(waker);
                }
            }
            Target::Shared(promise) => {
                let (waker, won) = promise.keep(outcome.map(Answer::into_owned));
                self.wakers.extend(waker);
                self.won.extend(won);
            }
            Target::Unanswered | Target::Check | Target::GivenUp => {}
        }
    }

    /// One of reads has ended that are not waited for any more.
    #[cold]
    fn end_abandoned(&mut self, slot: usize, index: usize, outcome: &Outcome<'_>) {
        self.won.extend(self.together[slot].end_abandoned(index, outcome));
        self.forget_together(slot);
    }

    /// Whether something waits for the answer, or it is for its effect that the request is sent.
    pub(crate) fn is_wanted(&self, target: &Target) -> bool {
        match target {
            Target::Local(key) => matches!(self.slots.get(*key), Some(Slot::Waiting(_))),
            Target::Together { slot, .. } => self.together.get(*slot).is_some_and(|reads| !reads.is_abandoned()),
            Target::Shared(_) | Target::Unanswered => true,
            Target::Check | Target::GivenUp => false,
        }
    }

    /// Bytes of values that were not taken yet.
    pub(crate) fn held(&self) -> usize {
        self.held
    }

    /// A slot for reads that begin together.
    pub(crate) fn open_together(&mut self, verb: Verb, keys: &[Key<'_>]) -> usize {
        let mut together = self.spare.pop().unwrap_or_default();
        together.begin(verb, keys);
        self.together.insert(together)
    }

    /// What one of them asks.
    pub(crate) fn question(&self, slot: usize, index: usize) -> Option<(Verb, OwnedKey)> {
        let (verb, key) = self.together.get(slot)?.question(index)?;
        Some((verb, OwnedKey::of(&key)))
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
    ) -> Poll<(Key<'_>, ReadTold<'_>)> {
        let together = &mut self.together[slot];
        self.held -= together.free_told();
        together.poll(index, context)
    }

    /// Their answers are not waited for any more. What those that are there have won.
    pub(crate) fn abandon_together(&mut self, slot: usize) -> Vec<Won> {
        let together = &mut self.together[slot];
        self.held -= together.held();
        let won = together.abandon();
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
                Slot::Ended(outcome) => {
                    self.held -= value_bytes(&outcome);
                    Poll::Ready(outcome)
                }
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
                Slot::Ended(outcome) => {
                    self.held -= value_bytes(&outcome);
                    claim?.won(&outcome)
                }
                _ => None,
            },
        }
    }
}
