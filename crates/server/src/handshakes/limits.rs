//! Limits on handshakes.

use std::time::Duration;

/// Limits on handshakes under way, of all listeners with TLS together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HandshakeLimits {
    /// Threads for them, at least 1.
    pub threads: usize,
    /// Most that are under way at once, at least 1. Each counts as a connection.
    pub most: usize,
    /// How long one may take.
    pub timeout: Duration,
}

impl Default for HandshakeLimits {
    /// One thread signs some thousand times a second.
    fn default() -> Self {
        Self { threads: 1, most: 256, timeout: Duration::from_secs(5) }
    }
}
