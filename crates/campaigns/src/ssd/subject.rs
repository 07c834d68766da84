//! A server under test, with the folder its items are in; it can be ended and started again on the same folder.

use std::path::Path;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use super::counters::SsdCounters;
use super::readiness;
use moneta_bench::address::Address;
use moneta_bench::compare::Side;
use moneta_bench::interrupt;
use moneta_bench::process::Process;
use moneta_bench::server::{Origin, Server};
use moneta_bench::{BenchError, Result};

/// How long a server may take to end: a clean stop may write an index.
const STOP: Duration = Duration::from_secs(120);
/// How often it is looked whether a server still writes.
const SETTLE_TICK: Duration = Duration::from_millis(500);
/// How often in a row it must not have.
const SETTLE_STILL: u32 = 3;
/// Bytes between two looks that are housekeeping, not data on its way.
const SETTLE_BYTES: u64 = 128 << 10;
/// When waiting for that ends.
const SETTLE_MOST: Duration = Duration::from_secs(60);

/// How long a server took to come up.
#[derive(Debug, Clone, Copy)]
pub struct Startup {
    /// Until it answered anything.
    pub first_answer: Duration,
    /// Until it was ready.
    pub ready: Duration,
}

/// A server under test.
#[derive(Debug)]
pub struct Subject {
    /// Its name in the tables.
    pub name: String,
    origin: Origin,
    cpus: Vec<usize>,
    /// Empty between an end and a start.
    server: Option<Server>,
    folder: TempDir,
}

impl Subject {
    /// Starts the server of `side` with an empty folder in `data`: `{flash}` in its command line is the folder, `{flash_size}`
    /// a size in MiB.
    ///
    /// # Errors
    /// [`BenchError::Option`] when the command line has no place for them, or as [`Server::open`].
    pub fn start(side: &Side, data: &Path, mebibytes: u64, cpus: &[usize]) -> Result<Self> {
        let line = match &side.origin {
            Origin::Started(line) if line.contains("{flash}") && line.contains("{flash_size}") => line,
            other => {
                let reason = "expected a command line with {port}, {flash} and {flash_size} in it";
                return Err(BenchError::option("node or --peer", other, reason));
            }
        };
        let folder = TempDir::with_prefix_in("moneta-bench-", data)
            .map_err(|error| BenchError::system(format!("make a folder in {}", data.display()), error))?;
        let line = line.replace("{flash}", &folder.path().display().to_string());
        let origin = Origin::Started(line.replace("{flash_size}", &mebibytes.to_string()));
        let mut subject = Self { name: side.name.clone(), origin, cpus: cpus.to_vec(), server: None, folder };
        subject.start_again()?;
        Ok(subject)
    }

    /// Starts the server again on what it left in its folder.
    ///
    /// # Errors
    /// As [`Server::open`], and when it does not become ready.
    pub fn start_again(&mut self) -> Result<Startup> {
        let start = Instant::now();
        let server = Server::open(&self.origin, None, &self.cpus)?;
        let first_answer = start.elapsed();
        readiness::wait(&server)?;
        self.server = Some(server);
        Ok(Startup { first_answer, ready: start.elapsed() })
    }

    /// Ends the server with a signal and waits until it is gone; how long that took.
    ///
    /// # Errors
    /// As [`Server::end`].
    pub fn end(&mut self, signal: Signal) -> Result<Duration> {
        self.server.take().map_or(Ok(Duration::ZERO), |server| server.end(signal, STOP))
    }

    /// The folder its items are in.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Where applications ask.
    pub fn online(&self) -> &Address {
        self.running().address()
    }

    /// Where bulk loads go.
    pub fn batch(&self) -> &Address {
        self.running().batch()
    }

    /// Its process.
    ///
    /// # Errors
    /// [`BenchError::System`] when it has none, which a server started here always has.
    pub fn process(&self) -> Result<Process> {
        self.running().process().ok_or_else(|| BenchError::system("watch a server", std::io::ErrorKind::NotFound))
    }

    /// What it says of its tiers.
    ///
    /// # Errors
    /// As [`SsdCounters::read`].
    pub fn counters(&self) -> Result<SsdCounters> {
        SsdCounters::read(self.online())
    }

    /// Waits until the server has written what it was given, as far as it does that by itself.
    ///
    /// # Errors
    /// [`BenchError::System`] when it is gone, or [`BenchError::Interrupted`].
    pub fn settle(&self) -> Result<()> {
        let (start, mut still) = (Instant::now(), 0);
        let mut written = self.process()?.traffic()?.written;
        while still < SETTLE_STILL && start.elapsed() < SETTLE_MOST {
            interrupt::check()?;
            std::thread::sleep(SETTLE_TICK);
            let now = self.process()?.traffic()?.written;
            still = if now - written <= SETTLE_BYTES { still + 1 } else { 0 };
            written = now;
        }
        Ok(())
    }

    fn running(&self) -> &Server {
        self.server
            .as_ref()
            .expect("a part of the campaign that ends a server starts it again before it asks it anything")
    }
}
