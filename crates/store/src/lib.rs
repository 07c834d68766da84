//! What an item is, what a store can do with one, and how long things live.
//!
//! A [`Store`] answers cache commands: an engine, a tiered pair, a remote server, a whole cluster. A layer is a store
//! wrapped round a store. The request types are the protocol crate's [`moneta_protocol::request`]; the protocol itself is
//! not known here.

mod calls;
pub mod change;
mod chunked;
pub mod component;
mod context;
mod error;
mod key;
mod key_hash;
#[cfg(feature = "testing")]
pub mod model;
mod number;
pub mod offload;
mod op;
mod outcome;
mod progress;
mod reactor;
pub mod reading;
mod stats;
mod steps;
mod store;
mod stripes;
#[cfg(feature = "testing")]
pub mod suite;
#[cfg(feature = "testing")]
pub mod testing;
mod tiered;
mod time;
mod walk;

pub use calls::Calls;
pub use chunked::{Chunked, ChunkedConfig};
pub use component::{Component, Health, Observer, Parts, Report};
pub use context::{Cx, Policy};
pub use error::{ErrorKind, StoreError};
pub use key::{Key, OwnedKey};
pub use key_hash::{KeyHash, SECRET_BYTES};
pub use moneta_protocol::aligned;
pub use moneta_protocol::item::{Expiry, Item, ItemMeta, ItemRef, OwnedValue, Rest, Value};
pub use moneta_protocol::request;
pub use number::{NUMBER_VALUE_MAX, parse_number};
pub use op::{Op, OwnedOp, Put};
pub use outcome::{Deleted, Lookup, Number, Outcome, Pending, Step, Written};
pub use progress::Progress;
pub use reactor::{Reactor, Reactors, Slot};
pub use stats::{Figure, FigureKind, FlashStats, Latency, StoreStats, TierStats};
pub use store::{Store, Unseen, Visit};
pub use tiered::{Promotion, Tiered, TieredConfig};
pub use time::Clock;
pub use walk::{Cursor, Walked, Walking};
