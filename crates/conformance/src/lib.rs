//! What the conformance tests are made of; never shipped.
//!
//! The tests in `tests/` treat a server as a black box behind a socket: they start it, talk to it, and compare it with
//! Debian's memcached or with the protocol page. This library holds everything they share.
//!
//! - [`server`] starts and stops a server under test; [`options`] turns wishes into a command line for either kind
//! - [`stacks`] lists the stacks of tiers a node can be built of and starts them, with the processes they need; [`split`]
//!   starts the three processes of the split topology
//! - [`book`] is what a load's writers know, to judge what a node serves after it was killed; [`steady`] watches a node
//!   write to its device
//! - [`client`] is a plain text-protocol client; [`binary`] writes and reads binary packets
//! - [`open_files`] raises how many files this process may open
//! - [`differential`] generates command streams, sends them to two servers and compares the replies
//! - [`linearizability`] records histories of one key and checks them

pub mod binary;
pub mod book;
pub mod client;
pub mod differential;
pub mod linearizability;
pub mod open_files;
pub mod options;
pub mod proxied;
pub mod server;
pub mod split;
pub mod stacks;
pub mod steady;
pub mod tunnel;

/// The seed of this run, for tests that leave something to chance: from the environment's `MONETA_SEED`, else from the system.
/// Prints it, in the form in which it is taken.
pub fn seed() -> u64 {
    let given = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    seed
}
