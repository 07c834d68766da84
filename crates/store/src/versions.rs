//! What a store knows of versions beside its items: how it makes them, which deletes it remembers, and what a flush has taken.

mod floor;
mod standing;
mod tombstones;
mod versioning;

pub use floor::{Floor, Floors, takes_write};
pub use standing::{Standing, Verdict, digest, follows, follows_delete};
pub use tombstones::Tombstones;
pub use versioning::Versioning;
