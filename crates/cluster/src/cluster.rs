//! The store: each operation goes to the nodes that hold its key, by the rule of its kind.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use moneta_store::component::{Component, Flush, Health, Parts, Report};
use moneta_store::latency::Kind;
use moneta_store::request::{Retrieve, WriteMode};
use moneta_store::steps::start_operation;
use moneta_store::{
    Clock, Cx, Key, KeyHash, Lookup, Op, Origin, Outcome, OwnedKey, OwnedOp, PendingReads, Put, Reactors, ReadSeveral,
    Slot, Step, Store, StoreError, StoreStats, Visit,
};
use parking_lot::{Mutex, RwLock};

use crate::board::Posts;
use crate::budget::Budget;
use crate::call::Call;
use crate::config::ClusterConfig;
use crate::counters::ClusterCounters;
use crate::cut::Cut;
use crate::decide::is_plain;
use crate::durations::Timed;
use crate::error::ClusterError;
use crate::hints::FolderLock;
use crate::layout::Layout;
use crate::metrics;
use crate::node::Connect;
use crate::overlap::Overlap;
use crate::reactor::ClusterReactor;
use crate::reads::Ask;
use crate::rules::Rules;
use crate::shared::{ClusterShared, file_name};
use crate::sources::{Advice, Advised, Guarded, TopologySource, Watch};
use crate::stamp::Stamps;
use crate::status::{NodeStatus, Routed, Status, Traffic};
use crate::time::{TimeKeeper, Timekept};
use crate::topologies::Agreement;
use crate::topology::Topology;

/// Share of all keys of which no copy is asked where the app still counts as served: where slots have other names in each zone,
/// some are placed on the nodes that are away of all zones.
const LOST_MAX: f64 = 0.01;

/// Who this process is among those that write.
#[derive(Clone, Copy, Debug)]
pub struct Writer {
    /// Region and writer, part of each version.
    pub origin: Origin,
    /// Where the counters of versions begin: another number in each process.
    pub salt: u64,
    /// How keys are hashed within this process: as the stores of the nodes do.
    pub seed: KeyHash,
}

/// An app's data in several copies. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Cluster(Arc<ClusterShared>);

impl Cluster {
    /// A store on the nodes of `topology`. They need not be up. Values longer than `item_max` bytes are refused.
    ///
    /// # Errors
    /// When the topology makes no sense, a node's store cannot be made, or another process has the folder of hints.
    pub fn new(
        config: ClusterConfig,
        topology: &Topology,
        connect: Box<dyn Connect>,
        writer: Writer,
        item_max: usize,
        clock: Arc<Clock>,
    ) -> Result<Self, ClusterError> {
        let empty =
            Layout { epoch: 0, generation: 0, replicas: Vec::new(), nodes: Vec::new(), readable: Vec::new(), near: 0 };
        let lock_file = |folder: &PathBuf| folder.join(format!("{}.lock", file_name(&config.app)));
        let lock = config.hint_dir.as_ref().map(lock_file).map(|path| FolderLock::take(&path)).transpose()?;
        let shared = ClusterShared {
            stamps: Stamps::new(
                writer.origin,
                writer.salt,
                config.clock_skew_max.as_millis().try_into().unwrap_or(u64::MAX),
            ),
            budget: Budget::new(),
            counters: ClusterCounters::default(),
            cut: Cut::default(),
            turns: Default::default(),
            unknowns: Default::default(),
            keeper: TimeKeeper::of(&clock),
            doubts_clock: AtomicBool::new(false),
            refused: AtomicBool::new(false),
            item_max,
            slot: Slot::draw(),
            connect,
            layout: RwLock::new(Arc::new(empty)),
            generation: AtomicU64::new(0),
            changing: Mutex::new(()),
            turn: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            lock: Mutex::new(lock),
            watch: Mutex::default(),
            source: Mutex::default(),
            seed: writer.seed,
            board: Mutex::new(Posts::of(&config.app, writer.salt)),
            standing: Mutex::default(),
            overlap: Overlap::default(),
            tell_now: AtomicBool::new(false),
            heard_at: AtomicU64::new(0),
            listening: Default::default(),
            mending: Mutex::default(),
            rules: Rules::new(&config),
            config,
            clock,
        };
        let cluster = Self(Arc::new(shared));
        cluster.change(topology)?;
        let timekept: Arc<dyn Timekept> = Arc::<ClusterShared>::clone(&cluster.0);
        cluster.0.keeper.join(Arc::downgrade(&timekept));
        Ok(cluster)
    }

