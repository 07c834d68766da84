//! The log: open regions that take appends, the table of all regions, the stamps of records.

pub(crate) mod buffer;
pub(crate) mod forgotten;
pub(crate) mod regions;
pub(crate) mod sealed;
pub(crate) mod sequence;
pub(crate) mod writer;
