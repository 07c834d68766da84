//! `--fill-from`: a node that starts empty under its slot's name copies what is its from another replica, and serves meanwhile.
//!
//! No control plane takes part: the topology of `--catch-up` says which slot this node is, and where the other replica's nodes are.
//! Clients write to it from its start on, by version, so what is older than their writes and deletes does not come through.

use std::net::UdpSocket;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_background::Run;
use moneta_bulk::{CopyConfig, Counts, Place, RateConfig, Watch, Which, copy};
use moneta_cluster::Ring;
use moneta_cluster::topology::{Node, Topology};
use moneta_net::{Address, Endpoint, Outward};
use moneta_server::config::ListenAddress;
use moneta_server::server::RunningServer;
use parking_lot::Mutex;

use crate::linked::Link;
use crate::options::sections::cluster::{CATCH_UP, CATCH_UP_AS, FILL_FROM, FILL_RATE};
use crate::options::sections::memory::MAX_ITEM_SIZE;
use crate::options::settings::Settings;
use crate::proxy;

/// How long the topology's source may take to say something.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// Pause before what failed is tried again.
const RETRY: Duration = Duration::from_secs(10);
/// How often the log says how far it is.
const TELL_EVERY: Duration = Duration::from_secs(10);
/// How many times what it is in quiet the p99 of the sources' online gets may be.
const P99_LIMIT: f64 = 1.5;

/// Begins to fill the node, which has nothing from before, if it is to be filled.
///
/// # Errors
/// If the source of the topology cannot be asked at all, or the system has no thread.
pub fn start(
    settings: &Settings,
    outward: &Outward,
    server: &RunningServer,
    link: Option<&Link>,
) -> anyhow::Result<()> {
    let (Some(topology), Some(from)) = (settings.get(&CATCH_UP), settings.get(&FILL_FROM)) else { return Ok(()) };
    let mut source = proxy::source(&topology, link)?;
    let own: Vec<Address> = server.listen_addresses().iter().filter_map(own_address).collect();
    let filling = Filling {
        from,
        name: settings.get(&CATCH_UP_AS),
        own,
        outward: outward.clone(),
        rate: settings.get(&FILL_RATE),
        value_max: settings.get(&MAX_ITEM_SIZE),
    };
    moneta_background::start("fill", move |run| {
        let mut known = None;
        while !run.is_stopped() {
            match source.next(PATIENCE) {
                Ok(Some(topology)) => known = Some(topology),
                Ok(None) => {}
                Err(error) => run.failed(&error),
            }
            let ended = known.as_ref().map(|topology| filling.fill(topology, run));
            match ended {
                Some(Ok(())) => return,
                Some(Err(error)) => {
                    tracing::warn!(error = format!("{error:#}"), "the node is not filled yet");
                    run.failed(&format!("{error:#}"));
                }
                None => continue,
            }
            run.sleep(RETRY);
        }
    })?;
    Ok(())
}

/// Where this process reaches a listener of its own.
fn own_address(address: &ListenAddress) -> Option<Address> {
    match address {
        ListenAddress::Tcp(address) => {
            let mut address = *address;
            if address.ip().is_unspecified() {
                address.set_ip(if address.is_ipv4() {
                    [127, 0, 0, 1].into()
                } else {
                    std::net::Ipv6Addr::LOCALHOST.into()
                });
            }
            Some(address.into())
        }
        ListenAddress::Unix { path, .. } => Some(Address::Unix(path.clone())),
    }
}

struct Filling {
    from: String,
    /// The node's name in the topology.
    name: Option<Address>,
    own: Vec<Address>,
    outward: Outward,
    rate: u64,
    value_max: usize,
}

impl Filling {
    fn reach(&self, address: Address) -> Endpoint {
        self.outward.to(address).patient(SILENCE)
    }

    fn fill(&self, topology: &Topology, run: &Run) -> anyhow::Result<()> {
        let own = self.own.first().context("the node listens nowhere")?;
        let own = self.reach(own.clone());
        let (replica, slot) = self.place(topology)?;
        let other = topology.replicas.iter().find(|replica| replica.name == self.from);
        let other = other.with_context(|| format!("fill_from: the topology has no replica {}", self.from))?;
        if other.name == replica.name {
            bail!("fill_from: {} is this node's own replica, which has none of its keys", other.name);
        }
        let ring = Ring::new(topology.ring, &replica.nodes)?;
        let nodes = other.nodes.iter().filter(|node| !node.address.is_unheld());
        let from = Place {
            name: other.name.clone(),
            nodes: nodes.map(|node| self.reach(node.address.clone())).collect(),
            node_of: Arc::new(|_| 0),
        };
        // Keys of other slots are of no node here.
        let node_of = Arc::new(move |key: &[u8]| if ring.node(key) == slot { 0 } else { usize::MAX });
        let to = Place { name: "this node".to_owned(), nodes: vec![own], node_of };
        let config = CopyConfig {
            from,
            to,
            which: Which::default(),
            follow: false,
            strict: false,
            walk: false,
            rate: RateConfig { bytes: self.rate, operations: 0, p99_limit: Some(P99_LIMIT) },
            value_max: self.value_max,
        };
        let begun = Instant::now();
        tracing::info!(from = self.from, "the node is empty: it is filled, and serves meanwhile");
        let copied = copy(&config, &Told { run, last: Mutex::new(begun) })?;
        if copied.done {
            let (taken, bytes) = (copied.written.taken, copied.base.bytes);
            tracing::info!(items = taken, read = bytes, seconds = begun.elapsed().as_secs(), "the node is filled");
        }
        Ok(())
    }

    /// The replica and the number of this node.
    fn place<'t>(&self, topology: &'t Topology) -> anyhow::Result<(&'t moneta_cluster::topology::Replica, usize)> {
        let is_own = |node: &Node| match &self.name {
            Some(name) => node.address.place() == name.place(),
            None => self.is_here(&node.address),
        };
        let mut places =
            topology.replicas.iter().filter_map(|replica| Some((replica, replica.nodes.iter().position(is_own)?)));
        places.next().context("the topology has no slot for this node: catch_up_as says which address it has there")
    }

    fn is_here(&self, address: &Address) -> bool {
        let has_port = self.own.iter().any(|own| own.port().is_some() && own.port() == address.port());
        // Only an address of this machine can be bound.
        let is_local = || address.resolve().unwrap_or_default().iter().any(|at| UdpSocket::bind((at.ip(), 0)).is_ok());
        has_port && is_local()
    }
}

/// Tells the log how far it is.
struct Told<'a> {
    run: &'a Run,
    last: Mutex<Instant>,
}

impl Watch for Told<'_> {
    fn note(&self, text: &str) {
        tracing::info!("filling: {text}");
    }

    fn phase(&self, _: &str, _: Option<u64>) {}

    fn progress(&self, counts: Counts) {
        let mut last = self.last.lock();
        if last.elapsed() >= TELL_EVERY {
            *last = Instant::now();
            tracing::info!(items = counts.items, bytes = counts.bytes, "filling: read from the other replica");
        }
    }

    fn should_stop(&self) -> bool {
        self.run.is_stopped()
    }
}
