//! Handshakes of TLS, on threads between the acceptor and the workers.
//!
//! ```text
//!  acceptor ──> waiting ──> under way, at most so many ──done──> the worker with the fewest connections
//!     ^            │           │   │
//!     │            │           │   └─ failed, or out of time: closed
//!     │            │           └───── full: the oldest whose client has kept this side waiting makes room
//!     └── rests while it is full, and the kernel keeps what comes
//! ```
//! A signature costs more than a thousand requests, so these threads have a lower priority than the workers: a flood of handshakes
//! takes the time that open connections leave. What counts against a handshake is the time that its client has let pass, not that
//! of this side: neither idle clients nor those that send byte by byte keep others out, and of many that connect at once each is
//! served in its turn.

mod desk;
pub(crate) mod limits;
mod thread;

pub(crate) use desk::{Begun, Handshakes};
pub(crate) use thread::HandshakeThread;
