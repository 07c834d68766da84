//! Where rows go: each to the node that has its key, of every copy; by version where the node knows them, else as a plain set.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use futures_util::future::join_all;
use moneta_bulk::{KnownLives, Place, Server};
use moneta_client::wire::VALUE_LIMIT;
use moneta_client::wire::blocking::Dialogue;
use moneta_item::request::{Exptime, Write};
use moneta_item::{ItemMeta, ItemRef, Value, Version};
use moneta_net::Endpoint;
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::steps::into_pending;
use moneta_store::{
    Clock, Cx, ErrorKind, Key, KeyHash, Op, Outcome, Pending, Policy, Put, Store, StoreError, Unseen, Written,
    component,
};

use crate::error::LoadError;
use crate::mapping::Made;

/// How long a request may take.
const PATIENCE: Duration = Duration::from_secs(5);
/// Pause before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);
/// Tries of what fails: half a minute, and as long as requests take.
const TRIES: u32 = 60;

/// What became of a row, the worst of all copies last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fate {
    /// This very item was there.
    Unchanged,
    /// Stored.
    Stored,
    /// Something newer is there, or was deleted or flushed.
    Superseded,
    /// Not created: a node may have forgotten a delete since the row's chunk began.
    Unsure,
    /// A node has no room for it.
    Refused,
}

/// A row that is to be written.
pub(crate) struct Outgoing {
    /// Its number in its file, from 1.
    pub(crate) row: u64,
    pub(crate) item: Made,
    pub(crate) version: Version,
    /// When its chunk began, Unix milliseconds.
    pub(crate) as_of: u64,
}

struct Node {
    name: String,
    server: Server,
    store: Remote,
    /// It has none of the rows of before.
    is_anew: bool,
}

/// Writes rows to all copies.
pub(crate) struct RowSink {
    copies: Vec<(Place, Vec<Node>)>,
    cx: Cx,
    clock: Arc<Clock>,
    /// Since when nodes that have begun anew remember deletes, in Unix milliseconds, or later.
    anew_since: u64,
    /// Rows are not for nodes without versions that have them: these would set them over what is newer.
    completes: bool,
    under_way: Vec<Outgoing>,
    /// Of the row, the copy and the node.
    pending: Vec<(usize, usize, usize, Pending<Outcome>)>,
}

impl RowSink {
    /// Will write to all these places.
    pub(crate) fn new(places: &[Place]) -> Result<Self, LoadError> {
        let clock = Arc::new(Clock::system());
        let node = |endpoint: &Endpoint| {
            let server = Server::look(endpoint)?;
            let config = RemoteConfig {
                request_timeout: PATIENCE.into(),
                item_max: VALUE_LIMIT,
                asks_statistics: false,
                ..RemoteConfig::new(endpoint.clone(), KeyHash::seeded(0))
            };
            let name = server.name();
            let store = Remote::new(config, Arc::clone(&clock))
                .map_err(|error| LoadError::Refused(format!("{name} cannot be written: {error}")))?;
            Ok(Node { name, server, store, is_anew: false })
        };
        let copy = |place: &Place| {
            let nodes: Result<Vec<Node>, LoadError> = place.nodes.iter().map(node).collect();
            Ok((place.clone(), nodes?))
        };
        let copies: Result<Vec<_>, LoadError> = places.iter().map(copy).collect();
        let cx = Cx::outside().under(Policy::Batch);
        Ok(Self {
            copies: copies?,
            cx,
            clock,
            anew_since: 0,
            completes: false,
            under_way: Vec::new(),
            pending: Vec::new(),
        })
    }

    /// Whether all nodes know versions, so that a row may be written again.
    pub(crate) fn has_versions(&self) -> bool {
        self.nodes().all(|node| node.server.has_versions)
    }

    /// The region in which rows are written. `wanted`: what the user says.
    pub(crate) fn region(&self, wanted: Option<u8>) -> Result<u8, LoadError> {
        Ok(Server::common_region(self.nodes().map(|node| &node.server), wanted)?)
    }

    /// The lives of all nodes.
    pub(crate) fn lives(&self) -> KnownLives {
        KnownLives::of(self.nodes().map(|node| &node.server))
    }

    /// Nodes with other lives than these have none of the rows of before: they create them, whatever was deleted since. Tells one.
    pub(crate) fn find_anew(&mut self, known: &KnownLives) -> Result<Option<String>, LoadError> {
        let mut found = None;
        for node in self.copies.iter_mut().flat_map(|(_, nodes)| nodes) {
            node.is_anew = known.lack(&node.server);
            if node.is_anew && found.is_none() {
                found = Some(match known.has_name(&node.server) {
                    true => format!("{} has begun anew, empty, since rows were written to it", node.name),
                    false => format!("{} was no target of this load before", node.name),
                });
            }
        }
        if found.is_some() {
            self.anew_since = self.now()?.0;
        }
        Ok(found)
    }

    /// What follows is written to complete nodes that have begun anew.
    pub(crate) fn complete(&mut self, completes: bool) {
        self.completes = completes;
    }

