//! What a client is told before it begins.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use moneta_cluster::sources::{FileSource, Format, GuardConfig, Guarded, TopologySource};
use moneta_cluster::{Ack, Cluster, ClusterConfig, Fallback, RemoteNodes, Topology, Writer};
use moneta_link::{Control, ControlSource, ControlUrl, Epochs};
use moneta_net::{Endpoint, Outward};
use moneta_remote::RemoteConfig;
use moneta_store::{Clock, KeyHash, Origin};

use crate::client::Client;
use crate::error::ConnectError;
use crate::worker::{self, Started};

/// How long the first topology is waited for.
const FIRST: Duration = Duration::from_secs(10);

/// What a client is told. Made by [`Client::builder`].
#[must_use]
pub struct Builder {
    config: ClusterConfig,
    topology: Option<From>,
    origin: (u8, Option<u8>),
    node_timeout: Duration,
    node_connections: usize,
    in_flight: usize,
    item_max: usize,
    outward: Outward,
}

/// Where the topology is from.
enum From {
    Fixed(Topology),
    Source(Box<dyn TopologySource>),
    Control { urls: Vec<ControlUrl>, environment: String },
}

impl Client {
    /// What a client of the app `app` is told. The name is in metrics, the log, and the names of files of hints.
    pub fn builder(app: impl Into<String>) -> Builder {
        Builder::new(app.into())
    }
}

impl Builder {
    pub(crate) fn new(app: String) -> Self {
        Self {
            config: ClusterConfig::new(app),
            topology: None,
            origin: (0, None),
            node_timeout: Duration::from_millis(250),
            node_connections: 1,
            in_flight: 10_000,
            item_max: 1 << 20,
            outward: Outward::default(),
        }
    }

    /// A topology that stays.
    pub fn topology(self, topology: Topology) -> Self {
        Self { topology: Some(From::Fixed(topology)), ..self }
    }

    /// A TOML file that is followed: what changes in it is taken within seconds.
    pub fn topology_file(self, path: impl Into<PathBuf>) -> Self {
        self.topology_source(Box::new(FileSource::new(path.into(), Format::Toml)))
    }

    /// A source that is followed, such as [`moneta_cluster::sources::DnsSource`].
    pub fn topology_source(self, source: Box<dyn TopologySource>) -> Self {
        Self { topology: Some(From::Source(source)), ..self }
    }

    /// The topology of the app at a control plane, any of whose servers knows all, in an environment. They are reached as
    /// [`Builder::outward`] says.
    pub fn topology_control(self, urls: Vec<ControlUrl>, environment: impl Into<String>) -> Self {
        Self { topology: Some(From::Control { urls, environment: environment.into() }), ..self }
    }

