//! Rows of files as items of servers: the nightly batch.
//!
//! ```text
//!  files ─▶ format: CSV, JSON lines, Parquet ─▶ cells ─▶ mapping ─▶ items ─▶ sink: nodes, each key to its own
//!                                                 │                            │
//!                                                 └────────▶ bad rows ◀────────┘
//!               checkpoint: chunk n begins at this row, under this version
//! ```
//!
//! A row is an ordinary write made when its chunk began. The checkpoint keeps the chunk's version before the first row of it is
//! written, so a row that is written again is the same write: servers that know versions answer that they have it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`files`] | which files, in which order, how they are compressed |
//! | [`cell`], [`mod@format`] | rows as cells |
//! | `changes` | changes of segments as a Parquet file |
//! | [`mapping`] | which columns make key, value, time to live and flags |
//! | [`checkpoint`] | how far a load is |
//! | `bad` | the file of bad rows |
//! | `sink` | where items go |
//! | [`mod@load`], [`totals`] | the job, and what became of its rows |

mod bad;
pub mod cell;
#[cfg(feature = "parquet")]
pub mod changes;
pub mod checkpoint;
pub mod error;
pub mod files;
pub mod format;
pub mod load;
pub mod mapping;
mod sink;
pub mod totals;

pub use error::LoadError;
pub use load::{LoadConfig, Loaded, load};
pub use mapping::Mapping;
pub use totals::Totals;
