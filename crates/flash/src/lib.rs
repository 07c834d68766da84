//! The SSD engine: append-only regions on devices, an index in RAM without keys, no compaction.
//!
//! Records are packed into regions that are filled in RAM and written in large aligned writes. An overwrite or a delete
//! changes the index and appends; what is overwritten stays where it is until its region is the oldest and is emptied whole,
//! its recently read records carried forward. So a device writes what clients write, once.

mod attempt;
mod batches;
mod buffer;
mod buried;
mod candidates;
mod config;
mod counters;
mod debts;
mod deletes;
mod devices;
mod engine;
mod entries;
mod error;
mod feed;
mod floors;
mod flush;
mod flusher;
mod for_flusher;
mod forgotten;
mod format;
mod identity;
mod inner;
pub mod inspect;
mod io;
mod list;
mod listing;
mod location;
mod log;
mod lookup;
mod moving;
mod newer;
mod operate;
mod owing;
mod parallel;
mod presence;
mod reclaim;
mod reclaim_work;
mod recovery;
mod regions;
mod report;
mod running;
mod salvage;
mod scan;
mod sealed;
mod sequence;
mod shard;
mod snapshot;
mod survey;
mod sweep;
mod threads;
mod unreadable;
mod walk;

pub use config::{DeviceConfig, Durability, FlashConfig, ITEMS_PER_REGION, Io};
pub use engine::Flash;
pub use error::FlashError;
pub use io::Media;
pub use report::{FlashStats, metrics};
#[cfg(feature = "testing")]
pub mod testing {
    //! What tests of this crate, of stacks on it, and fuzzing need.

    pub use crate::io::testing::*;
    pub use crate::scan::check_region;
}
