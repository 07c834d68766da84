//! The life of a connection.
//!
//! ```text
//!            ┌───────────────── lost, refused, silent ──────────────────┐
//!            v                          ^                  ^            │
//!  ───>  [ Down ] ── attempt ──> [ Connecting ] ──> [ Probing ] ──> [ Up ]
//! ```
//!
//! There is no way from Down to Up past a probe: a server whose kernel accepts connections while it hangs is not up. If it
//! answers probes but left requests unanswered, a connection that comes up is on trial: until its trial request is
//! answered, it takes no others.

use std::time::Instant;

use moneta_client::wire::{Dialect, Probe};

/// The stage of a connection.
#[derive(Debug)]
pub(crate) enum Stage {
    /// No connection, and the next attempt is not before this moment, unless the server was seen to be back.
    Down {
        retry_at: Instant,
        /// [`crate::shared::ServerShared::recoveries`] as of then.
        recoveries: u64,
    },
    /// Both sides are shaking hands.
    Connecting { until: Instant },
    /// The server is being asked what it understands.
    Probing { until: Instant, probe: Probe },
    /// Requests go out.
    Up { dialect: Dialect, since: Instant },
}
