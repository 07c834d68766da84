//! The client's side of the three protocols: requests to bytes, bytes to answers. No I/O and no clock, so it serves
//! non-blocking connections (the store `moneta_remote`) and blocking ones ([`blocking`]) alike.
//!
//! A request is encoded after others; what [`encode`] returns is kept and given to [`decode`] when its turn in the stream of
//! replies has come. Every reply of meta and binary carries the number that its request was given (`O`, opaque), and a text
//! reply with an item its key: a reply that does not match its request breaks the connection ([`Broken`]) and is discarded.

mod answer;
mod binary;
pub mod blocking;
pub mod board;
mod coding;
mod dialect;
pub mod dump;
mod failure;
mod limits;
mod line;
pub mod log_in;
mod meta;
mod meta_reply;
mod number;
mod probe;
mod request;
mod text;
pub mod tokens;

pub use answer::{Answer, Decoded, Refusal, Seen, expiry};
pub use coding::{decode, encode};
pub use dialect::{Dialect, Protocol};
pub use failure::{Broken, NO_VERSIONS, Unsupported};
pub use limits::{LINE_MAX, LIST_MAX, VALUE_LIMIT};
pub use probe::{PROBE_KEY, Probe, Probed};
pub use request::{Expect, Read, Request, Verb};
