//! The index: which keys there are, and where their records lie.

pub(crate) mod location;
pub(crate) mod shard;
