//! Memory for values on their way: what waits to be sent, what was received of replies, and replies that are not taken yet.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::large::LargeKeys;

/// The memory of all servers of a process for values on their way, and its limit. Once that is reached, large values are neither
/// sent nor received any more: their requests fail. It also knows which keys have large values.
///
/// Each thread counts for itself, and adds what changed once a turn.
#[derive(Debug)]
pub struct ValueMemory {
    limit: AtomicUsize,
    held: AtomicUsize,
    /// The same keys are on several servers.
    pub(crate) large: LargeKeys,
}

impl ValueMemory {
    /// At most so many bytes.
    pub fn new(limit: usize) -> Self {
        Self { limit: AtomicUsize::new(limit), held: AtomicUsize::new(0), large: LargeKeys::default() }
    }

    /// Bytes that are held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// The limit, in bytes.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. What is held beyond a smaller one goes as its requests end.
    pub fn set_limit(&self, limit: usize) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Whether there is no room for a large value.
    pub(crate) fn is_full(&self) -> bool {
        self.held() >= self.limit()
    }

    /// Whether so much is held that large values are to be asked for one by one.
    pub(crate) fn is_scarce(&self) -> bool {
        self.held() >= self.limit() / 2
    }

    /// A thread holds `now` where it held `before`.
    pub(crate) fn change(&self, before: usize, now: usize) {
        // Wraps round as a signed number would.
        self.held.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
    }
}

/// As much as there is.
impl Default for ValueMemory {
    fn default() -> Self {
        Self::new(usize::MAX)
    }
}
