//! Which bits of a key's hash choose its shard, and which a slot of the index keeps.

use crate::segments::Location;

/// Topmost bits of a hash that choose the shard, at most.
pub(crate) const SHARD_BITS_MAX: u32 = 8;
/// Bits of a hash that a slot keeps: what the location and the hit count leave.
pub(crate) const TAG_BITS: u32 = 63 - Location::BITS - HIT_BITS;
/// Bits of a slot that count its item's hits.
pub(crate) const HIT_BITS: u32 = 2;
