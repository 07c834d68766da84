//! A relay that runs: what it is given, and how it starts and ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use moneta_background::Task;
use moneta_cluster::Topology;
use moneta_cluster::sources::{Guarded, TopologySource};
use moneta_feed::{Gap, GapCause};
use moneta_net::Outward;
use moneta_store::{Clock, Store};
use parking_lot::Mutex;

use crate::config::RelayConfig;
use crate::copies::choose;
use crate::counts::Counts;
use crate::due::{DueCause, Gapped, OnDue};
use crate::leases::{LeaseConfig, Leases};
use crate::part::Part;
use crate::probe::Probe;
use crate::progress::ProgressError;
use crate::share::Share;
use crate::stream::{Gaps, Target};
use crate::supervisor::Supervisor;
use crate::topic::{self, Known, Outlet, Topic};
use crate::view::RelayShared;
use crate::worker::Applier;

/// Gaps that are remembered for the page.
const GAPS_SHOWN: usize = 16;

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
    /// Hears of what is to be compared.
    pub on_due: OnDue,
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
        let Surroundings { sharing, owes, way, outward, clock, on_due, probe } = surroundings;
        let known = |name: &&String| topology.replicas.iter().any(|replica| replica.name == **name);
        if let Some(name) = config.copy.as_ref().filter(|name| !known(name)) {
            return Err(RelayError::UnknownCopy(name.clone()));
        }
        let (part, leases) = match sharing {
            Sharing::Own(share) => (Some(Part::of_file(share, &config, &clock)?), None),
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
            reads_topic: inlet.is_some(),
            view: Mutex::default(),
            gaps: Mutex::default(),
            probe,
            on_due,
        });
        let watch = topic.map(|topic| {
            moneta_background::start("relay-topic", move |run| topic::watch(run, &*topic, &known, outlet.as_deref()))
        });
        let gaps = told_of_gaps(&shared);
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

fn told_of_gaps(shared: &Arc<RelayShared>) -> Gaps {
    let shared = Arc::downgrade(shared);
    Arc::new(move |since, Gap { since: until, cause }| {
        let gapped = Gapped { since, until, cause };
        let why = cause.map_or("unknown", GapCause::word);
        tracing::error!(since, until, why, "changes of the other region are missing: that time is to be repaired");
        let Some(shared) = shared.upgrade() else { return };
        {
            let mut gaps = shared.gaps.lock();
            if gaps.len() == GAPS_SHOWN {
                gaps.pop_front();
            }
            gaps.push_back(gapped);
        }
        shared.due(since, DueCause::Gap);
    })
}
