//! The relay: which copy of the other region is read, and what becomes of its streams.
//!
//! ```text
//!             topology                  a node fails for longer than the patience
//!   start ──▶ a copy is chosen ──▶ a stream for each of its nodes ──▶ the next copy, from the moment up to which all is here,
//!                 ▲                        │                           less the margin
//!                 └── its nodes changed ───┘
//! ```
//!
//! One thread looks after all this, and keeps the progress. It is told to end by its task, and ends once its streams have.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use moneta_cluster::sources::{Guarded, TopologySource};
use moneta_cluster::{Replica, Topology};
use moneta_feed::{Begin, Gap, GapCause, Rate};
use moneta_net::Outward;
use moneta_store::{Clock, Store};
use parking_lot::Mutex;

use crate::config::RelayConfig;
use crate::counts::{Counts, add};
use crate::leases::{Carried, LeaseConfig, Leases};
use crate::probe::Probe;
use crate::progress::{Kept, Progress, ProgressError};
use crate::share::Share;
use crate::stream::{Gaps, Inlet, StreamStart, StreamState, Target, start};
use crate::topic::{self, Known, Outlet, Topic};
use crate::worker::Applier;

/// How often the relay looks after its streams, and how long it waits for a topology meanwhile.
const TURN: Duration = Duration::from_millis(200);
/// How long a node may say nothing: one that follows says something each second.
const SILENCE: Duration = Duration::from_secs(5);
/// How long another relay of the same progress, which is about to end, may take for that.
const ENDING: Duration = Duration::from_secs(5);
/// How long streams may take to end.
const STREAMS_WITHIN: Duration = Duration::from_secs(8);
/// Gaps that are remembered for the page.
const GAPS_SHOWN: usize = 16;

/// Changes that are missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gapped {
    /// All was here up to then, in milliseconds since the Unix epoch, by the clocks of the other region.
    pub since: u64,
    /// What was taken there until then may be missing.
    pub until: u64,
    /// Why; `None`: the node does not say.
    pub cause: Option<GapCause>,
}

/// Called when changes are missing.
pub type OnGap = Arc<dyn Fn(Gapped) + Send + Sync>;

/// Why a relay cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// Its progress cannot be kept.
    #[error(transparent)]
    Progress(#[from] ProgressError),
    /// The system has no thread for it.
    #[error("no thread for the relay: {0}")]
    Thread(#[from] std::io::Error),
    /// The other region has no copy that could be read.
    #[error("the topology of the other region has no copy that answers reads")]
    NoCopy,
    /// It has no copy of the name that is to be read first.
    #[error("the topology of the other region has no copy \"{0}\"")]
    UnknownCopy(String),
}

/// A relay that runs.
pub struct Relay {
    pub(crate) shared: Arc<RelayShared>,
    task: Mutex<Option<Task>>,
}

/// What the relay's thread does, as others see it.
pub(crate) struct RelayShared {
    pub(crate) config: RelayConfig,
    pub(crate) counts: Arc<Counts>,
    pub(crate) clock: Arc<Clock>,
    pub(crate) view: Mutex<View>,
    pub(crate) gaps: Mutex<VecDeque<Gapped>>,
    /// Up to when all was here at the start of this process; `None`: what it carries is told later.
    pub(crate) whole_at_start: Option<u64>,
    /// The topic between the regions, if there is one.
    pub(crate) topic: Option<Arc<Known>>,
    pub(crate) probe: Option<Arc<Probe>>,
}

/// What is read now.
#[derive(Default)]
pub(crate) struct View {
    pub(crate) copy: String,
    pub(crate) epoch: u64,
    pub(crate) streams: Vec<Shown>,
    /// Why the progress cannot be kept.
    pub(crate) unkept: Option<String>,
    /// What is carried.
    pub(crate) shares: Vec<Share>,
    /// Of what is carried and not read yet: up to when all is here.
    pub(crate) unread: Option<u64>,
    /// Why no share is asked for.
    pub(crate) unleased: Option<String>,
}

/// A stream with its place.
#[derive(Clone)]
pub(crate) struct Shown {
    pub(crate) share: Share,
    pub(crate) slot: String,
    pub(crate) address: String,
    pub(crate) state: Arc<StreamState>,
    /// Bytes a second; 0: no bound.
    pub(crate) rate: Rate,
}

impl RelayShared {
    /// Up to when all is here, in milliseconds since the Unix epoch. Of what others carry this relay lacks nothing.
    pub(crate) fn whole(&self) -> u64 {
        let least = {
            let view = self.view.lock();
            least(view.streams.iter()).into_iter().chain(view.unread).min()
        };
        least.or(self.whole_at_start).unwrap_or_else(|| {
            self.clock.refresh();
            self.clock.millis()
        })
    }

    /// Gives each stream its part of the rate.
    fn divide_rate(&self, view: &View) {
        let each = self.config.rate.get().div_ceil(view.streams.len().max(1) as u64);
        view.streams.iter().for_each(|stream| stream.rate.set(each));
    }

    /// Whether shares are this relay's by leases.
    pub(crate) fn is_leased(&self) -> bool {
        self.whole_at_start.is_none()
    }

    /// How far behind it is.
    pub(crate) fn lag(&self) -> Duration {
        self.clock.refresh();
        Duration::from_millis(self.clock.millis().saturating_sub(self.whole()))
    }
}

/// Up to when all is here that these have told.
fn least<'s>(streams: impl Iterator<Item = &'s Shown>) -> Option<u64> {
    streams.map(|stream| stream.state.watermark.load(Ordering::Relaxed)).min()
}

