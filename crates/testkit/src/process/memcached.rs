//! A real memcached, for tests of what talks to one.

use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::commands::memcached;
use super::running::Process;

/// A memcached on a Unix socket. It may be killed and [started again](Self::run) there, empty.
#[derive(Debug)]
pub struct Memcached {
    process: Option<Process>,
    path: PathBuf,
    options: Vec<String>,
    /// Where its socket is, unless the test has said where.
    _folder: Option<TempDir>,
}

impl Memcached {
    /// Starts one in a new folder, with 64 MiB, two threads and these further options, and waits until it listens.
    ///
    /// # Panics
    /// If there is none to start.
    pub fn start(options: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("memcached.sock");
        Self { _folder: Some(folder), ..Self::start_at(path, options) }
    }

    /// The same on the socket `path`.
    ///
    /// # Panics
    /// If there is none to start.
    pub fn start_at(path: PathBuf, options: &[&str]) -> Self {
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut memcached = Self { process: None, path, options, _folder: None };
        memcached.run();
        memcached
    }

    /// Starts it, in place of one that may run.
    ///
    /// # Panics
    /// If it cannot be started.
    pub fn run(&mut self) {
        self.kill();
        let _ = std::fs::remove_file(&self.path);
        let mut command = memcached();
        command.args(["-m", "64", "-t", "2", "-s"]).arg(&self.path).args(&self.options);
        let process = Process::try_start(&mut command);
        let process = process.unwrap_or_else(|error| panic!("{error}: `make test` installs memcached"));
        process.until("memcached listens", || UnixStream::connect(&self.path).is_ok());
        self.process = Some(process);
    }

    /// Where it listens.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Kills it; its socket's file stays.
    pub fn kill(&mut self) {
        self.process = None;
    }

    /// Whether it was not killed.
    pub fn runs(&self) -> bool {
        self.process.is_some()
    }

    /// Its process, for signals.
    ///
    /// # Panics
    /// If it was killed.
    pub fn process(&self) -> &Process {
        self.process.as_ref().expect("memcached runs")
    }
}
