//! The control plane as a process: what it says survives its end at any moment, and what one client does costs that client alone.
//! The silent failures guarded against: a change that was acknowledged and is gone, an epoch that goes back, a slot with two holders,
//! a list that is short, a client that sees another environment, a reader that holds memory.

#[path = "../common/mod.rs"]
mod common;

mod apps;
mod bad_days;
mod clients;
mod console;
mod discovery;
mod ends;
mod etcd;
mod fleet;
mod forgetful;
mod handed;
mod jobs;
mod members;
mod points;
mod properties;
mod protected;
mod restored;
mod rollouts;
mod strangers;
mod stuck;
mod support;
mod thousands;
mod topologies;
mod way;
