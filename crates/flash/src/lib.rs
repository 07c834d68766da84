//! The SSD engine: append-only regions on devices, an index in RAM without keys, no compaction.
//!
//! Records are packed into regions that are filled in RAM and written in large aligned writes. An overwrite or a delete
//! changes the index and appends; what is overwritten stays where it is until its region is the oldest and is emptied whole,
//! its recently read records carried forward. So a device writes what clients write, once.

mod config;
mod counters;
mod deletes;
mod engine;
mod feed;
mod flusher;
mod for_flusher;
mod index;
mod inner;
mod log;
mod operations;
mod presence;
mod reclaim;
mod report;
mod start;
mod threads;
mod walk;

pub use config::{Durability, FlashConfig, ITEMS_PER_REGION};
pub use engine::Flash;
pub use moneta_device::io::Media;
#[cfg(feature = "testing")]
pub use moneta_device::testing;
pub use moneta_device::{DeviceConfig, Io, TierError};
pub use report::{FlashStats, metrics};
