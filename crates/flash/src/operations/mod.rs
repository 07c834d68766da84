//! Operations on keys: attempts under the lock of a shard, and what they look up and enter.

pub(crate) mod attempt;
pub(crate) mod entries;
pub(crate) mod lookup;
pub(crate) mod newer;
pub(crate) mod operate;
