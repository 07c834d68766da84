//! The feed on the wire: the command `changes`, and who reads. What is told, and how, is of [`moneta_feed`].

mod answers;
mod readers;
mod shared;
mod source;
mod stream;

pub(crate) use answers::{Answer, Answering, Answers};
pub use readers::{ReaderState, Readers};
pub(crate) use stream::{Changes, Progress};
