//! Whether a large value is half through on a connection: while one is, small ones that come from the same server wait behind it
//! on the way, and how long that takes says nothing of the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::shared::ServerShared;

/// Holds one of the server's [`crate::counters::RemoteCounters::carrying`] while a large value is half through on its connection.
#[derive(Default)]
pub(super) struct Carrying(pub(super) Option<Arc<ServerShared>>);

impl Drop for Carrying {
    fn drop(&mut self) {
        if let Some(shared) = self.0.take() {
            shared.counters.carrying.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
