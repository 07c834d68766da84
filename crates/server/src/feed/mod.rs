//! The feed on the wire: the command `changes`, what HTTP and it have in common, and who reads.

mod asked;
mod compress;
mod lines;
mod readers;
mod stream;

pub(crate) use asked::Asked;
pub(crate) use compress::{Codec, Compressor};
pub(crate) use lines::{Line, resolve};
pub(crate) use readers::NAME_MAX;
pub use readers::{ReaderState, Readers};
pub(crate) use stream::{Changes, Progress};
