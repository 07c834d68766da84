//! The feed on the wire: the command `changes`, what HTTP and it have in common, and who reads.

mod answers;
mod asked;
mod compress;
mod lines;
mod pace;
mod readers;
mod shared;
mod source;
mod stream;

pub(crate) use answers::{Answer, Answering, Answers};
pub(crate) use asked::Asked;
pub(crate) use compress::{Codec, Compressor};
pub(crate) use lines::{Line, resolve};
pub(crate) use readers::NAME_MAX;
pub use readers::{ReaderState, Readers};
pub(crate) use stream::{Changes, Progress};

use std::sync::Arc;

use moneta_store::{Cx, Store, component};

/// Since when a store remembers every delete that came to it, in milliseconds since the Unix epoch; 0: it remembers none. Readers are
/// told of it: what it had deleted before that, a feed from a later place does not take away elsewhere.
pub(crate) fn horizon(store: &Arc<dyn Store>) -> u64 {
    component::report(store, &Cx::outside()).stats.horizon
}
