//! The store of a proxy: a cluster, whose nodes are reached over memcached's protocol.

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use anyhow::Context;
use moneta_cluster::{Cluster, Connect, Node, Topology, Writer};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::{Clock, KeyHash, Store};

use crate::options::sections::access::DISABLE_FLUSH_ALL;
use crate::options::sections::cluster;
use crate::options::sections::memory::MAX_ITEM_SIZE;
use crate::options::sections::proxy;
use crate::options::settings::Settings;

/// Makes the stores of nodes.
struct Remotes {
    settings: Settings,
    seed: KeyHash,
    clock: Arc<Clock>,
}

impl Connect for Remotes {
    fn open(&self, node: &Node) -> Result<Arc<dyn Store>, Box<dyn Error + Send + Sync>> {
        let config = proxy::node(&self.settings, node.address.clone());
        let config = RemoteConfig { seed: self.seed, ..config };
        Ok(Arc::new(Remote::new(config, Arc::clone(&self.clock))?))
    }
}

/// The store, which follows the topology's file.
///
/// # Errors
/// If the topology cannot be read or makes no sense.
pub fn cluster(topology: &Path, settings: &Settings, clock: &Arc<Clock>) -> anyhow::Result<Cluster> {
    let salt = getrandom::u64().context("the system has no randomness")?;
    let seed = KeyHash::random().context("the system has no randomness")?;
    let text = std::fs::read_to_string(topology)
        .with_context(|| format!("the topology cannot be read from {}", topology.display()))?;
    let first = Topology::from_toml(&text).with_context(|| format!("the topology in {}", topology.display()))?;
    let connect = Remotes { settings: settings.clone(), seed, clock: Arc::clone(clock) };
    let config = proxy::config(settings, !settings.get(&DISABLE_FLUSH_ALL));
    if let Some(folder) = &config.hint_dir {
        std::fs::create_dir_all(folder).with_context(|| format!("no folder for hints at {}", folder.display()))?;
    }
    let writer = Writer { origin: cluster::origin(settings), salt, seed };
    let item_max = settings.get(&MAX_ITEM_SIZE);
    let cluster = Cluster::new(config, &first, Box::new(connect), writer, item_max, Arc::clone(clock))?;
    cluster.start()?;
    Ok(cluster)
}
