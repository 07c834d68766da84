//! Where items go: to nodes, each key to the one that has it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use moneta_client::wire::VALUE_LIMIT;
use moneta_feed::apply::AsOf;
use moneta_feed::{Change, Rules, Sink, SinkError, StoreSink};
use moneta_item::Version;
use moneta_net::Endpoint;
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::{Clock, KeyHash, Policy};
use serde::Serialize;

use crate::create::CreateSink;
use crate::error::BulkError;
use crate::server::Server;
use crate::stages::{For, waiting};

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before what was not taken is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Tries of what fails: half a minute, and as long as requests take.
const TRIES: u32 = 60;
/// Tries of what a node does not create since it has just begun: longer than its clock may differ from others'.
const EARLY_TRIES: u32 = 6;

/// Tells the node that has a key, as a place among the nodes.
pub type NodeOf = Arc<dyn Fn(&[u8]) -> usize + Send + Sync>;

/// A node, or a copy that consists of several.
#[derive(Clone)]
pub struct Place {
    /// Its name for people.
    pub name: String,
    /// Its nodes.
    pub nodes: Vec<Endpoint>,
    /// Which of them has a key; a number that none has: none, and what is of the key is not written.
    pub node_of: NodeOf,
}

impl fmt::Debug for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Place").field("name", &self.name).field("nodes", &self.nodes).finish_non_exhaustive()
    }
}

impl From<Endpoint> for Place {
    fn from(node: Endpoint) -> Self {
        Self { name: node.address.to_string(), nodes: vec![node], node_of: Arc::new(|_| 0) }
    }
}

/// What became of changes at their targets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Written {
    /// Taken by version: the node has them now, or had them.
    pub taken: u64,
    /// The node has something newer, or may have deleted them since they were read.
    pub superseded: u64,
    /// Not created by version: the node may have forgotten a delete.
    pub unsure: u64,
    /// Created without a version.
    pub created: u64,
    /// Not created without a version: the key held something.
    pub there: u64,
    /// Not created without a version: expired meanwhile, or stale.
    pub over: u64,
    /// The node had no room for them.
    pub refused: u64,
    /// Deletes and flushes that a node without versions was not told.
    pub untold: u64,
}

impl Written {
    /// Those of both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            taken: self.taken + other.taken,
            superseded: self.superseded + other.superseded,
            unsure: self.unsure + other.unsure,
            created: self.created + other.created,
            there: self.there + other.there,
            over: self.over + other.over,
            refused: self.refused + other.refused,
            untold: self.untold + other.untold,
        }
    }
}

impl Written {
    /// What came after `before`, of the same target.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            taken: self.taken - before.taken,
            superseded: self.superseded - before.superseded,
            unsure: self.unsure - before.unsure,
            created: self.created - before.created,
            there: self.there - before.there,
            over: self.over - before.over,
            refused: self.refused - before.refused,
            untold: self.untold - before.untold,
        }
    }
}

/// One node of a place.
struct Node {
    /// `None`: it knows no versions.
    newer: Option<StoreSink<Remote>>,
    create: CreateSink<Remote>,
    untold: u64,
}

impl Node {
    fn new(server: &Server, clock: &Arc<Clock>) -> Result<Self, BulkError> {
        let unfit = |reason: String| BulkError::Unfit { server: server.name(), reason };
        let config = RemoteConfig {
            request_timeout: PATIENCE.into(),
            // What is too large, the node itself says: a limit here would take what is older from it, too.
            item_max: VALUE_LIMIT,
            asks_statistics: false,
            ..RemoteConfig::new(server.endpoint.clone(), KeyHash::seeded(0))
        };
        let store =
            Remote::new(config, Arc::clone(clock)).map_err(|error| unfit(format!("cannot be written: {error}")))?;
        let rules = Rules {
            as_of: AsOf::Told,
            policy: Policy::Batch,
            pause: PAUSE,
            early_tries: EARLY_TRIES,
            clock_tries: Some(TRIES),
            failure_tries: Some(TRIES),
            overlaps: true,
        };
        let newer = server
            .has_versions
            .then(|| StoreSink::new(store.clone(), Arc::clone(clock), rules, Arc::default(), Box::new(|_, _| {})));
        Ok(Self { newer, create: CreateSink::new(store, TRIES), untold: 0 })
    }

    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        let (mut newer, mut create) = (Vec::with_capacity(changes.len()), Vec::new());
        for change in changes {
            match change {
                Change::Set(set) if self.newer.is_none() || set.meta.version() == Version::ZERO => create.push(set),
                Change::Gap(_) | Change::Lost { .. } => {}
                // A source without versions is not asked for deletes: these order nothing.
                Change::Delete { version, .. } if version == Version::ZERO => self.untold += 1,
                _ if self.newer.is_none() => self.untold += 1,
                change => newer.push(change),
            }
        }
        if let Some(sink) = &mut self.newer {
            sink.take(newer)?;
        }
        self.create.take(create)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.newer.as_mut().map_or(Ok(()), Sink::settle)?;
        self.create.settle()
    }

    fn written(&self) -> Written {
        let tally = self.newer.as_ref().map(StoreSink::tally).unwrap_or_default();
        let created = self.create.created();
        Written {
            taken: tally.taken,
            superseded: tally.superseded,
            unsure: tally.unsure,
            created: created.created,
            there: created.there,
            over: created.over,
            refused: tally.refused + created.refused,
            untold: self.untold,
        }
    }
}

/// Writes to the nodes of a place.
pub struct TargetSink {
    nodes: Vec<Node>,
    node_of: NodeOf,
}

impl TargetSink {
    /// Will write to `place`, whose nodes are these servers.
    ///
    /// # Errors
    /// If one cannot be reached by its name.
    pub fn new(place: &Place, servers: &[Server]) -> Result<Self, BulkError> {
        let clock = Arc::new(Clock::system());
        let nodes = servers.iter().map(|server| Node::new(server, &clock)).collect::<Result<_, _>>()?;
        Ok(Self { nodes, node_of: Arc::clone(&place.node_of) })
    }

    /// What became of all that it took.
    pub fn written(&self) -> Written {
        self.nodes.iter().fold(Written::default(), |sum, node| sum.and(node.written()))
    }
}

impl Sink for TargetSink {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        let mut shares: Vec<Vec<Change>> = self.nodes.iter().map(|_| Vec::new()).collect();
        for change in changes {
            match change.key() {
                // What is of no node here is not wanted.
                Some(key) => {
                    if let Some(share) = shares.get_mut((self.node_of)(key)) {
                        share.push(change);
                    }
                }
                // Flushes are of all nodes.
                None => shares.iter_mut().for_each(|share| share.push(change.clone())),
            }
        }
        waiting(For::Target, || self.nodes.iter_mut().zip(shares).try_for_each(|(node, share)| node.take(share)))
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        waiting(For::Target, || self.nodes.iter_mut().try_for_each(Node::settle))
    }

    fn take_lacks(&mut self) -> bool {
        self.nodes
            .iter_mut()
            .filter_map(|node| node.newer.as_mut())
            .fold(false, |lacks, sink| sink.take_lacks() | lacks)
    }
}
