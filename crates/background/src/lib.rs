//! What runs by itself in a process, beside its workers: named tasks, each on a thread, or on the one runtime that all share.
//!
//! A task is listed under its name from its start on: how many run, how many were started, how they ended, and what failed last
//! ([`list`](list())). A name is a word from the code, so that a process has few of them; a number at its end (`flash-read-3`) is
//! left out of the list. The list is the process's, as its threads are.
//!
//! ```text
//!  owner                      task
//!    │ start("cluster", ..) ──> runs on a thread of this name, looks at its `Run` where it waits
//!    │ Task ── stop() ────────> `run.is_stopped()`, and `run.sleep(..)` returns at once
//!    │      ── join(within) <── its end, good or by a panic
//!    ▼ dropped: the task runs on
//!  process ── stop_all(within) asks what still runs
//! ```

mod registry;
#[cfg(feature = "runtime")]
pub mod runtime;
mod signal;
mod task;

pub use registry::{Listed, list, stop_all, unwell};
pub use task::{Joined, Run, Task, start};
