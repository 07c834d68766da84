//! Reads that the store does together, while they wait: the keys of a `get`, or pipelined `get`s.

use std::cell::RefCell;

use moneta_protocol::command::ReadVerb;
use moneta_store::request::Retrieve;
use moneta_store::{OwnedKeys, PendingReads};

/// Why a classic `get` failed, in place of its `END`: its list of values has no place for an error.
pub(super) type Failure = Box<str>;

/// Largest buffer of replies that is kept for reuse.
const SPARE_BYTES: usize = 64 << 10;
/// Most buffers that a thread keeps.
const SPARE_BUFFERS: usize = 16;

thread_local! {
    /// Empty buffers for replies to reads of several keys.
    static SPARE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Reads that the store does together, none of which changes anything.
pub(super) struct Several {
    pub(super) verb: ReadVerb,
    pub(super) request: Retrieve,
    pub(super) keys: OwnedKeys,
    /// The one to be answered next.
    pub(super) next: usize,
    pub(super) reads: PendingReads,
    /// Each is a `get` by itself, with `END` after its reply.
    pub(super) pipelined: bool,
    /// Replies that are not sent yet.
    pub(super) written: Vec<u8>,
    /// Why the first one failed of those whose replies have no place for that.
    pub(super) failure: Option<Failure>,
}

impl Several {
    /// Keeps what `out` has from `start` on until the rest is there.
    pub(super) fn hold(&mut self, out: &mut Vec<u8>, start: usize) {
        if out.len() == start {
            return;
        }
        if self.written.capacity() == 0 {
            self.written = SPARE.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        self.written.extend_from_slice(&out[start..]);
        out.truncate(start);
    }

    /// Whether replies wait for those after them, though no request needs them all at once.
    #[inline]
    pub(super) fn holds_back(&self) -> bool {
        self.pipelined && !self.written.is_empty()
    }

    /// Gives out what is held back.
    pub(super) fn release(&mut self, out: &mut Vec<u8>) {
        if self.holds_back() {
            out.append(&mut self.written);
        }
    }

    /// Whether this is one of the keys.
    pub(super) fn has(&self, key: &[u8]) -> bool {
        (0..self.keys.len()).any(|index| self.keys.key(index).bytes == key)
    }
}

impl Drop for Several {
    fn drop(&mut self) {
        let mut written = std::mem::take(&mut self.written);
        if (1..=SPARE_BYTES).contains(&written.capacity()) {
            written.clear();
            SPARE.with_borrow_mut(|spare| {
                if spare.len() < SPARE_BUFFERS {
                    spare.push(written);
                }
            });
        }
    }
}
