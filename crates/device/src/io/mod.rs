//! Device I/O: the device trait, and reads for requests (a ring for each worker, or a pool).

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
pub mod running;
mod shared;
mod syncs;
#[cfg(feature = "testing")]
pub mod testing;
#[cfg(test)]
mod tests;

pub use counters::ReadCounters;
pub use media::{FileMedia, Media};
pub use moneta_store::aligned::{Aligned, BLOCK_BYTES};
pub use patience::look_every;
pub use reader::Reader;
pub use syncs::{SyncsCounted, in_doubt};
