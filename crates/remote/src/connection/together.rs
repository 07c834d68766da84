//! The answers to reads that were begun together. The values of their items lie in one buffer, and none but long ones is
//! allocated for itself.

use std::borrow::Cow;
use std::ops::Range;
use std::task::{Context, Poll, Waker};

use moneta_client::wire::{Answer, Seen, Verb};
use moneta_store::{Key, OwnedKeys, StoreError};

use super::outcome::{Outcome, Won, has_won, wins};

/// Memory for values that is kept for the next reads, in bytes: of a hundred small ones.
const KEPT_BYTES: usize = 16 << 10;
/// A value from this length on is allocated for itself, and given back once it was told.
const ALONE: usize = 16 << 10;

/// Reads that were begun together.
#[derive(Default)]
pub(crate) struct Together {
    /// What is asked of each key.
    verb: Option<Verb>,
    keys: OwnedKeys,
    /// One for each key.
    answers: Vec<ReadState>,
    /// The values of items, in the order in which they came.
    values: Vec<u8>,
    /// How many are begun and have not ended.
    awaited: usize,
    /// Who waits for the answer at this index.
    waiter: Option<(usize, Waker)>,
    /// The answers are not waited for any more.
    is_abandoned: bool,
    /// Bytes of values.
    held: usize,
    /// The long value that was told last.
    told: Option<usize>,
    /// Some read has won a recache.
    has_won: bool,
}

enum ReadState {
    /// Begun.
    Awaited,
    /// An item, without its value, which lies there.
    Item(Seen<'static>, Range<usize>),
    /// An item with a long value.
    Long(Box<Seen<'static>>),
    /// Ended in another way; `None` once that is told.
    Ended(Option<Result<Answer<'static>, StoreError>>),
}

/// What is told of a read.
pub(crate) enum ReadTold<'a> {
    /// An item, and its value.
    Item(&'a Seen<'static>, &'a [u8]),
    /// It ended in another way.
    Ended(Result<Answer<'static>, StoreError>),
}

impl Together {
    /// Takes the place of what was there.
    pub(super) fn begin(&mut self, verb: Verb, keys: &[Key<'_>]) {
        self.verb = Some(verb);
        self.keys.replace(keys);
        self.answers.clear();
        self.answers.extend(keys.iter().map(|_| ReadState::Awaited));
        self.values.clear();
        (self.awaited, self.waiter, self.is_abandoned) = (keys.len(), None, false);
        (self.held, self.told, self.has_won) = (0, None, false);
    }

    /// Gives back memory that is not worth to be kept.
    pub(super) fn shrink(&mut self) {
        self.answers.clear();
        if self.values.capacity() > KEPT_BYTES {
            self.values = Vec::new();
        }
    }

    /// The read at `index` did not begin.
    pub(super) fn refuse(&mut self, index: usize, error: StoreError) {
        self.awaited -= 1;
        self.answers[index] = ReadState::Ended(Some(Err(error)));
    }

    /// The read at `index` has ended, which is not waited for any more. Returns what is to be given back.
    pub(super) fn end_abandoned(&mut self, index: usize, outcome: &Outcome<'_>) -> Option<Won> {
        self.awaited -= 1;
        has_won(outcome).map(|cas| self.recache(index, cas))
    }

    /// The read at `index` has ended. Returns who is to be woken.
    #[inline]
    pub(super) fn end(&mut self, index: usize, outcome: Outcome<'_>) -> Option<Waker> {
        self.awaited -= 1;
        self.has_won |= has_won(&outcome).is_some();
        self.answers[index] = match outcome {
            Ok(Answer::Hit(seen)) if seen.value.len() >= ALONE => {
                self.held += seen.value.len();
                let value = Cow::Owned(seen.value.into_owned());
                ReadState::Long(Box::new(Seen { value, ..seen }))
            }
            Ok(Answer::Hit(seen)) => {
                self.held += seen.value.len();
                let start = self.values.len();
                self.values.extend_from_slice(&seen.value);
                ReadState::Item(Seen { value: Cow::Borrowed(&[]), ..seen }, start..self.values.len())
            }
            Ok(answer) => ReadState::Ended(Some(Ok(answer.into_owned()))),
            Err(failure) => ReadState::Ended(Some(Err(failure.into()))),
        };
        self.waiter.take_if(|(waits_for, _)| *waits_for == index).map(|(_, waker)| waker)
    }

    /// Looks for the answer at `index`, which is told once.
    #[inline]
    pub(super) fn poll(&mut self, index: usize, context: &Context<'_>) -> Poll<(Key<'_>, ReadTold<'_>)> {
        let told = match &mut self.answers[index] {
            ReadState::Item(seen, at) => ReadTold::Item(seen, &self.values[at.clone()]),
            ReadState::Long(seen) => {
                self.told = Some(index);
                ReadTold::Item(seen, &seen.value)
            }
            ReadState::Ended(ended) => ReadTold::Ended(ended.take().expect("an answer is told once")),
            ReadState::Awaited => {
                match &mut self.waiter {
                    Some((waits_for, waker)) => {
                        *waits_for = index;
                        waker.clone_from(context.waker());
                    }
                    none => *none = Some((index, context.waker().clone())),
                }
                return Poll::Pending;
            }
        };
        Poll::Ready((self.keys.key(index), told))
    }

    /// What is asked at `index`.
    pub(super) fn question(&self, index: usize) -> Option<(Verb, Key<'_>)> {
        Some((self.verb?, self.keys.key(index)))
    }

    /// Bytes of values that it holds.
    #[inline]
    pub(super) fn held(&self) -> usize {
        self.held
    }

    /// Gives back the long value that was told last; how many bytes that are.
    #[inline]
    pub(super) fn free_told(&mut self) -> usize {
        let Some(index) = self.told.take() else { return 0 };
        let ReadState::Long(seen) = std::mem::replace(&mut self.answers[index], ReadState::Ended(None)) else {
            return 0;
        };
        self.held -= seen.value.len();
        seen.value.len()
    }

    /// The answers are not waited for any more. What those that are there have won.
    pub(super) fn abandon(&mut self) -> Vec<Won> {
        self.is_abandoned = true;
        let won = if self.has_won { self.won() } else { Vec::new() };
        if !self.is_over() {
            // What is still to come is thrown away, and what is there already now.
            self.values = Vec::new();
        }
        self.answers.clear();
        self.held = 0;
        won
    }

    #[cold]
    fn won(&self) -> Vec<Won> {
        let mut won = Vec::new();
        for (index, state) in self.answers.iter().enumerate() {
            let seen = match state {
                ReadState::Item(seen, _) => seen,
                ReadState::Long(seen) => seen,
                ReadState::Awaited | ReadState::Ended(_) => continue,
            };
            if wins(seen) {
                won.push(self.recache(index, seen.cas));
            }
        }
        won
    }

    /// Whether the answers are not waited for any more.
    #[inline]
    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned
    }

    /// Whether nothing comes any more.
    pub(super) fn is_over(&self) -> bool {
        self.awaited == 0
    }

    fn recache(&self, index: usize, cas: u64) -> Won {
        let key = self.keys.key(index);
        Won { key: key.bytes.into(), hash: key.hash, cas }
    }
}
