//! The control plane: which instances there are, which topologies apps have, and a feed of both, over HTTP, from a ledger.
//!
//! ```text
//!  pages ──> plans ──> commits ──> ledger ──follow──> state ──> journal ──> readers of feeds
//!    │                                                  ^
//!    └── renewals ──> leases <── keeper ── probes       └── what pages answer from
//! ```
//! What is written down goes through the ledger and comes back by following it; what is answered is read from the state, in RAM. A
//! process that is not in step with its ledger refuses: it never answers by less than there is. Renewals, and what comes with them,
//! are in RAM alone.
//!
//! | module | what it holds |
//! |---|---|
//! | `start` | the tasks |
//! | [`control`] | how the ledger is followed |
//! | [`state`] | what the ledger has, decoded |
//! | [`journal`] | what readers of feeds are told, encoded once |
//! | `feed` | a reader of a feed |
//! | [`record`] | what an instance says of itself |
//! | [`instances`] | registration, renewals, leave, overrides |
//! | [`leases`] | who renews, who is suspect, who is away: functions of a clock |
//! | `member`, `members`, `belonging`, `handing` | several processes on one ledger: who keeps the leases, and renewals that reach another |
//! | `keys`, `compared` | what the state was made of, and whether that is as the ledger is |
//! | `keeper`, `probe` | what looks at leases, and asks those that are silent |
//! | [`slots`] | who holds a slot |
//! | [`properties`] | values of options and of users' own names, their versions and rollouts |
//! | [`topology`], `topologies` | the document and its changes; committing them |
//! | [`jobs`] | long work in tasks, which workers take on |
//! | [`commits`] | plans, their commits, and what becomes of unknown outcomes |
//! | [`audit`] | who did what |
//! | [`backup`] | all of it, in a file |
//! | [`names`], `decode` | names and keys, and what they hold |
//! | [`objects`], [`query`] | what operators are shown, as objects; which of them meet a predicate |
//! | [`history`] | what was at a time |
//! | `look` | looks at the state from above |
//! | [`pages`] | the routes |
//! | [`eureka`] | the same for clients of Eureka |
//! | [`metrics`](mod@metrics) | metrics, and readiness |

pub mod audit;
pub mod backup;
mod belonging;
pub mod commits;
mod compared;
pub mod control;
mod decode;
pub mod error;
pub mod eureka;
mod feed;
mod handing;
pub mod history;
pub mod instances;
pub mod jobs;
pub mod journal;
mod keeper;
mod keys;
pub mod leases;
mod look;
mod member;
mod members;
pub mod metrics;
pub mod names;
pub mod objects;
pub mod pages;
mod probe;
pub mod properties;
pub mod query;
pub mod record;
mod shared;
pub mod slots;
mod start;
pub mod state;
mod topologies;
pub mod topology;

pub use commits::Who;
pub use control::{Access, Changes, Control, ControlConfig, Told, Users};
pub use error::Refusal;
pub use member::Membership;
pub use metrics::{Watched, metrics};
pub use start::Running;
