//! Finds where two copies of the same data differ, and repairs it: between nodes, copies of a cluster, or regions.
//!
//! ```text
//!   digests of all nodes of A and of B ──▶ buckets that differ ──▶ their items on both sides ──▶ keys that differ
//!                                                                                                    │
//!        the newer version is copied · the later end of one version · a delete that one side remembers
//!        what one side lacks and has not deleted stays as it is: it was evicted there
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`side`] | a node, a copy, or a region with one copy that is compared |
//! | [`digest`] | what nodes tell of what they hold |
//! | [`compare`] | keys that differ, and how |
//! | [`mend`] | what is done about them |
//! | [`done`] | how far a repair is, over restarts |
//! | [`mod@repair`] | the run |
//! | [`report`] | what was found |

pub mod compare;
pub mod digest;
pub mod done;
pub mod mend;
pub mod repair;
pub mod report;
pub mod side;

pub use repair::{Goal, RepairConfig, RepairError, Watch, repair};
pub use report::{Cause, Report};
pub use side::{Side, SideNode};
