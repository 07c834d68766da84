//! What became of a write on its copies, and from when on those that did not take it are to be given it.
//!
//! A copy lacks a write only if another one took it, or may have: it was sent there, and no answer came. What was sent nowhere never was, and a hint
//! of it would have the copy give up what it holds for nothing.

use moneta_store::{ErrorKind, OwnedKey, StoreError};
use smallvec::SmallVec;

use crate::call::Call;
use crate::hints::Missed;
use crate::node::is_unwell;

/// A write that is under way.
#[derive(Default)]
pub(crate) struct Fate {
    /// A copy took it.
    is_taken: bool,
    /// One may have taken it.
    may_be_taken: bool,
    /// Copies that have not got it, if others have.
    lacking: SmallVec<[usize; 4]>,
    /// The same of those that said why: as of a version ahead of their clocks. They lack it only if others took it.
    refusing: SmallVec<[usize; 4]>,
    /// A copy held something newer.
    is_superseded: bool,
    /// A copy refused it for what it is.
    is_refused: bool,
}

impl Fate {
    /// Of a write that a copy took.
    pub(crate) fn taken() -> Self {
        Self { is_taken: true, ..Self::default() }
    }

    /// A copy took it.
    pub(crate) fn took(&mut self, call: &Call, node: usize, key: &OwnedKey, missed: Missed) {
        call.node(node).hints.settle(key.key().bytes, missed.version);
        self.is_taken = true;
        self.decide(call, key, missed);
    }

    /// A copy holds something newer.
    pub(crate) fn superseded(&mut self, call: &Call, node: usize, key: &OwnedKey, missed: Missed) {
        self.is_superseded = true;
        self.lacks(call, node, key, missed);
    }

    /// A copy refused it for what it is.
    pub(crate) fn refused(&mut self) {
        self.is_refused = true;
    }

    /// Whether copies refused it and none took it. `None`: nothing tells.
    pub(crate) fn is_refused(&self) -> Option<bool> {
        match self.is_taken || self.is_superseded {
            true => Some(false),
            false => self.is_refused.then_some(true),
        }
    }

    /// A copy has not got it.
    pub(crate) fn lacks(&mut self, call: &Call, node: usize, key: &OwnedKey, missed: Missed) {
        self.lacking.push(node);
        self.decide(call, key, missed);
    }

    /// A copy failed.
    pub(crate) fn failed(&mut self, call: &Call, node: usize, key: &OwnedKey, missed: Missed, error: &StoreError) {
        if error.is_unsent() {
            return self.lacks(call, node, key, missed);
        }
        self.is_refused |= error.kind() == ErrorKind::ClockAhead;
        match is_unwell(error) || error.kind() == ErrorKind::Refused {
            true => {
                self.may_be_taken = true;
                self.lacking.push(node);
            }
            false => self.refusing.push(node),
        }
        self.decide(call, key, missed);
    }

    /// Makes hints of what is known to be lacking.
    fn decide(&mut self, call: &Call, key: &OwnedKey, missed: Missed) {
        let note = |node: usize| call.node(node).hints.note(key.key().bytes, missed);
        if self.is_taken || self.may_be_taken {
            self.lacking.drain(..).for_each(note);
        }
        if self.is_taken {
            self.refusing.drain(..).for_each(note);
        }
    }
}
