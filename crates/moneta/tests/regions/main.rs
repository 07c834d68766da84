//! Regions with relays between them, on real processes: two copies and a proxy in each, and a link that is slow and can be cut.
//! What is written in one is read in the other; relays, nodes and the link fail; at rest all copies agree and nothing deleted lives.
//! `make test-regions` runs the long one.

mod clocks;
#[path = "../common/mod.rs"]
mod common;
mod crossing;
mod days;
mod drain;
mod link;
mod measure;
mod repair;
mod sharing;
mod trouble;
mod world;