/// Which keys are carried.
pub enum Sharing {
    /// A share for as long as the relay runs; its progress is in a file.
    Own(Share),
    /// Shares by leases.
    Leased(LeaseConfig),
}

/// Which way changes take.
pub enum Way {
    /// From nodes of the other region to the cluster here.
    Direct(Arc<dyn Store>),
    /// From nodes of a region into a topic.
    Into(Arc<dyn Topic>),
    /// Out of a topic to the cluster here.
    OutOf(Arc<dyn Topic>, Arc<dyn Store>),
}

/// What a relay works with.
pub struct Surroundings {
    /// Which keys are carried.
    pub sharing: Sharing,
    /// Whether a node here lacks something that was acknowledged, which this process alone remembers.
    pub owes: Box<dyn Fn() -> bool + Send>,
    /// Which way changes take.
    pub way: Way,
    /// How nodes of the other region are reached.
    pub outward: Outward,
    /// The clock of this process.
    pub clock: Arc<Clock>,
    /// Hears of gaps.
    pub on_gap: OnGap,
    /// Keys that are written there and read here.
    pub probe: Option<Arc<Probe>>,
}

impl Relay {
    /// Starts one, which follows `source`, whose first topology is `topology`.
    ///
    /// # Errors
    /// If its progress cannot be kept, the system has no thread, or there is nothing to read.
    pub fn start(
        config: RelayConfig,
        topology: Topology,
        source: Guarded<Box<dyn TopologySource>>,
        surroundings: Surroundings,
    ) -> Result<Self, RelayError> {
        let Surroundings { sharing, owes, way, outward, clock, on_gap, probe } = surroundings;
        let known = |name: &&String| topology.replicas.iter().any(|replica| replica.name == **name);
        if let Some(name) = config.copy.as_ref().filter(|name| !known(name)) {
            return Err(RelayError::UnknownCopy(name.clone()));
        }
        let (part, leases) = match sharing {
            Sharing::Own(share) => {
                let progress = Progress::open(config.folder.join(name_of(&config, share)), ENDING)?;
                let kept = progress.written().clone();
                (Some(Part::begin(share, kept, Some(progress), &config, &clock)), None)
            }
            Sharing::Leased(leases) => (None, Some((leases.of, Leases::start(leases)?))),
        };
        let kept = part.as_ref().map(|part| part.kept.copy.clone()).unwrap_or_default();
        let first = choose(&topology, config.copy.as_ref().unwrap_or(&kept)).ok_or(RelayError::NoCopy)?.name.clone();
        let counts = Arc::<Counts>::default();
        let closed = Arc::<AtomicBool>::default();
        let (mode, flush) = (config.mode, config.flush);
        let applier = |store| {
            let (counts, closed) = (Arc::clone(&counts), Arc::clone(&closed));
            Target::Cluster(Arc::new(Applier { store, mode, flush, counts, closed }))
        };
        let known = Arc::<Known>::default();
        let (target, inlet) = match way {
            Way::Direct(store) => (applier(store), None),
            Way::OutOf(topic, store) => (applier(store), Some(topic)),
            Way::Into(topic) => {
                let (region, counts, clock) = (config.region, Arc::clone(&counts), Arc::clone(&clock));
                let (closed, known) = (Arc::clone(&closed), Arc::clone(&known));
                let begun = part.as_ref().filter(|part| part.is_first).map_or(0, |part| part.kept.whole);
                let (anew, whole) = (AtomicU64::new(begun), AtomicU64::new(0));
                (Target::Topic(Arc::new(Outlet { topic, region, counts, clock, closed, known, anew, whole })), None)
            }
        };
        let outlet = match &target {
            Target::Topic(outlet) => Some(Arc::clone(outlet)),
            Target::Cluster(_) => None,
        };
        let topic = inlet.clone().or_else(|| outlet.as_ref().map(|outlet| Arc::clone(&outlet.topic)));
        let shared = Arc::new(RelayShared {
            whole_at_start: part.as_ref().map(|part| part.kept.whole),
            config,
            counts,
            clock,
            topic: topic.as_ref().map(|_| Arc::clone(&known)),
            view: Mutex::default(),
            gaps: Mutex::default(),
            probe,
        });
        let watch = topic.map(|topic| {
            moneta_background::start("relay-topic", move |run| topic::watch(run, &*topic, &known, outlet.as_deref()))
        });
        let gaps = told_of_gaps(&shared, on_gap);
        let mut supervisor = Supervisor {
            shared: Arc::clone(&shared),
            target,
            inlet,
            partitions: 0,
            watch: watch.transpose()?,
            closed,
            outward,
            gaps,
            topology,
            copy: first,
            parts: part.into_iter().collect(),
            leases,
            owes,
            leaving: Vec::new(),
        };
        supervisor.read_all()?;
        // From now on what is missing is a gap, also if this process is killed at once.
        supervisor.keep();
        let task = moneta_background::start("relay", move |run| supervisor.run(run, source))?;
        Ok(Self { shared, task: Mutex::new(Some(task)) })
    }

