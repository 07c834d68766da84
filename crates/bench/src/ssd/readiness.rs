//! Whether a server that answers is ready: what its `/readyz` says.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use crate::address::{Address, Subject};
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::server::Server;

/// How long a server may take.
const PATIENCE: Duration = Duration::from_secs(300);
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
    let ask = || -> Result<String> {
        let mut stream = admin.connect()?;
        let mut answer = String::new();
        let exchange = stream
            .write_all(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .and_then(|()| stream.read_to_string(&mut answer));
        exchange.map_err(|source| admin.failed(source))?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer.split_whitespace().nth(1) == Some("200"))
}
