//! The devices of a tier: opens, checks and locks them, and keeps the tier's state in their superblocks.
//!
//! All checks come before the first write. A tier that starts empty is a new tier with a new identity, so that old contents of
//! the regions are ignored.

mod inspect;
mod layout;
mod lock;
mod named_hash;
mod opened;
mod opening;
mod place;
mod room;
mod size;
mod state;
mod superblock;
mod superblocks;
#[cfg(test)]
mod tests;
mod tier;

pub use opened::Devices;
pub use opening::Opened;
pub use state::TierState;
