//! A load generator for memcached servers, a side-by-side comparison of two of them, and a replay of cache traces.
//! `moneta-campaigns` stands on it: measurements that no user runs.
//!
//! | module | what it holds |
//! |---|---|
//! | [`cli`] | the command line: options to plans, results to tables and JSON |
//! | [`workload`] | what is asked for: keys, popularity, sizes, operations, expiration times |
//! | [`profiles`] | workloads made from published figures |
//! | [`value`] | values that can be verified |
//! | [`wire`] | the client's side of the three protocols |
//! | [`load`] | a load on one server: threads, phases, what was measured |
//! | [`compare`] | two servers in turn on the same load |
//! | [`trace`], [`replay`] | recorded requests, and their replay for hit ratios |
//! | [`server`], [`affinity`] | servers that are started and ended, and the CPUs of threads |
//! | [`interrupt`] | signals |
//! | [`table`] | tables in plain text |
//! | [`process`] | CPU time and memory of a server, as the operating system counts them |

pub mod address;
pub mod affinity;
pub mod alarm;
mod capacity;
pub mod cli;
pub mod compare;
mod connection;
pub mod control;
mod driver;
mod error;
pub mod interrupt;
pub mod keys;
pub mod load;
pub mod operation;
mod placement;
pub mod popularity;
pub mod process;
pub mod profiles;
mod progress;
mod random;
pub mod recorder;
pub mod replay;
mod schedule;
pub mod server;
pub mod sizes;
pub mod table;
pub mod trace;
pub mod value;
pub mod weighted;
pub mod wire;
pub mod workload;

pub use error::{BenchError, Result};
pub use schedule::Arrivals;
