//! Sends the same random commands to two servers and compares the replies byte for byte.
//!
//! A [`campaign`] generates [`stream`]s ([`text`], [`meta`], [`binary_stream`], out of the same [`words`]), plays each
//! against both servers ([`exchange`]) and compares what came back ([`compare`]). Differences that are wanted are taken
//! out by named rules ([`rules`], applied in [`normalise_text`], [`normalise_binary`] and, where they hold for some stacks
//! only, [`tiers`]). A stream that differs is cut down to its smallest failing part ([`shrink`]) and printed.

pub mod binary_stream;
pub mod campaign;
pub mod compare;
pub mod exchange;
pub mod meta;
pub mod normalise_binary;
pub mod normalise_text;
pub mod part;
pub mod rules;
pub mod shrink;
pub mod stream;
pub mod text;
pub mod tiers;
pub mod words;
