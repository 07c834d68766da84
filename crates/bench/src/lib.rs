//! A load generator for memcached servers, a side-by-side comparison of two of them, and a replay of cache traces.
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
//! | [`hostile`] | a server under attack by many clients at once |
//! | [`ssd`] | a whole campaign on servers that keep their items on an SSD |
//! | [`trace`], [`replay`] | recorded requests, and their replay for hit ratios |
//! | [`policies`] | known policies on the same requests |
//! | [`process`] | CPU time and memory of a server, as the operating system counts them |

pub mod address;
mod affinity;
mod alarm;
mod capacity;
pub mod cli;
pub mod compare;
mod connection;
pub mod control;
mod driver;
mod error;
pub mod hostile;
mod interrupt;
pub mod keys;
pub mod load;
pub mod operation;
mod placement;
pub mod policies;
pub mod popularity;
pub mod process;
pub mod profiles;
mod progress;
mod random;
pub mod recorder;
pub mod replay;
mod schedule;
mod server;
pub mod sizes;
pub mod ssd;
mod table;
pub mod trace;
pub mod value;
pub mod weighted;
pub mod wire;
pub mod workload;

pub use error::{BenchError, Result};
pub use schedule::Arrivals;
