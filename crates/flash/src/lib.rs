//! The SSD engine: append-only regions on devices, an index in RAM that knows no keys, nothing ever compacted.
//!
//! Records are packed into regions that are filled in RAM and written in large aligned writes. An overwrite or a delete
//! changes the index and appends; what is overwritten stays where it is until its region is the oldest and is emptied whole,
//! its recently read records carried forward. So a device writes what clients write, once.

mod config;
mod devices;
mod error;
mod io;

pub use config::{DeviceConfig, Durability, FlashConfig, Io};
pub use error::FlashError;
pub use io::Media;
#[cfg(feature = "testing")]
pub use io::testing;
