//! The memcached protocols: classic text, meta and binary, as bytes on one side and commands and replies on the other.
//!
//! Nothing here does I/O or reads a clock. All three protocols meet in one [`Command`] type; what a command asks of an item
//! is one of the four [`request`] types, which the store layer understands without knowing the protocol.

pub mod command;
pub mod item;
pub mod request;

pub use command::Command;
