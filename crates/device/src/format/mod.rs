//! The on-disk format.
//!
//! ```text
//!  device: | superblock A | superblock B | ... | region 0 | region 1 | ...           (see the `devices` module)
//!                                        1 MiB
//!  region: | header, 64 B | record | record | ...  free  ... | footer | trailer, 64 B |
//! ```
//!
//! While a region is being filled, a copy of its header stands in the place of the trailer.
//!
//! All integers are little-endian. A region's *sequence number* grows with each region begun and is part of every checksum in
//! it, so that leftovers of an earlier use of the region are never mistaken for new records.

pub mod footer;
pub mod hash;
pub mod integers;
mod layout;
pub mod record;
pub mod region;
pub mod stamp;

pub use layout::{BLOCK, VERSION, VERSION_1};