    /// The zone whose copies are read first. Default: any.
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.config.zone = Some(zone.into());
        self
    }

    /// Copies that must have taken a write. Default: [`Ack::Quorum`].
    pub fn ack(mut self, ack: Ack) -> Self {
        self.config.ack = ack;
        self
    }

    /// When a read goes to another copy. Default: [`Fallback::Miss`].
    pub fn read_fallback(mut self, fallback: Fallback) -> Self {
        self.config.fallback = fallback;
        self
    }

    /// Whether [`Client::flush_all`] is allowed. Default: no.
    pub fn allow_flush(mut self, allow: bool) -> Self {
        self.config.allow_flush = allow;
        self
    }

    /// Folder for hints (the writes that nodes have missed) and the last good topology. Default: both in memory alone. No two
    /// processes may share it.
    pub fn hint_dir(mut self, folder: impl Into<PathBuf>) -> Self {
        self.config.hint_dir = Some(folder.into());
        self
    }

    /// All the rules of the cluster at once, in place of those set so far.
    pub fn rules(self, config: ClusterConfig) -> Self {
        Self { config, ..self }
    }

    /// Who this process is in the versions of what it writes: a region (0 to 15) and a writer (0 to 15); of greater numbers the
    /// lowest four bits count. That two writers have one number does no harm. Default: 0 and one that is drawn.
    pub fn writer(self, region: u8, writer: u8) -> Self {
        Self { origin: (region, Some(writer)), ..self }
    }

    /// How long a request to a node, or connecting to it, may take. Default: 250 ms.
    pub fn node_timeout(self, timeout: Duration) -> Self {
        Self { node_timeout: timeout, ..self }
    }

    /// Connections to each node, 1 to 64. Default: 1, on which requests are pipelined.
    pub fn node_connections(self, connections: usize) -> Self {
        Self { node_connections: connections, ..self }
    }

    /// Requests under way at once, at least 1; more wait. Default: 10,000.
    pub fn in_flight(self, requests: usize) -> Self {
        Self { in_flight: requests.max(1), ..self }
    }

    /// Longest value, in bytes. Default: 1 MiB.
    pub fn item_max(self, bytes: usize) -> Self {
        Self { item_max: bytes, ..self }
    }

    /// How nodes are reached: over TLS, with a log-in. Default: neither.
    pub fn outward(self, outward: Outward) -> Self {
        Self { outward, ..self }
    }

    /// Starts the client. Nodes need not be up; a source of topologies is waited for, up to ten seconds.
    ///
    /// # Errors
    /// If there is no topology, it makes no sense, or the system has no thread for it.
    pub async fn connect(self) -> Result<Client, ConnectError> {
        let in_flight = self.in_flight;
        let Started { requests, cluster, ended } = worker::start(in_flight, move || self.open()).await?;
        Ok(Client::new(requests, cluster, ended))
    }

    fn control(&self, urls: &[ControlUrl], environment: String) -> Result<Box<dyn TopologySource>, ConnectError> {
        if urls.is_empty() {
            return Err(ConnectError::NoTopology);
        }
        let control = Arc::new(Control::new(urls, &self.outward, environment));
        let failed = |source| ConnectError::System { what: "no thread for the control plane", source };
        Ok(Box::new(ControlSource::new(control, &*self.config.app, Epochs::default()).map_err(failed)?))
    }

    /// The cluster's store. May wait for the topology.
    fn open(mut self) -> Result<(Cluster, Arc<Clock>), ConnectError> {
        let none = |source| ConnectError::System { what: "no randomness", source };
        let salt = getrandom::u64().map_err(|error| none(error.into()))?;
        let seed = KeyHash::random().map_err(none)?;
        let clock = Arc::new(Clock::system());
        if let Some(folder) = &self.config.hint_dir {
            let failed = |source| ConnectError::System { what: "no folder for hints", source };
            std::fs::create_dir_all(folder).map_err(failed)?;
        }
        self.config.under_way = ClusterConfig::under_way_of(self.node_timeout);
        let source = match self.topology.take().ok_or(ConnectError::NoTopology)? {
            From::Fixed(topology) => Err(topology),
            From::Source(source) => Ok(source),
            From::Control { urls, environment } => Ok(self.control(&urls, environment)?),
        };
        let (first, source) = match source {
            Err(topology) => (topology, None),
            Ok(source) => {
                let app = &self.config.app;
                let kept = self.config.hint_dir.as_ref().map(|folder| folder.join(format!("{app}.topology.toml")));
                let mut source = Guarded::new(source, GuardConfig { kept, ..GuardConfig::default() });
                (source.first(FIRST)?, Some(source))
            }
        };
        let writer = Writer { origin: Origin::new(self.origin.0, self.origin.1.unwrap_or(salt as u8)), salt, seed };
        let (connections, item_max) = (self.node_connections, self.item_max);
        let configure = move |address| RemoteConfig {
            connections,
            item_max,
            may_be_unknown: true,
            large_apart: true,
            asks_statistics: false,
            ..RemoteConfig::new(Endpoint::new(address), seed)
        };
        let (timeout, outward) = (self.node_timeout.into(), self.outward);
        let nodes = RemoteNodes::new(Box::new(configure), timeout, outward, Arc::clone(&clock)).without_boards();
        let cluster = Cluster::new(self.config, &first, Box::new(nodes), writer, item_max, Arc::clone(&clock))?;
        cluster.start()?;
        if let Some(source) = source {
            cluster.follow(source)?;
        }
        Ok((cluster, clock))
    }
}
