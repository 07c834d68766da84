//! The memory engine: all of it in RAM, all of it inside one limit.
//!
//! A store is cut into shards by hash; a shard is a lock, a compact index and two logs of segments. The logs are the two
//! queues of S3-FIFO. There are no slab classes and no allocation per item: a record is 10 bytes of header, the key and
//! the value, and 9 bytes of index.
//!
//! The way of a read: [`Memory`] picks the shard and locks it; `shard` finds the key through the index; `read` shows the
//! value where it lies. Of a write: `write` decides what is to be stored, `reclaim` has seen to it that there is room,
//! `log` lays out the record, and the index is pointed to it.

mod arithmetic;
mod config;
mod engine;
mod flush;
mod ghosts;
mod hash_bits;
mod large;
mod log;
mod new_item;
mod newer;
mod numbers;
mod probation;
mod read;
mod reclaim;
mod record;
mod relocate;
mod report;
mod segments;
mod shard;
mod sync;
#[cfg(feature = "testing")]
mod verify;
mod write;

pub use config::{ConfigError, Eviction, MemoryConfig};
pub use engine::Memory;
pub use report::{MemoryStats, metrics};