    /// Refuses targets that have lost what they were given.
    pub(crate) fn check_lives(&self) -> Result<(), LoadError> {
        Ok(self.nodes().try_for_each(|node| node.server.check_life())?)
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.copies.iter().flat_map(|(_, nodes)| nodes)
    }

    /// Now by the nodes' clocks, in Unix milliseconds, and the newest version that one of them knows: what is written now is
    /// above it.
    pub(crate) fn now(&self) -> Result<(u64, Version), LoadError> {
        self.clock.refresh();
        let (mut now, mut newest) = (None, Version::ZERO);
        for node in self.nodes().filter(|node| node.server.has_versions) {
            now = now.max(self.tried(node, |node| {
                let told =
                    Dialogue::open(&node.server.endpoint, None, 0).and_then(|mut dialogue| dialogue.server_time());
                told.map_err(|error| StoreError::new(ErrorKind::Unreachable, error.to_string()))
            })?);
            let told =
                self.tried(node, |node| pollster::block_on(into_pending(component::newest(&node.store, &self.cx))))?;
            newest = newest.max(told);
        }
        Ok((now.unwrap_or_else(|| self.clock.millis()), newest))
    }

    fn tried<T>(&self, node: &Node, mut ask: impl FnMut(&Node) -> Result<T, StoreError>) -> Result<T, LoadError> {
        let mut done = 0;
        loop {
            match ask(node) {
                Err(source) if done >= TRIES => return Err(LoadError::Store { server: node.name.clone(), source }),
                Err(_) => sleep(PAUSE),
                Ok(told) => return Ok(told),
            }
            done += 1;
        }
    }

    /// Begins to write rows, once those of before have ended; tells what became of these.
    pub(crate) fn take(&mut self, rows: Vec<Outgoing>) -> Result<Vec<(u64, Fate)>, LoadError> {
        let ended = self.settle()?;
        for (at, row) in rows.iter().enumerate() {
            for (copy, (place, nodes)) in self.copies.iter().enumerate() {
                let node = (place.node_of)(&row.item.key);
                if !self.completes || nodes[node].is_anew || nodes[node].server.has_versions {
                    self.pending.push((at, copy, node, self.begin(&nodes[node], row)));
                }
            }
        }
        self.under_way = rows;
        Ok(ended)
    }

    /// Waits until all has ended; tells what became of it.
    pub(crate) fn settle(&mut self) -> Result<Vec<(u64, Fate)>, LoadError> {
        let rows = std::mem::take(&mut self.under_way);
        let mut fates = vec![Fate::Unchanged; rows.len()];
        let mut done = 0;
        while !self.pending.is_empty() {
            let (places, pending): (Vec<_>, Vec<_>) = std::mem::take(&mut self.pending)
                .into_iter()
                .map(|(at, copy, node, end)| ((at, copy, node), end))
                .unzip();
            let mut again = Vec::new();
            let mut failed = None;
            for (place, ended) in places.into_iter().zip(pollster::block_on(join_all(pending))) {
                match ended {
                    Ok(outcome) => fates[place.0] = fates[place.0].max(fate(outcome.written())),
                    Err(error) => {
                        failed = Some((place, error));
                        again.push(place);
                    }
                }
            }
            done += 1;
            let Some(((_, copy, node), source)) = failed else { break };
            let is_final = matches!(source.kind(), ErrorKind::Unsupported | ErrorKind::NoVersions);
            if is_final || done >= TRIES {
                return Err(LoadError::Store { server: self.copies[copy].1[node].name.clone(), source });
            }
            sleep(PAUSE);
            for (at, copy, node) in again {
                self.pending.push((at, copy, node, self.begin(&self.copies[copy].1[node], &rows[at])));
            }
        }
        Ok(rows.iter().map(|row| row.row).zip(fates).collect())
    }

    fn begin(&self, node: &Node, row: &Outgoing) -> Pending<Outcome> {
        let Made { key, value, flags, expiry } = &row.item;
        let key = Key::new(key, node.store.seed());
        let (put, set, item);
        let op = if node.server.has_versions {
            let meta = ItemMeta { flags: *flags, expiry: *expiry, cas: row.version.0, ..ItemMeta::default() };
            item = ItemRef { meta, value: Value::whole(value) };
            let as_of = if node.is_anew { row.as_of.max(self.anew_since) } else { row.as_of };
            put = Put::Newer { as_of, base: None };
            Op::Put(&item, put)
        } else {
            set = Write { flags: *flags, exptime: Exptime(expiry.0.into()), ..Write::default() };
            Op::Write(value, &set)
        };
        into_pending(node.store.call(&self.cx, &key, op, &mut Unseen))
    }
}

fn fate(written: Written) -> Fate {
    match written {
        Written::Stored { .. } => Fate::Stored,
        Written::Unchanged { .. } => Fate::Unchanged,
        Written::NotStored => Fate::Unsure,
        Written::TooLarge | Written::OutOfMemory => Fate::Refused,
        _ => Fate::Superseded,
    }
}
