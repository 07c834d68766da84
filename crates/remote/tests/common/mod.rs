//! What the tests share: stores on a server, and a way to wait for futures.
#![allow(dead_code, unused_imports, reason = "each test file uses a part of it")]

pub mod flash;
pub mod moneta;
pub mod peer;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use moneta_net::{Address, Endpoint};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::{Clock, KeyHash, Pending, Step, StoreError};
pub use moneta_testkit::process::{Memcached, until as wait_until};

/// Seed of every store here.
pub const SEED: KeyHash = KeyHash::seeded(7);

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
