//! What all threads share of a cluster store.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use moneta_store::{Clock, ErrorKind, KeyHash, Slot, StoreError};
use parking_lot::{Mutex, RwLock};

use crate::board::Posts;
use crate::budget::Budget;
use crate::compared::Compared;
use crate::config::ClusterConfig;
use crate::counters::ClusterCounters;
use crate::cut::Cut;
use crate::error::ClusterError;
use crate::health::Probes;
use crate::hints::{FolderLock, Hints};
use crate::layout::{Layout, Replica};
use crate::listening::Listening;
use crate::mending::Mending;
use crate::node::{Connect, Node, Opened, takes_no_connection};
use crate::overlap::Overlap;
use crate::pace::Pace;
use crate::rules::Rules;
use crate::sources::{SourceCounts, Watch};
use crate::stamp::Stamps;
use crate::time::{TimeKeeper, Timekept};
use crate::topologies::Standing;
use crate::topology::Topology;
use crate::turns::Turns;
use crate::unknown::Unknowns;
use crate::unversioned::AnyNode;

/// The state of a cluster store.
pub(crate) struct ClusterShared {
    /// What stays as it is at the start.
    pub(crate) config: ClusterConfig,
    /// What of that may change, in its place.
    pub(crate) rules: Rules,
    pub(crate) clock: Arc<Clock>,
    /// Keeps the clock, which other clusters of this process may share.
    pub(crate) keeper: Arc<TimeKeeper>,
    pub(crate) stamps: Stamps,
    pub(crate) budget: Budget,
    pub(crate) counters: ClusterCounters,
    pub(crate) cut: Cut,
    pub(crate) turns: Turns,
    pub(crate) unknowns: Unknowns,
    /// A node has told of a version from the future: either of the two clocks is wrong.
    pub(crate) doubts_clock: AtomicBool,
    /// No node has taken the last write that nodes refused.
    pub(crate) refused: AtomicBool,
    /// Longest value, in bytes, that a change may make.
    pub(crate) item_max: usize,
    /// Where workers have their connections.
    pub(crate) slot: Slot,
    pub(crate) connect: Box<dyn Connect>,
    pub(crate) layout: RwLock<Arc<Layout>>,
    /// That of the current layout.
    pub(crate) generation: AtomicU64,
    /// Held while a topology is taken.
    pub(crate) changing: Mutex<()>,
    pub(crate) turn: AtomicUsize,
    pub(crate) closed: AtomicBool,
    /// On the files of hints, until the store is closed.
    pub(crate) lock: Mutex<Option<FolderLock>>,
    /// Follows the topology's source.
    pub(crate) watch: Mutex<Option<Watch>>,
    /// What that source has done.
    pub(crate) source: Mutex<Option<Arc<SourceCounts>>>,
    pub(crate) seed: KeyHash,
    /// What other processes have posted.
    pub(crate) board: Mutex<Posts>,
    /// How the topology of this process stands to those of others.
    // Locked before the board.
    pub(crate) standing: Mutex<Standing>,
    pub(crate) overlap: Overlap,
    /// Others are to be heard now rather than with the next round.
    pub(crate) tell_now: AtomicBool,
    /// When the last round began in which a board answered, in milliseconds since the Unix epoch.
    pub(crate) heard_at: AtomicU64,
    pub(crate) listening: Listening,
    /// Last writes of processes that are gone, to be compared.
    pub(crate) mending: Mutex<Mending>,
}

