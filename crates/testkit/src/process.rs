//! Processes of tests: nodes, proxies, memcacheds and whatever else a test runs beside itself.
//!
//! A [`Process`] is started from a [`Command`](std::process::Command) and ends with its value, also when the test fails: then
//! what it printed is printed too. What it prints is captured in nameless files, so it never waits for a reader. Every wait is for
//! something that happens, with [`PATIENCE`] as its deadline, and fails at once when the process ends instead.
//!
//! ```no_run
//! use moneta_testkit::process::{self, Process};
//!
//! let mut command = process::moneta().expect("it is built");
//! command.args(["serve", "-p", "0", "--admin", "127.0.0.1:0"]);
//! let mut node = Process::start(&mut command);
//! node.until("it listens", || node.stdout().contains("\nstop "));
//! node.stop(); // SIGSTOP, and it has stopped when this returns
//! node.cont();
//! assert!(node.end().success(), "SIGTERM ends it in order");
//! ```
//!
//! | for | there is |
//! |---|---|
//! | a command | [`moneta`], [`memcached()`]; [`clean`] takes the test's own `MONETA_…` variables away |
//! | a port | `-p 0` and what the process prints; [`free_port`] where it must be known first, `steady_port` (feature `network`) for restarts |
//! | a process that serves | [`Process`] |
//! | one that ends by itself | [`output`], [`printed`], [`refused`] |
//! | a real memcached | [`Memcached`] |
//! | TLS | `TlsFiles` (feature `network`): files of a new authority, and the environment with which a process uses them |
//! | what the kernel knows of it | [`Process::listens_on`], [`Process::resident_bytes`], [`Process::peak_bytes`] |

mod captured;
mod commands;
mod kernel;
mod memcached;
#[cfg(feature = "network")]
mod network;
mod patience;
mod running;
#[cfg(feature = "network")]
mod tls;

use std::io;
use std::net::TcpListener;

pub use nix::sys::signal::Signal;

pub use commands::{clean, memcached, memcached_program, moneta, moneta_program, output, printed, refused};
pub use kernel::{listens_on, peak_bytes, resident_bytes};
pub use memcached::Memcached;
#[cfg(feature = "network")]
pub use network::steady_port;
pub use patience::{PATIENCE, until};
pub use running::{NotSo, Pipes, Process};
#[cfg(feature = "network")]
pub use tls::TlsFiles;

/// A port of 127.0.0.1 that nothing listened on a moment ago. Another program may take it before it is used: see
/// [`Process::listens_on`].
///
/// # Errors
/// When the system has none.
pub fn free_port() -> io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}
