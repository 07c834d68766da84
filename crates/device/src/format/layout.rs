//! What all structures on devices share: their version, and the unit of device I/O.

/// Version of all written structures: superblocks, region headers and trailers, snapshots. A tier with a higher one is refused.
///
/// Versions 1 and 2 are read: their regions keep their layout until they are used again. In version 2 stamps count seconds,
/// and items have no versions.
pub const VERSION: u16 = 3;
/// The first version: region headers without a copy and without a time, footers that begin with 24 bytes.
pub const VERSION_1: u16 = 1;

/// Bytes of a block: the unit of device I/O and of index locations.
pub const BLOCK: usize = 4096;
