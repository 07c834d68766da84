//! Wakes an event loop from another thread.

use std::io;

use mio::Token;

/// Token of a loop's waker; connections and listeners have their index.
pub(crate) const WAKE: Token = Token(usize::MAX);

/// Wakes an event loop. Fails only if the kernel has no memory; then the loop's next event wakes it.
pub(crate) fn wake(waker: &mio::Waker) {
    if let Err(error) = waker.wake()
        && error.kind() != io::ErrorKind::WouldBlock
    {
        tracing::warn!(%error, "cannot wake an event loop");
    }
}