    /// Ends it: what was read is written first, and the progress kept.
    pub fn close(&self) {
        if let Some(task) = self.task.lock().take() {
            task.stop();
            // A panic there was reported there.
            task.join();
        }
    }

    /// Up to when everything that the other region took is here, in milliseconds since the Unix epoch, by its clocks.
    pub fn whole(&self) -> u64 {
        self.shared.whole()
    }
}

/// The name of the file of progress.
fn name_of(config: &RelayConfig, share: Share) -> String {
    let share = if share.is_all() { String::new() } else { format!(".share-{}-of-{}", share.number, share.of) };
    format!("{}.from-{}{share}.json", file_name(&config.app), config.region)
}

/// The name of an app as a part of a file's name.
fn file_name(app: &str) -> String {
    app.chars()
        .map(|letter| if letter.is_ascii_alphanumeric() || "-_.".contains(letter) { letter } else { '_' })
        .collect()
}

fn told_of_gaps(shared: &Arc<RelayShared>, on_gap: OnGap) -> Gaps {
    let shared = Arc::downgrade(shared);
    Arc::new(move |since, Gap { since: until, cause }| {
        let gapped = Gapped { since, until, cause };
        let why = cause.map_or("unknown", GapCause::word);
        tracing::error!(since, until, why, "changes of the other region are missing: that time is to be repaired");
        if let Some(shared) = shared.upgrade() {
            let mut gaps = shared.gaps.lock();
            if gaps.len() == GAPS_SHOWN {
                gaps.pop_front();
            }
            gaps.push_back(gapped);
        }
        on_gap(gapped);
    })
}

