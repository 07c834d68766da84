//! A request that waits for the store.

use moneta_protocol::command::ReadVerb;
use moneta_store::Pending;
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};

use super::several::Several;

/// The future of a parked request, and what its reply depends on.
pub(super) enum Waiting {
    Read {
        verb: ReadVerb,
        request: Retrieve,
        /// Of the key.
        hash: u64,
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
