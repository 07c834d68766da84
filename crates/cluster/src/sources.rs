//! Where topologies come from.
//!
//! A [`TopologySource`] says what it reads, again and again: a [`FileSource`], a [`DnsSource`], or what a control plane
//! implements. [`Guarded`] stands round one and passes on what can be believed; [`Watch`] does that on a thread.
//! `docs/topology.md` has the rules.

mod advice;
mod counts;
mod dns;
mod file;
mod guard;
mod kept;
mod source;
mod watch;

pub use advice::{Advice, Advised};
pub use counts::{SourceCounts, SourceStatus};
pub use dns::{DnsConfig, DnsSource, DnsZone};
pub use file::{FileSource, Format};
pub use guard::{GuardConfig, Guarded};
pub use source::{SourceError, TopologySource};
pub use watch::Watch;
