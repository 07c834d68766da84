//! Bad days of a cluster, on real processes: what clients see, that no value is wrong and no acknowledged write is lost under its
//! rule, and what the metrics say. docs/reliability.md lists them.

mod client;
#[path = "../common/mod.rs"]
mod common;
mod crowd;
mod cut_off;
mod deletes;
mod fleet;
mod forwarder;
mod homes;
mod large;
mod limits;
mod one_node;
mod proxies;
mod queues;
mod times;
mod zones;