/// The copies that can be read.
fn readable(topology: &Topology) -> impl Iterator<Item = &Replica> {
    topology.replicas.iter().filter(|replica| !replica.write_only && !replica.nodes.is_empty())
}

/// The copy of this name; else the first.
fn choose<'t>(topology: &'t Topology, name: &str) -> Option<&'t Replica> {
    readable(topology).find(|replica| replica.name == name).or_else(|| readable(topology).next())
}

/// The copy to read after this one failed; `None`: there is no other.
fn next_after<'t>(topology: &'t Topology, name: &str) -> Option<&'t Replica> {
    let copies: Vec<&Replica> = readable(topology).collect();
    let at = copies.iter().position(|replica| replica.name == name);
    let next = copies.get(at.map_or(0, |at| (at + 1) % copies.len()))?;
    (next.name != name).then_some(next)
}

/// A share that is carried, and how far it is.
struct Part {
    share: Share,
    kept: Kept,
    /// `None`: it is kept by the one who keeps its lease.
    progress: Option<Progress>,
    /// No progress was kept before.
    is_first: bool,
    /// A gap that ends by then is none.
    needed_at_least: u64,
    /// On the nodes here up to then, whatever becomes of this process.
    settled: u64,
}

impl Part {
    fn begin(share: Share, kept: Kept, progress: Option<Progress>, config: &RelayConfig, clock: &Clock) -> Self {
        clock.refresh();
        let now = clock.millis();
        let back = u64::try_from(config.back.as_millis()).unwrap_or(u64::MAX);
        // The first start: nothing was promised of what was before it, and what is missing from before it is no gap.
        let is_first = kept == Kept::default();
        let mut kept = kept;
        if is_first {
            kept.whole = now.saturating_sub(back).max(1);
        }
        Self { share, settled: kept.whole, kept, progress, is_first, needed_at_least: if is_first { now } else { 0 } }
    }
}

struct Supervisor {
    shared: Arc<RelayShared>,
    target: Target,
    /// The topic that is read in place of nodes, and how many partitions it has; 0: not known.
    inlet: Option<Arc<dyn Topic>>,
    partitions: u32,
    /// What looks after the topic.
    watch: Option<Task>,
    closed: Arc<AtomicBool>,
    outward: Outward,
    gaps: Gaps,
    topology: Topology,
    /// The copy that is read.
    copy: String,
    parts: Vec<Part>,
    /// How many shares there are, and who asks for them.
    leases: Option<(u16, Leases)>,
    owes: Box<dyn Fn() -> bool + Send>,
    /// Streams that were told to end, with their share.
    leaving: Vec<(Share, Arc<StreamState>)>,
}

impl Supervisor {
    fn run(&mut self, run: &Run, mut source: Guarded<Box<dyn TopologySource>>) {
        while !run.is_stopped() {
            let from = Instant::now();
            match source.next(TURN) {
                Ok(Some(topology)) => self.follow(topology),
                Ok(None) => {}
                // Logged by the source. The topology of before stays.
                Err(error) => run.failed(&error),
            }
            run.sleep(TURN.saturating_sub(from.elapsed()));
            self.leaving.retain(|(_, stream)| !stream.has_ended());
            self.share();
            self.follow_partitions();
            // It may have been set.
            self.shared.divide_rate(&self.shared.view.lock());
            if let Some(why) = self.failure() {
                self.switch(&why);
            }
            self.keep();
        }
        self.end();
    }

    /// Reads all partitions of the topic, where it has more than those that are read.
    fn follow_partitions(&mut self) {
        let (Some(known), Some(_)) = (&self.shared.topic, &self.inlet) else { return };
        let count = known.partitions();
        if count > self.partitions {
            self.partitions = count;
            self.read_again();
        }
    }

