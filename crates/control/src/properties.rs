//! Properties: values of options, and of names of users' own, that processes are told by the feed.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scope`] | which processes a value is for |
//! | [`value`] | a value as the ledger and the feed have it |
//! | [`schema`] | what values may be: by the options' declarations, or by schemas of users' own |
//! | [`known`] | all of an environment, and the keys of the ledger |
//! | [`changes`] | orders of changes, schemas, what is taken back |
//! | [`log`] | versions: who changed what, when and why |
//! | [`acked`] | what an instance says has become of what it was told |
//! | [`explain`] | what an instance has and why; how all instances stand |
//! | [`rollout`], [`rollouts`] | a value that comes to one instance, a zone, all; operators' wishes |
//! | [`watch`], `looked`, `rolling` | whether a stage does harm; what is known of it; what looks at it |

pub mod acked;
pub mod changes;
pub mod explain;
pub mod known;
pub mod log;
pub(crate) mod looked;
pub(crate) mod rolling;
pub mod rollout;
pub mod rollouts;
pub mod schema;
pub mod scope;
pub mod value;
pub mod watch;