    /// Takes a new topology. Requests under way end on the nodes where they began; nodes that stay keep their connections, and
    /// nodes that take over a slot keep its hints.
    ///
    /// # Errors
    /// When it makes no sense, or a node's store cannot be made: the one of before stays then.
    pub fn change(&self, topology: &Topology) -> Result<(), ClusterError> {
        self.take(topology, 0)
    }

    /// The same of one that takes effect `at`, in milliseconds since the Unix epoch; 0: at once.
    fn take(&self, topology: &Topology, at: u64) -> Result<(), ClusterError> {
        let _changing = self.0.changing.lock();
        let old = self.0.layout();
        let layout = Arc::new(self.0.lay_out(topology, &old)?);
        let generation = layout.generation;
        *self.0.layout.write() = layout;
        self.0.generation.store(generation, Ordering::Release);
        self.0.counters.topologies.add(1);
        tracing::info!(
            app = self.0.config.app,
            epoch = topology.epoch,
            nodes = self.0.layout().nodes.len(),
            "topology taken"
        );
        self.0.note_taken(topology, at, old);
        self.0.warn_of_zone(topology);
        Ok(())
    }

    /// Takes the topologies of `source`, whose first one the cluster has, until it is closed. A later one takes effect a moment
    /// after this process has told others of it. One that cannot be taken, since there can be no store for a node of it, is tried
    /// again once a second.
    ///
    /// # Errors
    /// When the system has no thread for it.
    pub fn follow<S: TopologySource + 'static>(&self, source: Guarded<S>) -> Result<(), ClusterError> {
        let cluster = Arc::downgrade(&self.0);
        let counts = source.counts();
        if !counts.status().counted {
            self.0.standing.lock().own.epoch = 0;
        }
        *self.0.source.lock() = Some(counts);
        // The same failure is logged once.
        let mut failure = None;
        let taken = move |topology: &Topology| {
            let Some(shared) = cluster.upgrade() else { return true };
            let at = shared.give_notice(topology);
            let ended = Self(shared).take(topology, at).map_err(|error| (topology.epoch, error.to_string()));
            if let Err((epoch, error)) = &ended
                && failure.as_ref() != ended.as_ref().err()
            {
                tracing::error!(epoch, %error, "the topology cannot be taken yet: the one of before stays");
            }
            failure = ended.err();
            failure.is_none()
        };
        let cluster = Arc::downgrade(&self.0);
        let advised = move |advised: &[Advised]| {
            if let Some(shared) = cluster.upgrade() {
                Self(shared).advise(advised);
            }
        };
        *self.0.watch.lock() = Some(Watch::start(source, taken, advised)?);
        Ok(())
    }

    /// Takes what a source of topologies says of its nodes' states, of all of them: one that is not `advised` of is as it should
    /// be. It is advice, which may be late or false: reads ask a leaving node last, one that is said to be away is asked whether it
    /// is there, one that is said to be back is probed now, and what nodes answer counts. No write goes elsewhere by it.
    pub fn advise(&self, advised: &[Advised]) {
        let advice: HashMap<(&str, &str), Advice> =
            advised.iter().map(|one| ((one.replica.as_str(), one.slot.as_str()), one.advice)).collect();
        let (layout, now) = (self.0.layout(), self.0.clock.millis());
        for replica in &layout.replicas {
            for node in &layout.nodes[replica.first..replica.first + replica.count] {
                node.health.advise(advice.get(&(replica.name.as_str(), node.place.slot.as_str())).copied(), now);
            }
        }
    }

    /// What the app's nodes are, and how they are.
    pub fn status(&self) -> Status {
        let layout = self.0.layout();
        let now = self.0.clock.millis();
        let of = |replica, node| NodeStatus { traffic: Traffic::of(node), ..NodeStatus::of(replica, node, now) };
        let nodes = layout.replicas.iter().flat_map(|replica| {
            let nodes = &layout.nodes[replica.first..replica.first + replica.count];
            nodes.iter().map(move |node| of(replica, node))
        });
        let (app, source_failure) = (self.0.config.app.clone(), self.source_failure());
        let agreement = self.0.standing.lock().agreement;
        Status { app, epoch: layout.epoch, agreement, source_failure, nodes: nodes.collect() }
    }

    /// Whether a node lacks something that this process remembers for it: a hint, a flush, or keys in doubt.
    pub fn owes(&self) -> bool {
        let layout = self.0.layout();
        let mut hints = layout.nodes.iter().map(|node| &node.hints);
        hints.any(|hints| hints.counts().0 > 0 || hints.doubt_share() > 0.0 || !hints.floors().is_empty())
    }

    /// Why the topology's source cannot be read, if it cannot.
    fn source_failure(&self) -> Option<Arc<str>> {
        self.0.watch.lock().as_ref().and_then(Watch::failure)
    }

    /// Where a key's copies are: those that reads go to first, then the others.
    pub fn route(&self, key: &[u8]) -> Vec<Routed> {
        let layout = self.0.layout();
        let written = (0..layout.replicas.len()).filter(|replica| !layout.readable.contains(replica));
        let order = layout.readable.iter().copied().chain(written);
        order
            .map(|replica| {
                let replica = &layout.replicas[replica];
                let node = &layout.nodes[replica.node_of(key)];
                let lacks_write = !node.known(&Key::new(key, self.0.seed)).is_nothing();
                Routed { node: NodeStatus::of(replica, node, self.0.clock.millis()), lacks_write }
            })
            .collect()
    }

    /// Whether some node serves another cluster, too.
    pub(crate) fn shares_nodes(&self, other: &Self) -> bool {
        let (ours, theirs) = (self.0.layout(), other.0.layout());
        ours.nodes
            .iter()
            .any(|node| theirs.nodes.iter().any(|other| other.place.address.place() == node.place.address.place()))
    }

    /// Waits until the boards of the nodes were read once.
    pub(crate) async fn heard(&self) {
        self.0.listening.heard().await;
    }

    /// Other apps whose processes have posted on the boards of the nodes lately.
    pub(crate) fn other_apps(&self) -> Vec<String> {
        self.0.board.lock().other_apps(self.0.clock.millis())
    }

    /// The rules that may change while it serves.
    pub fn rules(&self) -> &Rules {
        &self.0.rules
    }

    /// Changes how long a request to a node may take. Requests that are under way go by this time or the one before.
    pub fn set_node_timeout(&self, timeout: Duration) {
        self.0.rules.extend_under_way(ClusterConfig::under_way_of(timeout));
        self.0.connect.set_timeout(timeout);
    }

    /// The configuration, as it was at the start.
    pub fn config(&self) -> &ClusterConfig {
        &self.0.config
    }

    pub(crate) fn shared(&self) -> &Arc<ClusterShared> {
        &self.0
    }

    /// What is answered by nodes.
    fn begin(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>) -> Step {
        let call = Call::new(&self.0, cx);
        let owned = OwnedKey::of(key);
        match op {
            Op::Read(request) if request.touch.is_none() && request.vivify.is_none() && !request.claim => {
                Step::Wait(Box::pin(call.look(owned, Ask::Read(*request))))
            }
            Op::Read(request) if request.touch.is_none() => {
                let request = *request;
                start_operation(async move {
                    let lookup = call.clone().read(owned.clone(), request).await?;
                    match (lookup, request.vivify) {
                        (Lookup::Miss { .. }, Some(_)) => call.decide(owned, OwnedOp::Read(request)).await,
                        (lookup, _) => Ok(lookup.into()),
                    }
                })
            }
            Op::Peek => Step::Wait(Box::pin(call.look(owned, Ask::Peek))),
            Op::Write(value, _) if value.len() > self.0.item_max => {
                start_operation(async move { call.refuse_too_large(owned).await })
            }
            Op::Write(value, request)
                if request.mode == WriteMode::Set && request.compare.is_none() && request.new_cas.is_none() =>
            {
                let (value, request) = (value.to_vec(), *request);
                start_operation(async move { call.set(owned, value, request).await })
            }
            Op::Delete(request) if is_plain(request) => start_operation(async move { call.delete(owned).await }),
            Op::Put(item, Put::Newer { as_of, base }) => {
                let (meta, value) = (item.meta, item.value.to_vec());
                start_operation(async move { call.forward(owned, meta, value, as_of, base).await })
            }
            Op::Put(item, how) => {
                let (meta, value) = (item.meta, item.value.to_vec());
                start_operation(async move { call.put(owned, meta, value, how).await })
            }
            Op::Bury(version) => start_operation(async move { call.forward_delete(owned, version).await }),
            Op::Drop => {
                let drops = async move {
                    let gone = call.delete(owned).await;
                    drop(gone);
                };
                Call::new(&self.0, cx).spawn(Box::pin(drops));
                Step::Done(Ok(Outcome::Done))
            }
            op => {
                let op = OwnedOp::of(op);
                start_operation(async move { call.decide(owned, op).await })
            }
        }
    }
}