    /// Begins to read the partitions of a share.
    fn read_partitions(&mut self, topic: &Arc<dyn Topic>, share: Share) -> std::io::Result<()> {
        let Some(part) = self.parts.iter().find(|part| part.share == share) else { return Ok(()) };
        let copy = format!("topic:{}", topic.name());
        let (config, clock) = (&self.shared.config, &self.shared.clock);
        let margin = u64::try_from(RelayConfig::MARGIN.as_millis()).unwrap_or(u64::MAX);
        let mut streams = Vec::new();
        let of = u32::from(share.of.max(1));
        for partition in (0..self.partitions).filter(|one| one % of == u32::from(share.number) - 1) {
            let slot = partition.to_string();
            let here = part.kept.of(&copy, &slot);
            // One that came meanwhile is read from its first message on, whenever that was.
            let is_new = part.kept.copy == copy && !part.kept.slots.contains_key(&slot);
            let begin = Begin::Since(if is_new { 1 } else { here.saturating_sub(margin) });
            let (inlet, rate) = (Inlet::Partition(Arc::clone(topic), partition, self.partitions), Rate::default());
            let needed = here.max(part.needed_at_least);
            let starting = StreamStart { inlet, begin, needed, watermark: here, rate: rate.clone(), buckets: None };
            let gaps = Arc::clone(&self.gaps);
            let state = start(config, &self.target, &self.shared.counts, clock, gaps, starting)?;
            streams.push(Shown { share, slot, address: topic.name().to_owned(), state, rate });
        }
        tracing::info!(topic = topic.name(), partitions = streams.len(), %share, "a topic is read");
        let mut view = self.shared.view.lock();
        view.copy = copy;
        view.streams.extend(streams);
        view.shares = self.parts.iter().map(|part| part.share).collect();
        Ok(())
    }

    /// Begins to read all nodes of the copy, for all shares.
    fn read_all(&mut self) -> std::io::Result<()> {
        let shares: Vec<Share> = self.parts.iter().map(|part| part.share).collect();
        let mut ended = Ok(());
        for share in shares {
            ended = ended.and(self.read(share));
        }
        ended
    }

    /// Begins to read all nodes of the copy, for a share.
    fn read(&mut self, share: Share) -> std::io::Result<()> {
        if let Some(topic) = self.inlet.clone() {
            return self.read_partitions(&topic, share);
        }
        let replica = self.topology.replicas.iter().find(|replica| replica.name == self.copy);
        let part = self.parts.iter().find(|part| part.share == share);
        let (Some(replica), Some(part)) = (replica, part) else { return Ok(()) };
        let (config, clock) = (&self.shared.config, &self.shared.clock);
        let margin = u64::try_from(RelayConfig::MARGIN.as_millis()).unwrap_or(u64::MAX);
        let mut streams = Vec::new();
        for node in &replica.nodes {
            let here = part.kept.of(&replica.name, &node.slot);
            let rate = Rate::of(config.rate.get());
            let starting = StreamStart {
                inlet: Inlet::Node(self.outward.to(node.address.clone()).patient(SILENCE)),
                begin: Begin::Since(here.saturating_sub(margin)),
                needed: here.max(part.needed_at_least),
                watermark: here,
                rate: rate.clone(),
                buckets: share.buckets(),
            };
            let gaps = Arc::clone(&self.gaps);
            let state = start(config, &self.target, &self.shared.counts, clock, gaps, starting)?;
            streams.push(Shown { share, slot: node.slot.clone(), address: node.address.to_string(), state, rate });
        }
        tracing::info!(copy = replica.name, nodes = streams.len(), %share, "a copy of the other region is read");
        let (copy, epoch) = (replica.name.clone(), self.topology.epoch);
        let mut view = self.shared.view.lock();
        (view.copy, view.epoch) = (copy, epoch);
        view.streams.extend(streams);
        view.shares = self.parts.iter().map(|part| part.share).collect();
        self.shared.divide_rate(&view);
        Ok(())
    }

