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

pub(crate) mod footer;
pub(crate) mod hash;
pub(crate) mod record;
pub(crate) mod region;

/// Version of all written structures: superblocks, region headers and trailers, snapshots. A tier with a higher one is refused.
///
/// Versions 1 and 2 are read: their regions keep their layout until they are used again. In version 2 stamps count seconds,
/// and items have no versions.
pub(crate) const VERSION: u16 = 3;
/// The first version: region headers without a copy and without a time, footers that begin with 24 bytes.
pub(crate) const VERSION_1: u16 = 1;

/// Bytes of a block: the unit of device I/O and of index locations.
pub(crate) const BLOCK: usize = 4096;

/// Reads a little-endian integer at `offset`.
macro_rules! read_int {
    ($type:ty, $bytes:expr, $offset:expr) => {{
        let offset = $offset;
        <$type>::from_le_bytes(
            $bytes[offset..offset + size_of::<$type>()].try_into().expect("the length is the type's"),
        )
    }};
}
pub(crate) use read_int;
