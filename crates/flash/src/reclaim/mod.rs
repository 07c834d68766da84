//! Reclaiming: regions are emptied, and what of them was read is carried forward.

pub(crate) mod candidates;
pub(crate) mod moving;
pub(crate) mod reclaimer;
pub(crate) mod sweep;
pub(crate) mod work;
