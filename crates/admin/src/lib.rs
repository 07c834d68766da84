//! The admin side of a process: HTTP on a separate port, for those who operate it.
//!
//! [`Admin`] listens, bounds what clients can hold, asks who may see what, and answers `/healthz`. Everything else it shows is a
//! [`Route`] that a part of the process registers: at the start, or when that part is there. One thread, the process's
//! runtime, serves all routes, so a page that may wait for something [`ask`]s it on a helper thread, for a bounded time.
//!
//! | module | what it holds |
//! |---|---|
//! | [`route`] | a page: a path, a method, and what answers it |
//! | [`right`] | who may ask for what |
//! | `connection`, `handshakes` | what becomes of an accepted socket; handshakes of TLS, on a thread of their own |
//! | [`stream`] | answers that go on |
//! | [`limits`] | what clients may hold |
//! | [`ask`](mod@ask) | questions that may hang, one of each kind at a time |
//! | [`answer`](mod@answer) | pages of JSON, and the answers of what is not there |
//! | [`places`] | places for connections, apart by kind of page |
//! | `hosts` | the names under which it answers |
//! | [`render`], [`format`](mod@format) | metrics as text for Prometheus |
//! | [`tally`] | what it counts of its own requests |
//! | [`tasks`] | background tasks, as metrics and text |
//! | [`usage`] | what the process uses of its machine |

mod admin;
pub mod answer;
pub mod ask;
mod connection;
mod error;
pub mod format;
mod handshakes;
mod hosts;
pub mod limits;
pub mod places;
mod process;
pub mod render;
pub mod right;
pub mod route;
mod service;
mod stall;
pub mod stream;
pub mod tally;
pub mod tasks;
pub mod usage;

pub use admin::{Admin, AdminConfig};
pub use ask::{FairTurn, Turn, Unanswered};
pub use error::AdminError;
pub use limits::{Limits, Places};
pub use right::{
    AccessRequest, Authorize, Certificate, ClientAddress, Decision, Denial, Guard, Principal, Right, Role,
};
pub use route::{Index, Route};
pub use tally::Tally;

/// For fuzzing.
#[cfg(feature = "testing")]
pub mod testing {
    pub use crate::service::answer;
}