impl Store for Cluster {
    fn call(&self, cx: &Cx, key: &Key<'_>, op: Op<'_>, _: &mut dyn Visit) -> Step {
        match op {
            Op::Holds => return Step::Done(Ok(Outcome::Held(true))),
            Op::NoteHit => return Step::Done(Ok(Outcome::Done)),
            Op::NextCas => return Step::Done(Ok(Outcome::Cas(self.0.stamps.next(&self.0.clock, key.hash).0))),
            Op::BuriedAs => return Step::Done(Ok(Outcome::Cas(0))),
            _ => {}
        }
        let timed = Timed::begin(Kind::of(&op), 1);
        let step = self.begin(cx, key, op);
        match timed {
            None => step,
            Some(timed) => timed.step(&self.0.counters.durations, step),
        }
    }

    fn together(&self) -> Option<&dyn ReadSeveral> {
        Some(self)
    }

    fn announce(&self, _: &[Key<'_>]) {}

    fn seed(&self) -> KeyHash {
        self.0.seed
    }
}

impl ReadSeveral for Cluster {
    fn read_several(&self, cx: &Cx, keys: &[Key<'_>], request: &Retrieve) -> Option<PendingReads> {
        let is_plain = request.touch.is_none() && request.vivify.is_none() && !request.claim;
        if !is_plain {
            return None;
        }
        let timed = Timed::begin(Kind::Get, keys.len() as u64);
        let reads = Call::new(&self.0, cx).look_several(keys, request);
        Some(match timed {
            None => reads,
            Some(timed) => timed.reads(&self.0.counters.durations, reads),
        })
    }
}

impl Component for Cluster {
    /// Nodes come and go, so they are no parts: this component attaches, reports and closes them.
    fn parts(&self) -> Parts<'_> {
        let flush = self.0.rules.allows_flush().then_some(self as &dyn Flush);
        Parts { below: Vec::new(), walk: Some(self), flush, resize: None, observe: None, feed: None }
    }

    fn attach(&self, worker: &mut Reactors) {
        match ClusterReactor::new(&self.0.layout(), self.0.counters.reads.of_worker()) {
            Ok(reactor) => worker.add(self.0.slot, std::rc::Rc::new(reactor)),
            Err(error) => tracing::warn!(%error, "a worker cannot have connections to nodes: its requests use threads"),
        }
    }

    fn report(&self, cx: &Cx, _: Vec<Report>) -> Report {
        let layout = self.0.layout();
        let agrees = self.0.standing.lock().agreement == Agreement::Agrees;
        let mut all = metrics::samples(&self.0.config.app, &self.0.counters, &layout, agrees, self.0.clock.offset());
        if let Some(watch) = &*self.0.watch.lock() {
            all.extend(metrics::of_source(&self.0.config.app, &watch.status()));
        }
        // A node's connections, as those of any remote store.
        let of_nodes: Vec<Report> =
            layout.nodes.iter().map(|node| moneta_store::component::report(&*node.store, cx)).collect();
        let mut stats = StoreStats { kind: "cluster", ..StoreStats::default() };
        if cx.asks_statistics() {
            layout.held(&of_nodes.iter().map(|report| report.stats).collect::<Vec<_>>(), &mut stats);
        }
        all.extend(of_nodes.into_iter().flat_map(|report| report.metrics));
        Report { stats, metrics: all }
    }

    /// Ready as long as some copy of nearly each key is asked. A topology that cannot be read is told: the one of before is as
    /// good as it was.
    fn health(&self, _: Vec<Health>) -> Health {
        let layout = self.0.layout();
        let app = &self.0.config.app;
        let of_source = |why| format!("{app}: the topology of epoch {} stays: {why}", layout.epoch);
        let mut notes: Vec<String> = self.source_failure().map(of_source).into_iter().collect();
        let agreement = self.0.standing.lock().agreement;
        if agreement != Agreement::Agrees {
            notes.push(format!("{app}: the topology of epoch {} {agreement}", layout.epoch));
        }
        for node in &layout.nodes {
            if let Some(why) = node.doubt_failure() {
                notes.push(format!("{app}: keys of {} stay in doubt: {why}", node.name));
            }
        }
        let ejected: Vec<&str> =
            layout.nodes.iter().filter(|node| node.health.is_ejected()).map(|node| node.name.as_str()).collect();
        if ejected.is_empty() {
            return Health { unready: false, notes };
        }
        let readable = layout.readable.iter().map(|&replica| &layout.replicas[replica]);
        let whole = readable.filter(|replica| layout.is_whole(replica)).count();
        notes.push(format!(
            "{app}: {whole} of {} copies are whole; not asked: {}",
            layout.copies(),
            ejected.join(", ")
        ));
        Health { unready: layout.lost() > LOST_MAX, notes }
    }

    fn close(&self) {
        self.0.closed.store(true, Ordering::Relaxed);
        drop(self.0.watch.lock().take());
        for node in &self.0.layout().nodes {
            node.hints.close();
            moneta_store::component::close(&*node.store);
        }
        drop(self.0.lock.lock().take());
    }
}

impl Call {
    /// What is too large leaves its key without a value.
    async fn refuse_too_large(self, key: OwnedKey) -> Result<moneta_store::Written, StoreError> {
        self.delete(key).await?;
        Ok(moneta_store::Written::TooLarge)
    }

    /// A whole item without conditions of versions, as layers store them.
    async fn put(
        self,
        key: OwnedKey,
        mut meta: moneta_store::ItemMeta,
        value: Vec<u8>,
        how: Put,
    ) -> Result<moneta_store::Written, StoreError> {
        if how == Put::Present {
            let held = self.clone().look(key.clone(), Ask::Peek).await?.lookup();
            if matches!(held, Lookup::Miss { .. }) {
                return Ok(moneta_store::Written::NotStored);
            }
        }
        meta.cas = self.shared.stamps.next(&self.shared.clock, key.key().hash).0;
        meta.unversioned = false;
        let as_of = self.shared.clock.millis();
        self.forward(key, meta, value, as_of, None).await
    }
}
