//! The compact hash index both engines use: 8 bytes a slot, no keys.
//!
//! A slot holds a tag (bits of the key's hash) and a payload of the engine's (where the record lies, how often it was
//! hit). The index says which slots *may* be a key's; the engine looks at the record to know. It grows a bucket at a time,
//! so no insert pays for a rehash, and memory follows the number of entries: about 9.2 bytes each.
//!
//! Three known ideas together:
//! - linear hashing (Litwin, VLDB 1980) for growth by one bucket;
//! - two choices with displacement (cuckoo hashing: Pagh & Rodler 2001; buckets of 8: Dietzfelbinger & Weidling 2007) so
//!   that buckets fill to 87 % without overflow chains, and so that the half of the buckets not yet split in a round of
//!   linear hashing can pass what is too much for them to their items' other choice;
//! - partial keys (Fan, Andersen & Kaminsky, MemC3, NSDI 2013): both choices follow from the slot alone, so neither
//!   splitting nor displacing ever reads a record. That matters where records are on an SSD.

mod address;
mod image;
mod index;
mod slot;
mod walk;

pub use index::{Full, Index, Position};
pub use walk::Walk;
