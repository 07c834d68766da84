//! The memcached protocols: classic text, meta and binary, as bytes on one side and commands and replies on the other.
//!
//! Nothing here does I/O or reads a clock. All three protocols meet in one [`Command`] type; what a command asks of an item is
//! one of the four types in [`moneta_item::request`], which a store understands without knowing the protocol. On the way back
//! everything is an [`ItemRef`](moneta_item::ItemRef) or a [`Reply`], which [`encode`] writes in the style the command names.

pub mod base64;
pub mod binary;
pub mod command;
pub mod decoder;
pub mod encode;
mod flags;
mod meta;
pub mod number;
pub mod refusal;
pub mod reply;
mod scan;
pub mod status;
mod stream;
mod text;
mod versions;

pub use command::Command;
pub use decoder::{Decoded, Decoder, Protocol};
pub use reply::Reply;
