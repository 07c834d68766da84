//! Reads of several keys: those that begin on one node go there together, and what that does not answer goes on key by key.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use moneta_store::request::Retrieve;
use moneta_store::{Key, Lookup, Outcome, OwnedKey, PendingReads, StoreError, Stream};
use smallvec::SmallVec;

use crate::call::Call;
use crate::reads::{Ask, Looking};

/// Reads under way.
struct Several {
    reads: Vec<Read>,
    /// The one whose end is told next.
    next: usize,
    /// What nodes were asked together.
    parts: SmallVec<[Part; 6]>,
}

/// The read of a key.
struct Read {
    looking: Looking,
    state: State,
}

enum State {
    /// Asked together with others.
    Together,
    /// Asked alone.
    Alone,
    Ended(Option<Result<Lookup, StoreError>>),
}

/// What a node was asked.
struct Part {
    /// Of [`Several::reads`], in the order in which they were asked; those that were answered are gone.
    reads: std::vec::IntoIter<usize>,
    pending: PendingReads,
}

impl Call {
    /// Begins plain reads of several keys.
    pub(crate) fn look_several(&self, keys: &[Key<'_>], request: &Retrieve) -> PendingReads {
        let prepare =
            |key| Read { looking: self.clone().prepare(OwnedKey::of(key), Ask::Read(*request)), state: State::Alone };
        let mut reads: Vec<Read> = keys.iter().map(prepare).collect();
        let mut nodes: SmallVec<[(usize, SmallVec<[usize; 16]>); 6]> = SmallVec::new();
        for (read, Read { looking, .. }) in reads.iter_mut().enumerate() {
            let Some(node) = looking.next_node() else { continue };
            match nodes.iter_mut().find(|(other, _)| *other == node) {
                Some((_, reads)) => reads.push(read),
                None => nodes.push((node, SmallVec::from_slice(&[read]))),
            }
        }
        let mut parts = SmallVec::new();
        for (node, asked) in nodes {
            let together: SmallVec<[Key<'_>; 16]> = asked.iter().map(|&read| keys[read]).collect();
            let begun = if asked.len() > 1 { self.begin_several(node, &together, request) } else { None };
            match begun {
                Some(pending) => {
                    asked.iter().for_each(|&read| reads[read].state = State::Together);
                    parts.push(Part { reads: asked.into_vec().into_iter(), pending });
                }
                None => asked.iter().for_each(|&read| reads[read].looking.ask_alone(node)),
            }
        }
        Box::pin(Several { reads, next: 0, parts })
    }
}

impl Several {
    /// Takes what nodes have said, and goes on with reads that go from node to node.
    fn drive(&mut self, context: &mut Context<'_>) {
        let reads = &mut self.reads;
        self.parts.retain(|part| {
            while let Poll::Ready(ended) = part.pending.as_mut().poll_next(context) {
                let (Some(read), Some(ended)) = (part.reads.next(), ended) else { return false };
                let Read { looking, state } = &mut reads[read];
                let ended = looking.hear(ended).inspect(|ended| looking.count(ended));
                *state = ended.map_or(State::Alone, |ended| State::Ended(Some(ended)));
            }
            true
        });
        for Read { looking, state } in &mut reads[self.next..] {
            if let State::Alone = state
                && let Poll::Ready(ended) = Pin::new(looking).poll(context)
            {
                *state = State::Ended(Some(ended.map(Outcome::lookup)));
            }
        }
    }

    /// How the next read ended, if it has.
    fn take(&mut self) -> Option<Result<Lookup, StoreError>> {
        let State::Ended(ended) = &mut self.reads.get_mut(self.next)?.state else { return None };
        self.next += 1;
        ended.take()
    }
}

impl Stream for Several {
    type Item = Result<Lookup, StoreError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if let Some(ended) = self.take() {
            return Poll::Ready(Some(ended));
        }
        if self.next == self.reads.len() {
            return Poll::Ready(None);
        }
        self.drive(context);
        self.take().map_or(Poll::Pending, |ended| Poll::Ready(Some(ended)))
    }
}
