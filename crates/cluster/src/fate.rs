//! What became of a write on its copies, and from when on those that did not take it are to be given it.
//!
//! A copy lacks a write only if another one took it, or may have: it was sent there, and no answer came. What was sent nowhere
//! never was, and a hint of it would have the copy give up what it holds for nothing.

use moneta_store::{ErrorKind, OwnedKey, StoreError, Version};
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
    lacking: Option<Box<Lacking>>,
    /// The same of those that said why: as of a version ahead of their clocks. They lack it only if others took it.
    refusing: SmallVec<[usize; 4]>,
    /// A copy held something newer.
    is_superseded: bool,
    /// A copy refused it for what it is.
    is_refused: bool,
}

/// Copies that have not got a write. Where the write is given up before all copies have answered, as its client went away, one of
/// those may still take it: then these lack it.
struct Lacking {
    call: Call,
    key: OwnedKey,
    missed: Missed,
    nodes: SmallVec<[usize; 4]>,
    /// No copy took the write, and none will.
    is_void: bool,
}

impl Drop for Lacking {
    fn drop(&mut self) {
        if !self.is_void {
            self.nodes.iter().for_each(|&node| self.call.note_missed(node, self.key.key().bytes, self.missed));
        }
    }
}

impl Fate {
    /// Of a write that a copy took.
    pub(crate) fn taken() -> Self {
        Self { is_taken: true, ..Self::default() }
    }

    /// A copy took it.
    #[inline]
    pub(crate) fn took(&mut self, call: &Call, node: usize, key: &OwnedKey, missed: Missed) {
        call.node(node).took(&key.key(), missed.version);
        self.is_taken = true;
        self.decide(call, key, missed);
    }

    /// A copy holds something newer: of version `by`, or it does not tell.
    pub(crate) fn superseded(&mut self, call: &Call, node: usize, key: &OwnedKey, missed: Missed, by: Version) {
        self.is_superseded = true;
        // It lacks nothing then; and where that was a delete, what it shows is not to be taken for what it lacks.
        if by < missed.version {
            self.lacks(call, node, key, missed);
        }
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
        self.add(call, node, key, missed);
        self.decide(call, key, missed);
    }

    #[cold]
    fn add(&mut self, call: &Call, node: usize, key: &OwnedKey, missed: Missed) {
        let lacking = self.lacking.get_or_insert_with(|| {
            let (call, key, nodes) = (call.clone(), key.clone(), SmallVec::new());
            Box::new(Lacking { call, key, missed, nodes, is_void: false })
        });
        lacking.nodes.push(node);
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
                self.add(call, node, key, missed);
            }
            false => self.refusing.push(node),
        }
        self.decide(call, key, missed);
    }

    /// All copies have answered.
    pub(crate) fn end(&mut self) {
        if let Some(lacking) = &mut self.lacking {
            lacking.is_void = !self.is_taken && !self.may_be_taken;
        }
    }

    /// Makes hints of what is known to be lacking.
    #[inline]
    fn decide(&mut self, call: &Call, key: &OwnedKey, missed: Missed) {
        if self.lacking.is_some() || !self.refusing.is_empty() {
            self.decide_of_some(call, key, missed);
        }
    }

    #[cold]
    fn decide_of_some(&mut self, call: &Call, key: &OwnedKey, missed: Missed) {
        if self.is_taken || self.may_be_taken {
            drop(self.lacking.take());
        }
        if self.is_taken {
            self.refusing.drain(..).for_each(|node| call.note_missed(node, key.key().bytes, missed));
        }
    }
}
