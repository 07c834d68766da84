//! Compares two servers that speak memcached's protocols, or two copies of a cluster, key by key: two tiers, an old cache and a
//! new one.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`](VerifyConfig) | what to compare and how |
//! | [`verify`](Verify) | the run: walk, compare, look for what only B has |
//! | `walk`, `spool`, `list` | where keys come from |
//! | [`place`](ComparedPlace) | what stands on a side: a server, or the nodes of a copy |
//! | `line`, `pair` | connections, and looking at the same keys on both sides at once |
//! | `comparison` | what differs between two sightings of a key |
//! | `suspects` | keys that looked different, until they have done so for long enough |
//! | `worker`, `repair` | a thread that compares, and what it writes |
//! | `pace` | the limit of keys a second |
//! | [`report`](Report) | what was found |
//!
//! Memory is bounded however many keys there are. Threads, no async runtime.

mod comparison;
mod config;
mod error;
mod line;
mod list;
mod observer;
mod pace;
mod pair;
mod place;
mod repair;
mod report;
mod source;
mod spool;
mod suspects;
mod tally;
#[cfg(feature = "testing")]
pub mod testing;
mod text;
mod verify;
mod walk;
mod worker;

pub use config::{Direction, KeyFilter, Keys, Repair, VerifyConfig};
pub use error::{Side, VerifyError};
pub use moneta_store::escape::escape_key;
pub use observer::{Observer, Phase, Progress, Unwatched};
pub use place::ComparedPlace;
pub use report::{Conclusion, Counts, Endpoint, Example, Kind, Report, Sighting};
pub use verify::Verify;
