//! Carries what changes in one region to the cluster of another one: the relay stands in the region that receives.
//!
//! ```text
//!   the other region                            this region
//!   copy a: node ──stream──▶ pump ─▶ workers by key ─┐
//!           node ──stream──▶ pump ─▶ workers by key ─┴▶ cluster, mode newer ─▶ nodes of all zones
//!   copy b: read when a node of a fails                      │ all before a mark has ended
//!                                                            ▼
//!                                                  progress, in a file: the moment up to which all is here
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | what is carried, from where, and how |
//! | [`relay`] | a relay that runs: what it is given, how it starts and ends |
//! | `supervisor`, `copies` | which copy is read, and what becomes of its streams |
//! | `view`, `due` | what of that others see; what is missing and to be compared |
//! | `stream` | one node's feed, from its begin to its end |
//! | `dated` | changes that know since when they were current |
//! | `sink`, `worker`, [`apply`] | changes on their way into the cluster |
//! | [`share`], [`leases`] | which keys a relay carries, where several share them |
//! | [`topic`], [`message`] | a topic of Kafka between the regions, and what is written in it |
//! | `part`, [`progress`] | how far all this has come, over restarts |
//! | [`counts`], `metrics`, `page` | what operators see |
//! | [`probe`] | keys written there and read here |

pub mod apply;
pub mod config;
mod copies;
pub mod counts;
mod dated;
mod due;
pub mod leases;
pub mod message;
mod metrics;
mod page;
mod part;
pub mod probe;
pub mod progress;
pub mod relay;
pub mod share;
mod sink;
mod stream;
mod supervisor;
pub mod topic;
mod view;
mod worker;

pub use config::{LagMax, Mode, RelayConfig};
pub use due::{Due, DueCause, Gapped, OnDue};
pub use leases::LeaseConfig;
pub use metrics::{REPAIRS, metrics};
pub use page::{PATH, numbers, route};
pub use relay::{Relay, RelayError, Sharing};
pub use share::Share;
