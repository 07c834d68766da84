//! The two sides of a repair: nodes, copies or regions.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use moneta_client::wire::{Protocol, VALUE_LIMIT};
use moneta_cluster::sources::{SourceError, TopologySource};
use moneta_cluster::{Cluster, Ring, Topology};
use moneta_net::{Address, Outward};
use moneta_options::values::Values;
use moneta_remote::{Remote, RemoteConfig, ValueMemory};
use moneta_repair::{Side, SideNode, digest};
use moneta_store::{Clock, KeyHash, Origin, Store, component};

use super::args::RepairArgs;
use crate::commands::feed::reachable;
use crate::proxy::{self, AppKeys, ClusterParts};

/// How long a request to a node may take.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// Memory for large values on their way.
const VALUE_MEMORY: usize = 256 << 20;

/// Both sides, and the clusters that were opened for them.
pub struct Pair {
    /// A.
    pub a: Side,
    /// B.
    pub b: Side,
    clusters: Vec<Cluster>,
}

impl Pair {
    /// As arguments name them.
    ///
    /// # Errors
    /// If they name none.
    pub fn of(args: &RepairArgs, outward: &Outward) -> anyhow::Result<Self> {
        let clock = Arc::new(Clock::system());
        let Some(source) = &args.topology else {
            let (a, b) = (lone(&args.a, outward, &clock)?, lone(&args.b, outward, &clock)?);
            return Ok(Self { a, b, clusters: Vec::new() });
        };
        let topology = proxy::topology(source)?;
        match &args.to_topology {
            None => Self::of_copies(&topology, &args.a, &args.b, outward, &clock),
            Some(other) => {
                Self::of_regions((&topology, Some(&args.a)), (&proxy::topology(other)?, Some(&args.b)), outward, &clock)
            }
        }
    }

    /// Two copies of a topology.
    ///
    /// # Errors
    /// If it has no such copy, or its nodes no admin addresses.
    pub fn of_copies(
        topology: &Topology,
        a: &str,
        b: &str,
        outward: &Outward,
        clock: &Arc<Clock>,
    ) -> anyhow::Result<Self> {
        let side = |name: &str| copy(topology, name, name, outward, clock);
        Ok(Self { a: side(a)?, b: side(b)?, clusters: Vec::new() })
    }

    /// Two regions: a copy of each is compared, by name or the first, and all copies are written to.
    ///
    /// # Errors
    /// If a topology has no such copy, or its nodes no admin addresses.
    pub fn of_regions(
        (of_a, copy_a): (&Topology, Option<&str>),
        (of_b, copy_b): (&Topology, Option<&str>),
        outward: &Outward,
        clock: &Arc<Clock>,
    ) -> anyhow::Result<Self> {
        let mut clusters = Vec::new();
        let mut side = |letter: &str, topology: &Topology, name: Option<&str>| -> anyhow::Result<Side> {
            let readable = topology.replicas.iter().find(|replica| !replica.write_only);
            let name = name.or(readable.map(|replica| &*replica.name)).context("the topology has no copy")?;
            let compared = copy(topology, name, &format!("{letter}:{name}"), outward, clock)?;
            let parts = ClusterParts {
                name: format!("repair-{letter}"),
                keys: AppKeys::default(),
                kept: None,
                allow_flush: false,
                has_boards: false,
                origin: Origin::default(),
                seed: KeyHash::random().context("the system has no randomness")?,
                outward: outward.clone(),
                memory: Arc::new(ValueMemory::new(VALUE_MEMORY)),
                clock: Arc::clone(clock),
            };
            let cluster = proxy::cluster_of(&Values::default(), Box::new(Fixed(topology.clone())), parts)?;
            clusters.push(cluster.clone());
            Ok(Side { cluster: Some(Arc::new(cluster)), ..compared })
        };
        let (a, b) = (side("a", of_a, copy_a)?, side("b", of_b, copy_b)?);
        Ok(Self { a, b, clusters })
    }

    /// Lets go of what it reached.
    pub fn close(&self) {
        self.clusters.iter().for_each(|cluster| component::close(cluster));
        [&self.a, &self.b].iter().flat_map(|side| &side.nodes).for_each(|node| component::close(&node.store));
    }
}

/// A topology that stays.
struct Fixed(Topology);

impl TopologySource for Fixed {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        // The first time it is asked with patience; what follows it waits.
        std::thread::sleep(timeout.min(Duration::from_millis(50)));
        Ok(Some(self.0.clone()))
    }

    fn name(&self) -> String {
        "a topology that was given".to_owned()
    }
}

/// The store of a node.
fn node(address: Address, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Arc<dyn Store>> {
    let config = RemoteConfig {
        request_timeout: REQUEST_WITHIN.into(),
        protocol: Some(Protocol::Meta),
        item_max: VALUE_LIMIT,
        ..RemoteConfig::new(outward.to(address), KeyHash::seeded(0))
    };
    Ok(Arc::new(Remote::new(config, Arc::clone(clock)).context("cannot talk to a node")?))
}

/// A node by its admin address.
fn lone(name: &str, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Side> {
    let admin: Address = name.parse().map_err(|error| anyhow!("\"{name}\" is no address: {error}"))?;
    let admin = outward.to(admin);
    let named = digest::listeners(name, &admin)?;
    let address = reachable(&named, name).into_iter().next().with_context(|| format!("{name} names no listener"))?;
    let nodes = vec![SideNode { name: name.to_owned(), admin, store: node(address, outward, clock)? }];
    Ok(Side { name: name.to_owned(), nodes, node_of: Arc::new(|_| 0), cluster: None })
}

/// A copy of a topology.
fn copy(topology: &Topology, name: &str, shown: &str, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Side> {
    let replica = topology.replicas.iter().find(|replica| replica.name == name).with_context(|| {
        let names: Vec<&str> = topology.replicas.iter().map(|replica| &*replica.name).collect();
        format!("the topology has no replica \"{name}\": it has {}", names.join(", "))
    })?;
    let ring = Ring::new(topology.ring, &replica.nodes)?;
    let mut nodes = Vec::new();
    for one in &replica.nodes {
        let Some(admin) = one.admin.clone() else {
            bail!("the topology has no admin address of {}/{}: a digest is asked for there", replica.name, one.slot)
        };
        nodes.push(SideNode {
            name: format!("{shown}/{}", one.slot),
            admin: outward.to(admin),
            store: node(one.address.clone(), outward, clock)?,
        });
    }
    Ok(Side { name: shown.to_owned(), nodes, node_of: Arc::new(move |key| ring.node(key)), cluster: None })
}
