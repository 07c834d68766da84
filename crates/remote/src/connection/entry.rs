//! A request from its beginning to its reply.

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use moneta_client::wire::{Expect, Request, Verb};

use crate::promise::Promise;

/// Who is to have the answer.
#[derive(Debug)]
pub(crate) enum Target {
    /// A future of the same thread, by its slot.
    Local(usize),
    /// Reads begun together, by their slot: the one at this index.
    Together { slot: usize, index: usize },
    /// A future of another thread.
    Shared(Arc<Promise>),
    /// Not waited for: the request was sent for its effect.
    Unanswered,
    /// The connection itself, which asks whether the server is still there. Not counted among the requests.
    Check,
    /// A request that took too long: it has failed, and its reply is thrown away.
    GivenUp,
}

impl Target {
    /// Whether something waits for the answer.
    pub(crate) fn is_waited_for(&self) -> bool {
        matches!(self, Self::Local(_) | Self::Together { .. } | Self::Shared(_))
    }
}

/// A request that is in the stream, in the order of the replies.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) target: Target,
    pub(crate) expect: Expect,
    pub(crate) begun: Instant,
    /// Bytes that had moved on the connection when it began.
    pub(crate) moved: u64,
    /// Of its key.
    pub(crate) hash: u64,
    /// About how many bytes it moves, where that is bounded.
    pub(crate) cost: u32,
    /// Asking twice is as good as asking once.
    pub(crate) idempotent: bool,
    /// It had to wait for its connection, or for room on it.
    pub(crate) has_waited: bool,
    /// It is on its second connection.
    pub(crate) retried: bool,
    /// Where it lies among the bytes to send, as long as these are kept.
    pub(crate) span: Range<usize>,
}

impl Entry {
    /// Whether it asks no more than whether the server is still there.
    pub(crate) fn is_check(&self) -> bool {
        matches!(self.target, Target::Check)
    }

    /// Whether it has failed, though its reply may still come.
    pub(crate) fn is_given_up(&self) -> bool {
        matches!(self.target, Target::GivenUp)
    }
}

/// A request that waits for a connection.
#[derive(Debug)]
pub(crate) struct OwnedRequest {
    verb: Verb,
    key: Box<[u8]>,
    value: Box<[u8]>,
}

impl OwnedRequest {
    pub(crate) fn as_ref(&self) -> Request<'_> {
        Request { verb: self.verb, key: &self.key, value: &self.value }
    }

    pub(crate) fn size(&self) -> usize {
        self.key.len() + self.value.len() + size_of::<Self>()
    }
}

impl From<&Request<'_>> for OwnedRequest {
    fn from(request: &Request<'_>) -> Self {
        Self { verb: request.verb, key: request.key.into(), value: request.value.into() }
    }
}
