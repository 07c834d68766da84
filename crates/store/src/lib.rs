//! What an item is, what a store can do with one, and how long things live.
//!
//! A [`Store`] answers cache commands: an engine, a tiered pair, a remote server, a whole cluster. A layer is a store
//! wrapped round a store. The request types are the protocol crate's [`moneta_protocol::request`]; the protocol itself is
//! not known here.

mod any;
pub mod change;
mod chunked;
mod error;
mod key;
mod key_hash;
#[cfg(feature = "testing")]
pub mod model;
mod number;
pub mod offload;
mod outcome;
mod progress;
pub mod reading;
mod stats;
mod steps;
mod store;
mod stripes;
#[cfg(feature = "testing")]
pub mod suite;
mod tiered;
mod time;

pub use any::Any;
pub use chunked::{Chunked, ChunkedConfig};
pub use error::{ErrorKind, StoreError};
pub use key::{Key, OwnedKey};
pub use key_hash::{KeyHash, SECRET_BYTES};
pub use moneta_protocol::item::{Expiry, Item, ItemMeta, ItemRef, Rest, Value};
pub use moneta_protocol::request;
pub use number::{NUMBER_VALUE_MAX, parse_number};
pub use outcome::{Deleted, Lookup, Number, Pending, Step, Written};
pub use progress::Progress;
pub use stats::{Figure, FigureKind, FlashStats, Latency, StoreStats, TierStats};
pub use store::{Cursor, Departed, Departure, Driver, Health, Install, Observer, Store, Tier, Visit, Walked, Walking};
pub use tiered::{Promotion, Tiered, TieredConfig};
pub use time::Clock;
