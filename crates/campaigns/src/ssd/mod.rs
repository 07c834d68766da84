//! A campaign on servers that keep their items on an SSD: everything docs/benchmarks.md tells of the SSD tier, in one run.
//!
//! The servers are started once, each with a separate folder on the same disk, and measured in turn: A fills, B fills; then in
//! every round A reads, B reads, and so on. While one is measured the other is idle. Before each load that reads, the page cache
//! is dropped, so that reads are the disk's.
//!
//! | module | what it holds |
//! |---|---|
//! | [`settings`], [`loads`] | what a campaign is told; the plans of its loads |
//! | [`subject`] | a server under test with its folder |
//! | [`counters`] | what a server says of its tiers in `stats`, under the names of either program |
//! | [`fill`], [`reads`], [`nightly`], [`overwrites`], [`restart`] | the parts of the campaign |
//! | [`engines`] | a separate campaign: any number of servers, one after the other |
//! | [`device`] | what a disk has written |
//! | [`fio`], [`page_cache`] | what the disk itself can do; emptying the page cache |
//! | [`report`] | the results as a table |

mod campaign;
mod counters;
mod device;
pub mod engines;
mod fill;
mod fio;
mod loads;
mod nightly;
mod overwrites;
mod page_cache;
mod readiness;
mod reads;
mod report;
mod restart;
mod settings;
mod subject;

pub use campaign::{check, run};
pub use report::{Report, Row};
pub use settings::{Part, Scale, Settings};
