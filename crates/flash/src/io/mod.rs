//! Reading and writing devices: aligned buffers, the device trait, and what reads for requests (a ring a thread, or a pool).

mod aligned;
mod bell;
mod counters;
mod entry;
#[cfg(test)]
mod hanging;
mod kinds;
mod media;
mod patience;
mod pool;
mod reader;
mod ring;
mod syncs;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;

pub use aligned::Aligned;
pub use counters::ReadCounters;
pub use media::{FileMedia, Media};
pub(crate) use patience::look_every;
pub use reader::Reader;
pub use syncs::SyncsCounted;

/// What offsets, lengths and addresses of device reads and writes are multiples of, in bytes.
pub const BLOCK_BYTES: usize = 4096;
