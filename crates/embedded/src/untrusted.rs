//! Keys whose last change the library refused, and then would not even remove: what it still has of them is out of date and
//! must not be served. They are misses until the library takes a write of theirs, or removes them.
//!
//! This is known to the process alone. If it ends while the library refuses writes, the next one may serve what is there.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;

/// Most keys that are remembered. With more, every key is in doubt until all is flushed.
const KEYS_MAX: usize = 1 << 18;

/// The keys in doubt.
#[derive(Debug, Default)]
pub(crate) struct UntrustedKeys {
    /// Whether there are any: what everybody looks at.
    any: AtomicBool,
    state: Mutex<UntrustedState>,
}

#[derive(Debug, Default)]
struct UntrustedState {
    keys: HashSet<Box<[u8]>>,
    all: bool,
    /// Whether there have been too many since the last flush of all began.
    all_again: bool,
}

impl UntrustedKeys {
    /// Whether there are any.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// Whether every key is.
    pub(crate) fn all(&self) -> bool {
        self.any() && self.state.lock().all
    }

    /// Whether what the library has of a key may be served.
    #[inline]
    pub(crate) fn has(&self, key: &[u8]) -> bool {
        self.any() && {
            let state = self.state.lock();
            state.all || state.keys.contains(key)
        }
    }

    /// Takes note of a key.
    pub(crate) fn add(&self, key: &[u8]) {
        let mut state = self.state.lock();
        if state.keys.len() < KEYS_MAX {
            state.keys.insert(key.into());
        } else {
            state.all = true;
            state.all_again = true;
        }
        self.any.store(true, Ordering::Release);
    }

    /// The library has taken writes of these keys.
    pub(crate) fn settle(&self, keys: &HashSet<Box<[u8]>>) {
        if keys.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        keys.iter().for_each(|key| _ = state.keys.remove(key));
        let any = state.all || !state.keys.is_empty();
        self.any.store(any, Ordering::Release);
    }

    /// Everything is about to be flushed, as all keys are in doubt: those that are from now on are told apart.
    pub(crate) fn flush_begins(&self) {
        let mut state = self.state.lock();
        state.keys.clear();
        state.all_again = false;
    }

    /// What was in doubt when it began has been flushed.
    pub(crate) fn flush_ended(&self) {
        let mut state = self.state.lock();
        state.all = state.all_again;
        self.any.store(state.all || !state.keys.is_empty(), Ordering::Release);
    }

    /// Some of the keys, no more than `most`.
    pub(crate) fn some(&self, most: usize) -> Vec<Box<[u8]>> {
        if self.any() { self.state.lock().keys.iter().take(most).cloned().collect() } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_untrusted_until_it_is_settled() {
        let untrusted = UntrustedKeys::default();
        assert!(!untrusted.has(b"key"));
        untrusted.add(b"key");
        assert!(untrusted.has(b"key") && !untrusted.has(b"other"));
        assert_eq!(untrusted.some(10), [Box::from(*b"key")]);
        untrusted.settle(&untrusted.some(10).into_iter().collect());
        assert!(!untrusted.any());
    }

    #[test]
    fn more_than_can_be_remembered_are_all() {
        let untrusted = UntrustedKeys::default();
        (0..=KEYS_MAX as u64).for_each(|key| untrusted.add(&key.to_le_bytes()));
        assert!(untrusted.all() && untrusted.has(b"any key"));
        untrusted.settle(&untrusted.some(usize::MAX).into_iter().collect());
        assert!(untrusted.has(b"any key"), "it is not known which");
        untrusted.flush_begins();
        untrusted.add(b"key");
        assert!(untrusted.has(b"any key"), "it may fail");
        untrusted.flush_ended();
        assert!(untrusted.has(b"key") && !untrusted.has(b"any key"), "what failed during the flush is not covered");
    }
}
