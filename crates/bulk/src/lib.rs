//! Moves items in bulk: from servers into files, from files into servers, from server to server.
//!
//! ```text
//!   sources                         feed's pump                       sinks
//!   a node's feed ─┐                                          ┌─ a chain of segments
//!   a list of keys ┼─▶ metered: counted, short lives ended ──▶┤
//!   a chain ───────┘                                          └─ nodes: by version, or created only
//! ```
//!
//! What a source holds is its *base*. A node with an SSD tier tells it by its feed, read from the begin. Any other server lists its
//! keys, and is asked for their values ([`walk`]). What happens meanwhile and later are *changes*, from a cursor of the feed of before
//! the base was begun. A server without a feed has a base alone.
//!
//! | module | what it holds |
//! |---|---|
//! | [`server`] | what a server is: versions, feed, tier |
//! | [`walk`], `keys`, `queue`, `values` | a server's items by its list of keys |
//! | [`cachemover`] | the files of Netflix's Cachemover |
//! | [`metered`] | a source whose changes are counted, and trimmed |
//! | [`create`], [`target`] | where items go: nodes, each key to its own |
//! | [`throttle`], [`law`], [`governor`] | how fast a job goes, and who is to make it go slower |
//! | `lives`, `nodes` | whether targets still have what they were given, and would after a crash |
//! | [`stages`] | where its time goes |
//! | `passage`, `beside` | one run of the pump, and one beside another |
//! | `populating`, `share` | several processes that populate from one archive |
//! | [`mod@dump`], [`mod@populate`], [`mod@copy`] | the jobs |

mod beside;
pub mod cachemover;
pub mod copy;
pub mod create;
pub mod dump;
pub mod error;
pub mod governor;
mod keys;
pub mod law;
mod lives;
pub mod metered;
mod moment;
mod nodes;
mod passage;
pub mod populate;
mod populating;
mod queue;
pub mod server;
mod share;
pub mod stages;
pub mod target;
pub mod throttle;
mod values;
pub mod walk;
pub mod watch;
pub mod which;

pub use copy::{CopyConfig, copy};
pub use dump::{DumpConfig, dump};
pub use error::BulkError;
pub use governor::RateConfig;
pub use lives::KnownLives;
pub use populate::populate;
pub use populating::{PopulateConfig, Populated, Share};
pub use server::{Life, Server};
pub use stages::Stages;
pub use target::{Place, Written};
pub use throttle::Throttle;
pub use walk::WalkSource;
pub use watch::{Counters, Counts, Watch};
pub use which::Which;
