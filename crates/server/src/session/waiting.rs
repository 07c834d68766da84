//! A request that waits for the store.

use moneta_protocol::command::ReadVerb;
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{Key, Pending, PendingReads};

/// The future of a parked request, and what its reply depends on.
pub(super) enum Waiting {
    Read {
        verb: ReadVerb,
        request: Retrieve,
        future: Pending,
    },
    Several(Several),
    Debug {
        future: Pending,
    },
    Write {
        request: Write,
        size: usize,
        future: Pending,
    },
    Delete {
        request: Delete,
        future: Pending,
    },
    /// The delete of a key after a write that was too large; it has no reply.
    Forget {
        future: Pending,
    },
    Arithmetic {
        request: Arithmetic,
        future: Pending,
    },
    Flush {
        future: Pending<()>,
    },
}

/// Reads that the store does together, none of which changes anything.
pub(super) struct Several {
    pub(super) verb: ReadVerb,
    pub(super) request: Retrieve,
    /// As sent, with a space behind each.
    keys: Vec<u8>,
    /// Where the one to be answered next begins.
    next: usize,
    pub(super) reads: PendingReads,
    /// Each is a `get` by itself, with `END` behind its reply.
    pub(super) pipelined: bool,
    /// Replies that are not sent yet.
    pub(super) written: Vec<u8>,
}

impl Several {
    pub(super) fn new(
        keys: &[Key<'_>],
        verb: ReadVerb,
        request: &Retrieve,
        pipelined: bool,
        reads: PendingReads,
    ) -> Self {
        let mut bytes = Vec::with_capacity(keys.iter().map(|key| key.bytes.len() + 1).sum());
        for key in keys {
            bytes.extend_from_slice(key.bytes);
            bytes.push(b' ');
        }
        Self { verb, request: *request, keys: bytes, next: 0, reads, pipelined, written: Vec::new() }
    }

    /// The key to be answered next.
    pub(super) fn key(&self) -> &[u8] {
        let rest = &self.keys[self.next..];
        &rest[..memchr::memchr(b' ', rest).unwrap_or(rest.len())]
    }

    /// It is answered.
    pub(super) fn answered(&mut self) {
        self.next += self.key().len() + 1;
    }

    /// Moves replies to `out`: those to one request when there are all, those to pipelined ones as soon as it is their turn.
    pub(super) fn move_replies(&mut self, all: bool, is_next: bool, out: &mut Vec<u8>) {
        if all || (is_next && self.pipelined) {
            out.append(&mut self.written);
        }
    }

    /// Whether this is one of the keys.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        self.keys.split(|byte| *byte == b' ').any(|other| other == key)
    }
}

impl Waiting {
    /// Whether its outcome is an item.
    pub(super) fn reads(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::Several(_) | Self::Debug { .. })
    }

    /// Whether it has an effect that later requests on the key can see.
    pub(super) fn changes(&self) -> bool {
        match self {
            Self::Read { request, .. } => changes(request),
            Self::Several(_) | Self::Debug { .. } => false,
            Self::Write { .. }
            | Self::Delete { .. }
            | Self::Forget { .. }
            | Self::Arithmetic { .. }
            | Self::Flush { .. } => true,
        }
    }
}

/// Whether the read has an effect on the key: it touches, may create an item, or may win the right to recache.
pub(super) fn changes(request: &Retrieve) -> bool {
    request.touch.is_some() || request.vivify.is_some() || request.recache.is_some() || request.claim
}