    /// Takes on the shares that are this relay's now, and leaves those that are not.
    fn share(&mut self) {
        let Some((of, leases)) = &self.leases else { return };
        let (of, shared) = (*of, Arc::clone(&leases.shared));
        let (mut begun, mut left) = (Vec::new(), Vec::new());
        {
            let mut shared = shared.lock();
            self.shared.view.lock().unleased.clone_from(&shared.failure);
            for (number, whole) in shared.wanted.clone() {
                if let std::collections::btree_map::Entry::Vacant(place) = shared.carried.entry(number) {
                    place.insert(Carried { whole, has_ended: false });
                    begun.push((Share { number, of }, whole));
                }
            }
            let is_left = |part: &&Part| !shared.wanted.contains_key(&part.share.number);
            left.extend(self.parts.iter().filter(is_left).map(|part| part.share));
        }
        for (share, whole) in begun {
            let kept = if whole > 0 { Kept::until(whole) } else { Kept::default() };
            self.parts.push(Part::begin(share, kept, None, &self.shared.config, &self.shared.clock));
            if let Err(error) = self.read(share) {
                // With the next topology, or failure, it is tried again.
                tracing::error!(%error, "no thread to read the other region");
            }
        }
        for share in left {
            self.stop_streams(|stream| stream.share == share);
            self.parts.retain(|part| part.share != share);
            let mut view = self.shared.view.lock();
            view.shares.retain(|one| *one != share);
            self.shared.divide_rate(&view);
        }
        let mut shared = shared.lock();
        for (number, carried) in &mut shared.carried {
            match self.parts.iter().find(|part| part.share.number == *number) {
                Some(part) => carried.whole = part.settled,
                None => carried.has_ended = self.leaving.iter().all(|(share, _)| share.number != *number),
            }
        }
    }

    /// Ends these streams, and takes note of how far they were.
    fn stop_streams(&mut self, which: impl Fn(&Shown) -> bool) {
        self.note();
        let mut view = self.shared.view.lock();
        let (stopped, stay): (Vec<Shown>, Vec<Shown>) = std::mem::take(&mut view.streams).into_iter().partition(which);
        view.streams = stay;
        for stream in stopped {
            stream.state.stop();
            self.leaving.push((stream.share, stream.state));
        }
    }

    fn read_again(&mut self) {
        self.stop_streams(|_| true);
        if let Err(error) = self.read_all() {
            // With the next topology, or failure, it is tried again.
            tracing::error!(%error, "no thread to read the other region");
        }
    }

    /// Takes another topology of the other region.
    fn follow(&mut self, topology: Topology) {
        let nodes = |topology: &Topology| {
            let replica = topology.replicas.iter().find(|replica| replica.name == self.copy && !replica.write_only)?;
            Some((topology.ring, replica.nodes.clone()))
        };
        let is_same = nodes(&topology).is_some() && nodes(&topology) == nodes(&self.topology);
        tracing::info!(epoch = topology.epoch, "the other region has another topology");
        self.topology = topology;
        self.shared.view.lock().epoch = self.topology.epoch;
        if is_same || self.inlet.is_some() {
            return;
        }
        match choose(&self.topology, &self.copy).map(|replica| replica.name.clone()) {
            Some(copy) => {
                // Keys may have moved from node to node, so all are read from where the slowest was.
                self.stop_streams(|_| true);
                self.parts.iter_mut().for_each(|part| part.kept.slots.clear());
                self.copy = copy;
                self.read_again();
            }
            None => tracing::error!("the other region has no copy that answers reads: the one of before stays"),
        }
    }

    /// Why the copy is not read, if that has been so for too long.
    fn failure(&self) -> Option<String> {
        if self.inlet.is_some() {
            return None;
        }
        let view = self.shared.view.lock();
        let patience = self.shared.config.patience;
        view.streams.iter().find_map(|stream| {
            let (why, since) = stream.state.trouble()?;
            (since >= patience).then(|| format!("{}: {why}", stream.slot))
        })
    }

    /// Reads another copy, if there is one.
    fn switch(&mut self, why: &str) {
        let Some(next) = next_after(&self.topology, &self.copy).map(|replica| replica.name.clone()) else { return };
        tracing::warn!(from = self.copy, to = next, why, "another copy of the other region is read");
        add(&self.shared.counts.switches, 1);
        self.stop_streams(|_| true);
        self.copy = next;
        self.read_again();
    }

