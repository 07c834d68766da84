//! What every request makes of an item: pure functions from the version that is there to the one that is to be, for engines
//! and layers that read and store whole items.
//!
//! Nothing here allocates. The semantics are those of the model (`moneta_testkit::model`), which is written independently, so
//! that `tests/change.rs` can hold the two against each other.

mod content;
mod item;
mod read;
mod write;

pub use content::Content;
pub use item::{Old, Version};
pub use read::{Reading, read, wins_recache};
pub use write::{Computed, Removal, arithmetic, delete, needs_old, write};
