//! A Moneta in the test's own process, on a Unix socket and by the test's clock.

use std::cell::RefCell;
use std::path::PathBuf;
use std::sync::Arc;

use moneta_memory::{Memory, MemoryConfig};
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings};
use moneta_server::{Listener, RunningServer, Server, ServerConfig};
use moneta_store::versions::Versioning;
use moneta_store::{Clock, Store};
use moneta_testkit::suite::SuiteConfig;

use super::SEED;

/// Servers of a suite: the last one started runs, for no more is used at a time.
#[derive(Default)]
pub struct Servers(RefCell<Option<(RunningServer, tempfile::TempDir)>>);

impl Servers {
    /// Serves `store` in place of what was served before; tells where.
    pub fn serve(&self, store: impl Store + 'static, config: SuiteConfig, clock: Arc<Clock>) -> PathBuf {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let path = folder.path().join("moneta.sock");
        let listeners = vec![Listener::unix(&path)];
        let server = ServerConfig { listeners, workers: 2, ..ServerConfig::default() };
        let settings = NodeSettings { item_max: config.value_max, memory: config.memory, ..NodeSettings::default() };
        let node = Arc::new(Node::new(settings, clock, Authenticator::off()));
        let running = Server::start(&server, Arc::new(store), node).expect("the server starts");
        *self.0.borrow_mut() = Some((running, folder));
        path
    }
}

/// RAM with the suite's limits.
pub fn memory(config: SuiteConfig, clock: Arc<Clock>) -> Memory {
    memory_with(config, Versioning::default(), clock)
}

/// The same, with versions made as told.
pub fn memory_with(config: SuiteConfig, versioning: Versioning, clock: Arc<Clock>) -> Memory {
    let config = MemoryConfig {
        limit: config.memory,
        item_max: config.value_max,
        evict: true,
        threads: 1,
        shards: Some(1),
        seed: SEED,
        versioning,
    };
    Memory::new(&config, clock).expect("the limits are possible")
}
