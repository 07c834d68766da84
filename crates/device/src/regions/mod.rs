//! Reads regions from devices: whether one is in use, and which records it holds, whatever the damage.

#[cfg(feature = "testing")]
pub mod check;
pub mod identity;
pub mod list;
pub mod listing;
pub mod salvage;
pub mod scan;
pub mod survey;
