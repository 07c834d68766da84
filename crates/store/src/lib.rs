//! What can be done with an item by whatever keeps it.
//!
//! A [`Store`] answers cache commands: an engine, a tiered pair, a remote server, a whole cluster. A layer is a store
//! wrapped round a store. Items, keys and requests are those of [`moneta_item`]; code over the store takes them from here.
//! No protocol is known here.

pub mod board;
mod calls;
pub mod change;
pub mod component;
mod context;
mod counter;
mod error;
pub mod feed;
pub mod holding;
pub mod latency;
pub mod metric;
pub mod offload;
mod op;
mod outcome;
mod progress;
mod reactor;
pub mod scale;
mod stats;
pub mod steps;
mod store;
mod time;
pub mod versions;
mod visit;
mod walk;

pub use calls::Calls;
pub use component::{Component, Health, Observer, Parts, Report};
pub use context::{ClientTag, Cx, Door, Policy};
pub use counter::{Counter, OwnCounter};
pub use error::{ErrorKind, StoreError};
pub use moneta_item::{
    Deleted, ErrorCode, Expiry, Item, ItemMeta, ItemRef, Key, KeyHash, Lane, Lookup, NUMBER_VALUE_MAX, Newer, Number,
    Origin, OwnedKey, OwnedKeys, OwnedValue, Rest, SECRET_BYTES, Value, Version, VersionClock, Written, aligned,
    escape, next_local, parse_number, request,
};
pub use op::{Op, OwnedOp, Put};
pub use outcome::{Outcome, Pending, PendingReads, Reads, Step};
pub use progress::Progress;
pub use reactor::{Reactor, Reactors, Slot};
pub use stats::{Below, StoreStats};
pub use store::{ReadSeveral, Store};
pub use time::Clock;
pub use visit::{Unseen, Visit};
pub use walk::{Cursor, Walked, Walking};
