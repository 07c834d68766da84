//! The audit log: what operators and strangers did, as lines of JSON in a file that what rotates logs may rotate.
//!
//! ```text
//! {"time":"2026-01-31T12:00:00.123Z","what":"log_in_failed","from":"192.0.2.7:4711"}
//! {"time":"2026-01-31T12:00:01.456Z","what":"command","who":"ops","from":"192.0.2.8:4712","command":"flush_all"}
//! ```
//!
//! Who notes an [`Event`] never waits: lines go through a bounded queue to a thread that writes them. What finds the queue full, or
//! cannot be written because the disk is full, is lost, counted, and said in the log; the process goes on.
//!
//! | module | what it holds |
//! |---|---|
//! | [`event`] | what is noted, and its line |
//! | [`audit`] | the queue, and the thread behind it |

pub mod audit;
pub mod event;
mod time;
mod writer;

pub use audit::{Audit, Counts};
pub use event::Event;