impl ClusterShared {
    /// The keys that may be compared now.
    ///
    /// # Errors
    /// If none may: another app has nodes of this one, and keys do not tell whose they are.
    pub(crate) fn compared(&self) -> Result<Compared<'_>, StoreError> {
        let is_shared = !self.board.lock().other_apps(self.clock.millis()).is_empty();
        if is_shared && self.config.prefix.is_empty() {
            let why = "another app has nodes of this one, and keys do not tell whose they are";
            return Err(StoreError::new(ErrorKind::Unsupported, why));
        }
        Ok(Compared { prefix: &self.config.prefix, others: &self.config.others, is_shared })
    }

    pub(crate) fn layout(&self) -> Arc<Layout> {
        Arc::clone(&self.layout.read())
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// A number that is one more each time.
    pub(crate) fn turn(&self) -> usize {
        self.turn.fetch_add(1, Ordering::Relaxed)
    }

    /// The layout of a topology, with the nodes of the one of before that stay.
    pub(crate) fn lay_out(&self, topology: &Topology, old: &Layout) -> Result<Layout, ClusterError> {
        let mut replicas = Vec::new();
        let mut nodes: Vec<Arc<Node>> = Vec::new();
        for replica in &topology.replicas {
            let first = nodes.len();
            for place in &replica.nodes {
                let name = format!("{}/{}", replica.name, place.slot);
                let known = old.nodes.iter().find(|node| node.name == name);
                // One that was renamed still lacks what it lacked.
                let renamed = || {
                    let is_same = |node: &&Arc<Node>| {
                        !place.address.is_unheld() && node.place.address.place() == place.address.place()
                    };
                    old.nodes.iter().find(|node| is_same(node) && !is_named(topology, &node.name))
                };
                let node = match known.filter(|node| node.place == *place && node.zone == replica.zone) {
                    Some(node) => Arc::clone(node),
                    None => {
                        let failed = |source| ClusterError::Node { node: name.clone(), source };
                        let Opened { store, answers } = self.connect.open(place).map_err(failed)?;
                        let (store, versions) = AnyNode::new(store, &self.clock);
                        let hints = match known {
                            Some(before) => Arc::clone(&before.hints),
                            None => match renamed() {
                                Some(before) => self.moved(&before.hints, &name),
                                None => Arc::new(self.hints(&name)?),
                            },
                        };
                        let health = Default::default();
                        Arc::new(Node {
                            name,
                            zone: replica.zone.clone(),
                            place: place.clone(),
                            store: Arc::new(store),
                            versions,
                            health,
                            pace: Pace::new(answers),
                            hints,
                            flight: Default::default(),
                            since: Default::default(),
                            board: Default::default(),
                            sweep: Default::default(),
                            future: AtomicU64::new(0),
                        })
                    }
                };
                nodes.push(node);
            }
            let ring = crate::ring::Ring::new(topology.ring, &replica.nodes)?;
            let (name, zone, count) = (replica.name.clone(), replica.zone.clone(), replica.nodes.len());
            replicas.push(Replica { name, zone, write_only: replica.write_only, ring, first, count });
        }
        let is_near = |replica: &Replica| self.config.zone.as_ref().is_none_or(|zone| *zone == replica.zone);
        let (near, far): (Vec<usize>, Vec<usize>) = (0..replicas.len())
            .filter(|&replica| !replicas[replica].write_only)
            .partition(|&replica| is_near(&replicas[replica]));
        let count = near.len();
        let readable = [near, far].concat();
        Ok(Layout { epoch: topology.epoch, generation: old.generation + 1, replicas, nodes, readable, near: count })
    }

    /// Says so where no copy is in the zone of this process: a zone that is misspelt costs nothing but time, and so is seen
    /// nowhere else.
    pub(crate) fn warn_of_zone(&self, topology: &Topology) {
        let Some(zone) = &self.config.zone else { return };
        let mut zones: Vec<&str> = topology.replicas.iter().map(|replica| replica.zone.as_str()).collect();
        if !zones.contains(&zone.as_str()) {
            zones.sort_unstable();
            zones.dedup();
            let (app, zones) = (&self.config.app, zones.join(", "));
            tracing::warn!(app, zone, zones, "the topology has no copy in this zone: every read goes to another one");
        }
    }

    fn hints(&self, name: &str) -> Result<Hints, ClusterError> {
        let bytes = self.config.hint_bytes;
        let Some(path) = self.hints_path(name) else { return Ok(Hints::new(bytes)) };
        Hints::open(bytes, &path).map_err(|source| ClusterError::Hints { path, source })
    }

    fn hints_path(&self, name: &str) -> Option<PathBuf> {
        let file = || format!("{}.hints", file_name(&format!("{}.{name}", self.config.app)));
        self.config.hint_dir.as_ref().map(|folder| folder.join(file()))
    }

    /// Hints under another name.
    fn moved(&self, hints: &Arc<Hints>, name: &str) -> Arc<Hints> {
        self.hints_path(name).into_iter().for_each(|path| hints.move_to(&path));
        Arc::clone(hints)
    }

    /// A node has failed. After too many failures in a row it is not asked any more if it takes no connection; else it is asked
    /// by this process itself, as what clients ask may be why it fails.
    pub(crate) fn note_failure(&self, node: &Node, error: &StoreError) {
        if error.is_repeated() || node.health.note_failure() < self.rules.eject_after() || node.health.is_ejected() {
            return;
        }
        match takes_no_connection(error) {
            true => self.eject_away(node),
            false => node.health.suspect(),
        }
    }

    /// What takes no connection is not asked, however many of its zone are away.
    pub(crate) fn eject_away(&self, node: &Node) {
        if node.health.eject_away(self.clock.millis(), self.probes()) {
            tracing::warn!(
                app = self.config.app,
                node = node.name,
                "the node takes no connection: it is not asked until it answers a probe"
            );
        }
    }

    /// Whether one more node of this one's zone may be ejected though it takes connections.
    pub(crate) fn may_eject(&self, layout: &Layout, node: &Node) -> bool {
        let zone: Vec<_> = layout.nodes.iter().filter(|other| other.zone == node.zone).collect();
        let ejected = zone.iter().filter(|other| other.health.is_ejected()).count();
        ejected < (zone.len() * self.rules.eject_share() as usize / 100).max(1)
    }

    /// The pauses between probes of a node that is ejected.
    pub(crate) fn probes(&self) -> Probes {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        Probes { min: millis(self.config.probe_min), max: millis(ClusterConfig::PROBE_MAX) }
    }

    /// Takes note that nodes have refused a write and none took it, or that one was taken.
    pub(crate) fn note_refused(&self, is_refused: bool) {
        if self.refused.load(Ordering::Relaxed) != is_refused {
            self.refused.store(is_refused, Ordering::Relaxed);
        }
    }

    /// A change that others always overtook.
    pub(crate) fn outrun(&self) -> StoreError {
        StoreError::new(ErrorKind::Unavailable, "others change the key all the time: try again")
    }

    pub(crate) fn nothing_to_read(&self) -> StoreError {
        StoreError::new(ErrorKind::Unreachable, "no copy answers reads")
    }
}

/// Whether a topology has a node of this name: its replica's and its slot's.
fn is_named(topology: &Topology, name: &str) -> bool {
    let mut names =
        topology.replicas.iter().flat_map(|replica| replica.nodes.iter().map(|node| (&replica.name, &node.slot)));
    names.any(|(replica, slot)| name.strip_prefix(replica).is_some_and(|rest| rest.strip_prefix('/') == Some(slot)))
}

/// A name for a file in which bytes that a file system may not take are written by their numbers.
pub(crate) fn file_name(text: &str) -> String {
    let byte = |byte| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' => char::from(byte).to_string(),
        other => format!("_{other:02x}"),
    };
    text.bytes().map(byte).collect()
}

impl Timekept for ClusterShared {
    fn is_closed(&self) -> bool {
        self.is_closed()
    }

    fn layout(&self) -> Arc<Layout> {
        self.layout()
    }

    fn time(&self, node: &Node) -> Option<u64> {
        self.connect.time(&node.place)
    }

    fn take_doubt(&self) -> bool {
        self.doubts_clock.swap(false, Ordering::Relaxed)
    }

    fn stamp_anew(&self) {
        self.stamps.begin_again();
    }
}
