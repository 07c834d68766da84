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
}

/// A request that is in the stream, in the order of the replies.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) target: Target,
    pub(crate) expect: Expect,
    pub(crate) begun: Instant,
    /// Asking twice is as good as asking once.
    pub(crate) idempotent: bool,
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