    /// Takes note of how far the streams are.
    fn note(&mut self) {
        let view = self.shared.view.lock();
        for part in &mut self.parts {
            let streams = || view.streams.iter().filter(|stream| stream.share == part.share);
            if streams().next().is_some() {
                let slots = streams().map(|one| (one.slot.clone(), one.state.watermark.load(Ordering::Relaxed)));
                part.kept.advance(&view.copy, slots);
            }
        }
    }

    fn keep(&mut self) {
        self.note();
        let whole = self.parts.iter().map(|part| part.kept.whole).min();
        self.shared.view.lock().unread = whole.filter(|_| self.inlet.is_some() && self.partitions == 0);
        if let Target::Topic(outlet) = &self.target {
            outlet.whole.store(whole.unwrap_or(0), Ordering::Release);
            if outlet.anew.load(Ordering::Acquire) > 0 {
                // Once progress is kept, a later start takes nothing for missing.
                return;
            }
        }
        // Asked after it is known how far they are: what is owed for a change is known when the change has ended, or soon after, for
        // which the margin makes up.
        let is_settled = !(self.owes)();
        let mut ended = Ok(());
        for part in &mut self.parts {
            if is_settled {
                part.settled = part.kept.whole;
            }
            if let Some(progress) = &mut part.progress {
                ended = ended.and(progress.keep(&part.kept).map_err(|error| error.to_string()));
            }
        }
        let mut view = self.shared.view.lock();
        if let Some(error) = ended.as_ref().err().filter(|error| view.unkept.as_ref() != Some(error)) {
            tracing::error!(error, "the progress of the relay is not kept");
        }
        view.unkept = ended.err();
    }

    fn end(&mut self) {
        self.closed.store(true, Ordering::Relaxed);
        self.watch.iter().for_each(Task::stop);
        let view: Vec<Shown> = self.shared.view.lock().streams.clone();
        view.iter().for_each(|stream| stream.state.stop());
        let from = Instant::now();
        while from.elapsed() < STREAMS_WITHIN && !view.iter().all(|stream| stream.state.has_ended()) {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.keep();
        if let Some((_, leases)) = self.leases.take() {
            for (number, carried) in &mut leases.shared.lock().carried {
                let part = self.parts.iter().find(|part| part.share.number == *number);
                let whole = part.map_or(carried.whole, |part| part.settled);
                *carried = Carried { whole, has_ended: true };
            }
            leases.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use moneta_cluster::Node;

    use super::*;

    fn topology(replicas: &[(&str, bool)]) -> Topology {
        let node = |name: &str| Node {
            slot: name.to_owned(),
            address: "127.0.0.1:1".parse().unwrap(),
            admin: None,
            weight: 1,
        };
        let replica = |(name, write_only): &(&str, bool)| Replica {
            name: (*name).to_owned(),
            zone: (*name).to_owned(),
            write_only: *write_only,
            nodes: vec![node(name)],
        };
        Topology { epoch: 1, ring: moneta_cluster::RingKind::Slots, replicas: replicas.iter().map(replica).collect() }
    }

    #[test]
    fn copies_that_answer_reads_are_read_one_after_the_other() {
        let all = topology(&[("w", true), ("a", false), ("b", false)]);
        let chosen = |name| choose(&all, name).map(|replica| replica.name.as_str());
        assert_eq!([chosen(""), chosen("b"), chosen("w"), chosen("gone")], ["a", "b", "a", "a"].map(Some));
        let next = |name| next_after(&all, name).map(|replica| replica.name.as_str());
        assert_eq!([next("a"), next("b"), next("gone")], ["b", "a", "a"].map(Some));
        assert!(next_after(&topology(&[("a", false), ("w", true)]), "a").is_none());
        assert!(choose(&topology(&[("w", true)]), "w").is_none());
    }

    #[test]
    fn an_app_of_any_name_has_a_file() {
        assert_eq!(file_name("a/../b c"), "a_.._b_c");
    }
}
