//! What the tests share: a real memcached that ends with the test, and a way to wait for futures.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub mod flash;
pub mod moneta;
pub mod peer;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_net::{Address, Endpoint};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::{Clock, KeyHash, Pending, Step, StoreError};

/// Seed of every store here.
pub const SEED: KeyHash = KeyHash::seeded(7);

/// A memcached on a Unix socket; killed when dropped.
pub struct Memcached {
    process: Option<Child>,
    options: Vec<String>,
    folder: tempfile::TempDir,
}

impl Memcached {
    /// Starts one, or says that there is none to start.
    pub fn start(options: &[&str]) -> Option<Self> {
        let asked = Command::new("memcached").arg("-h").stdout(Stdio::null()).stderr(Stdio::null()).status();
        asked.expect("these tests need a memcached: `make test` installs it");
        let folder = tempfile::tempdir().expect("a folder can be made");
        let options = options.iter().map(|option| (*option).to_owned()).collect();
        let mut memcached = Self { process: None, options, folder };
        memcached.run();
        Some(memcached)
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("memcached.sock")
    }

    /// Starts it, empty.
    pub fn run(&mut self) {
        let mut command = Command::new("memcached");
        command.arg("-s").arg(self.path()).args(["-m", "64", "-t", "2"]).args(&self.options);
        // SAFETY: the call has no preconditions.
        if unsafe { libc::geteuid() } == 0 {
            command.args(["-u", "root"]);
        }
        let _ = std::fs::remove_file(self.path());
        self.process = Some(command.stdin(Stdio::null()).spawn().expect("memcached starts"));
        wait_until("memcached listens", || std::os::unix::net::UnixStream::connect(self.path()).is_ok());
    }

    /// Kills it; its socket's file stays.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        let process = self.process.as_ref().expect("it runs").id();
        // SAFETY: the process is a child that has not been waited for, so its number is its own.
        let sent = unsafe { libc::kill(process as i32, signal) };
        assert_eq!(sent, 0, "the signal is sent");
    }

    /// Stops it, and waits until it has stopped: until then it may answer.
    pub fn stop(&self) {
        self.signal(libc::SIGSTOP);
        let process = self.process.as_ref().expect("it runs").id() as i32;
        // SAFETY: no status is asked for, and a stop leaves the child to be waited for.
        let stopped = unsafe { libc::waitpid(process, std::ptr::null_mut(), libc::WUNTRACED) };
        assert_eq!(stopped, process, "it stops");
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Waits, for a long time if need be.
pub fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(60), "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A configuration that is patient with a loaded machine.
pub fn config(path: &Path) -> RemoteConfig {
    let timeout = Duration::from_secs(20);
    let address = Address::Unix(path.to_owned());
    RemoteConfig { request_timeout: timeout.into(), ..RemoteConfig::new(Endpoint::new(address).patient(timeout), SEED) }
}

/// A store with the system's clock.
pub fn remote(config: RemoteConfig) -> Remote {
    Remote::new(config, Arc::new(Clock::system())).expect("the configuration makes sense")
}

/// Waits for a step's end.
pub fn finish<T>(step: Step<T>) -> Result<T, StoreError> {
    match step {
        Step::Done(ended) => ended,
        Step::Wait(pending) => wait_for(pending),
    }
}

/// Waits for a future's end.
pub fn wait_for<T>(pending: Pending<T>) -> Result<T, StoreError> {
    pollster::block_on(pending)
}
