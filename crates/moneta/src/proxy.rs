//! The store of a proxy: a cluster, whose nodes are reached over memcached's protocol.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use moneta_cluster::sources::{
    DnsConfig, DnsSource, DnsZone, FileSource, Format, GuardConfig, Guarded, TopologySource,
};
use moneta_cluster::{Cluster, Connect, Node, Writer};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::{Clock, KeyHash, Store};

use crate::options::kinds::topology::Source;
use crate::options::sections::access::DISABLE_FLUSH_ALL;
use crate::options::sections::cluster;
use crate::options::sections::memory::MAX_ITEM_SIZE;
use crate::options::sections::proxy;
use crate::options::settings::Settings;

/// How long the first topology is waited for.
pub const FIRST: Duration = Duration::from_secs(10);

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

/// What says the topology.
///
/// # Errors
/// If it cannot be asked at all.
pub fn source(source: &Source) -> anyhow::Result<Box<dyn TopologySource>> {
    Ok(match source {
        Source::Toml(path) => Box::new(FileSource::new(path, Format::Toml)),
        Source::Evcache(path, property) => Box::new(FileSource::new(path, Format::Evcache(property.clone()))),
        Source::Dns(zones) => {
            let zones = zones
                .iter()
                .map(|(zone, name)| DnsZone { zone: zone.clone(), name: name.clone(), port: 11211 })
                .collect();
            Box::new(DnsSource::new(DnsConfig::new(zones))?)
        }
    })
}

/// The store, which follows the topology.
///
/// # Errors
/// If there is no topology, or it makes no sense.
pub fn cluster(topology: &Source, settings: &Settings, clock: &Arc<Clock>) -> anyhow::Result<Cluster> {
    let salt = getrandom::u64().context("the system has no randomness")?;
    let seed = KeyHash::random().context("the system has no randomness")?;
    let config = proxy::config(settings, !settings.get(&DISABLE_FLUSH_ALL));
    if let Some(folder) = &config.hint_dir {
        std::fs::create_dir_all(folder).with_context(|| format!("no folder for hints at {}", folder.display()))?;
    }
    let kept = config.hint_dir.as_ref().map(|folder| folder.join(format!("{}.topology.toml", config.app)));
    let mut source = Guarded::new(source(topology)?, GuardConfig { kept, ..GuardConfig::default() });
    let first = source.first(FIRST).context("there is no topology")?;
    let connect = Remotes { settings: settings.clone(), seed, clock: Arc::clone(clock) };
    let writer = Writer { origin: cluster::origin(settings), salt, seed };
    let item_max = settings.get(&MAX_ITEM_SIZE);
    let cluster = Cluster::new(config, &first, Box::new(connect), writer, item_max, Arc::clone(clock))?;
    cluster.start()?;
    cluster.follow(source)?;
    Ok(cluster)
}
