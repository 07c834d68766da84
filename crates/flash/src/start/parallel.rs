//! Work on all threads, for a start.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::inner::Inner;

/// How many threads a start uses.
pub(crate) fn threads(inner: &Inner) -> usize {
    inner.config.threads.clamp(1, 64)
}

/// Runs `work` for every number below `count`, on all threads.
pub(crate) fn in_parallel(inner: &Inner, count: usize, work: impl Fn(usize) + Sync) {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..threads(inner) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= count {
                        break;
                    }
                    work(number);
                }
            });
        }
    });
}
