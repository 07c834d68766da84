//! Flash regions on devices: opens and locks the devices of a tier, reads and writes their blocks, and knows the layout of what
//! is on them.
//!
//! The engine stands on this crate, and so does what reads regions without an engine: inspection, and backups of the log.

mod config;
pub mod devices;
mod error;
pub mod format;
pub mod inspect;
pub mod io;
pub mod regions;

pub use config::{DeviceConfig, Io, TierConfig};
pub use error::TierError;
#[cfg(feature = "testing")]
pub mod testing {
    //! Devices for tests, and a check of the region reader for property tests and fuzzing.

    pub use crate::io::testing::*;
    pub use crate::regions::check::check_region;
}
