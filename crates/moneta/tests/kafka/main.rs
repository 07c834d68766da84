//! Regions with a topic of a real Kafka between them: what crosses, what others read there, and a broker, relays and retention that
//! fail. The failures to guard against: a change that no partition's reader has and that nobody is told of, and a relay that says it
//! is there while it is not. `make test-kafka` runs them.
#![cfg(feature = "kafka")]

mod broker;
#[path = "../common/mod.rs"]
mod common;
mod crossing;
#[path = "../regions/link.rs"]
#[allow(dead_code)]
mod link;
mod secured;
mod sharing;
mod trouble;
#[path = "../regions/world.rs"]
#[allow(dead_code)]
mod world;
