//! Whether a server that answers is ready: what its `/readyz` says.

use std::time::{Duration, Instant};

use moneta_net::{Endpoint, HttpClient, Timeouts};

use moneta_bench::address::Address;
use moneta_bench::interrupt;
use moneta_bench::server::Server;
use moneta_bench::{BenchError, Result};

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(300);
/// How long it may take to say whether it is ready.
const ANSWER: Duration = Duration::from_secs(10);
const TICK: Duration = Duration::from_millis(5);

/// Waits until the server says that it is ready; one that has no such page is ready when it answers.
///
/// # Errors
/// [`BenchError::System`] when it is not within five minutes, or [`BenchError::Interrupted`].
pub fn wait(server: &Server) -> Result<()> {
    let start = Instant::now();
    while !server.admin().is_none_or(says_ready) {
        interrupt::check()?;
        if start.elapsed() > PATIENCE {
            let what = format!("wait until {} is ready", server.address());
            return Err(BenchError::system(what, std::io::ErrorKind::TimedOut));
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

fn says_ready(admin: &Address) -> bool {
    let timeouts = Timeouts { total: Some(ANSWER), ..Timeouts::default() };
    let client = HttpClient::new(Endpoint { timeouts, ..Endpoint::new(admin.clone()) });
    client.get("/readyz").send().is_ok_and(|answer| answer.is_success())
}
