//! The words of a cache: items and their keys, what a request asks of an item, and how it ends. No bytes of any protocol,
//! and no I/O.
//!
//! The decoder of `moneta_protocol` makes requests, a store answers them. Code over the store takes these names from
//! `moneta_store`, which passes them on; only what lies below the store names this crate.

pub mod aligned;
mod error_code;
pub mod escape;
mod item;
mod key;
mod key_hash;
mod newer;
mod number;
mod outcome;
pub mod request;
mod version;

pub use error_code::ErrorCode;
pub use item::{Expiry, Item, ItemMeta, ItemRef, OwnedValue, Rest, Value};
pub use key::{Key, OwnedKey, OwnedKeys};
pub use key_hash::{KeyHash, SECRET_BYTES};
pub use newer::Newer;
pub use number::{NUMBER_VALUE_MAX, parse_number};
pub use outcome::{Deleted, Lookup, Number, Written};
pub use version::{Lane, Origin, Version, VersionClock, local_after, next_local};
