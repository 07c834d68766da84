//! How processes follow a control plane, `moneta control`: what it tells them comes over a feed, and what they are they register
//! there. docs/discovery.md has the protocol.
//!
//! All of it is beside what serves: threads with names, every wait with an end, every answer with a bound. A process that cannot
//! reach the control plane goes on with what it knows.
//!
//! | module | what it holds |
//! |---|---|
//! | [`control`] | requests to one of several servers |
//! | `items` | what a feed has told, and by which rules that is believed |
//! | [`follower`] | the thread that follows a feed |
//! | [`document`] | topologies as the control plane writes them |
//! | [`source`] | a feed as a source of topologies for `moneta_cluster` |
//! | [`identity`] | who a process is, over its restarts |
//! | [`properties`] | values of options, by scope |
//! | [`users`] | the users that the control plane hands on, kept in a file |
//! | [`instance`] | what a process registers, and how it renews that |
//! | [`worker`] | tasks of jobs: claimed, renewed, ended |
//! | [`metrics`](metrics()) | what the threads count |

pub mod control;
pub mod document;
pub mod follower;
pub mod identity;
pub mod instance;
mod items;
mod lines;
mod metrics;
mod pause;
pub mod properties;
pub mod source;
pub mod users;
pub mod worker;

pub use control::{Control, ControlError, ControlUrl};
pub use follower::{Follower, Query, View};
pub use identity::Identity;
pub use instance::{Instance, Registration, Report, Standing, Status};
pub use items::{Item, Items};
pub use metrics::{metrics, of_follower, of_registration, of_users};
pub use properties::{Place, Properties, Property};
pub use source::{ControlSource, Epochs};
pub use users::HandedUsers;
