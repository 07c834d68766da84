//! What every engine on an embedded key-value library shares: everything but the library.
//!
//! A library keeps bytes under keys ([`Database`]); [`Embedded`] makes of it a store that answers every cache command with
//! exact expiry, flags, CAS values and marks, and a tier that another one can lie above. `docs/engines.md` tells how to add
//! one.

mod batch_context;
mod counters;
mod database;
mod deletes;
mod engine;
mod error;
mod inner;
mod maintenance;
mod manifest;
mod newer;
mod perform;
mod queue;
pub mod record;
mod sequence;
mod settings;
mod shared;
#[cfg(feature = "testing")]
pub mod testing;
mod untrusted;
mod upkeep;
mod walk;
mod writer;

pub use database::{Batch, Database};
pub use engine::Embedded;
pub use error::{EmbeddedError, Failure};
pub use manifest::Manifest;
pub use record::Header;
pub use settings::{Identity, Settings};
pub use shared::{EngineShared, Life};
