//! A node of a cluster that has come back: what it must learn from other copies before it answers reads.

use std::sync::Arc;
use std::time::Duration;

use moneta_cluster::catchup::{CatchUp, CatchUpConfig};
use moneta_cluster::sources::{GuardConfig, Guarded, TopologySource};
use moneta_net::Outward;
use moneta_server::config::ListenAddress;
use moneta_server::server::RunningServer;
use moneta_store::{Clock, Progress, Store};

use crate::linked::Link;
use crate::options::kinds::topology::Source;
use crate::options::sections::cluster::{CATCH_UP, CATCH_UP_AS, CATCH_UP_DEADLINE, CATCH_UP_THEN, MAX_CLOCK_SKEW};
use crate::options::sections::memory::MAX_ITEM_SIZE;
use crate::options::settings::Settings;
use crate::proxy;

/// How long the topology's source may take to say something.
const PATIENCE: Duration = Duration::from_secs(5);

/// The node that catches up, and the topology of its peers.
pub struct CatchingUp {
    store: CatchUp,
    source: Source,
}

/// The store of a node that is told where other copies are; `outward`: how it reaches them; `recovery`: what it has from before. `None`: it is told of none.
pub fn round(
    store: &Arc<dyn Store>,
    settings: &Settings,
    outward: &Outward,
    recovery: &Progress,
    clock: &Arc<Clock>,
) -> Option<CatchingUp> {
    let source = settings.get(&CATCH_UP)?;
    let config = CatchUpConfig {
        own: settings.get(&CATCH_UP_AS),
        kept_until: recovery.kept_until(),
        lost_some: recovery.lost_some(),
        skew_max: u64::try_from(settings.get(&MAX_CLOCK_SKEW).as_millis()).unwrap_or(u64::MAX),
        deadline: settings.get(&CATCH_UP_DEADLINE),
        at_deadline: settings.get(&CATCH_UP_THEN),
        item_max: settings.get(&MAX_ITEM_SIZE),
        outward: outward.clone(),
    };
    Some(CatchingUp { store: CatchUp::new(Arc::clone(store), config, Arc::clone(clock)), source })
}

impl CatchingUp {
    /// The store that clients are to meet.
    pub fn store(&self) -> Arc<dyn Store> {
        Arc::new(self.store.clone())
    }

    /// Begins to catch up, once `server` serves: other nodes may wait for this one. `link`: the control plane, if the topology is
    /// from there.
    ///
    /// # Errors
    /// If the source of the topology cannot be asked at all, or the system has no thread.
    pub fn start(self, server: &RunningServer, link: Option<&Link>) -> anyhow::Result<()> {
        let mut source = Guarded::new(proxy::source(&self.source, link)?, GuardConfig::default());
        let ports = server.listen_addresses().iter().filter_map(|address| match address {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Unix { .. } => None,
        });
        // What it cannot read it logs.
        let topology = move || source.next(PATIENCE).ok().flatten();
        Ok(self.store.start(ports.collect(), topology)?)
    }
}
