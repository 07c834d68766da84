//! One node's feed, from its begin to its end, on a thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use moneta_feed::{
    Begin, Buckets, Change, Codec, Filter, Gap, Mark, NodeSource, Owner, Pump, PumpError, RELAY_READER, Rate, Request,
    Settings, Sink, SinkError, Source, Wanted,
};
use moneta_net::Endpoint;
use moneta_store::{Clock, Version};
use parking_lot::Mutex;

use crate::apply::{Fate, Refusal};
use crate::config::{Mode, RelayConfig};
use crate::counts::{Counts, add};
use crate::dated::Dated;
use crate::sink::RelaySink;
use crate::topic::{Outlet, Topic, TopicSink, TopicSource};
use crate::worker::Applier;

/// Pause before a node or a cluster that fails is asked again.
const RETRY: Duration = Duration::from_millis(500);
/// Pause before what is not a cluster with versions is written to again.
const REFUSED_RETRY: Duration = Duration::from_secs(5);
/// Changes that are under way at once.
const BATCH: usize = 1024;
/// Bytes of them, about.
const BATCH_BYTES: usize = 512 << 10;

/// A count that a source does not tell.
const UNKNOWN: u64 = u64::MAX;

/// What becomes of gaps: called with the moment since which all was here, and the gap.
pub(crate) type Gaps = Arc<dyn Fn(u64, Gap) + Send + Sync>;

/// What tells the changes.
pub(crate) enum Inlet {
    /// A node of the other region.
    Node(Endpoint),
    /// A partition of a topic, of so many.
    Partition(Arc<dyn Topic>, u32, u32),
}

/// What takes them.
#[derive(Clone)]
pub(crate) enum Target {
    /// The cluster here.
    Cluster(Arc<Applier>),
    /// A topic.
    Topic(Arc<Outlet>),
}

/// What is read, and from where.
pub(crate) struct StreamStart {
    pub(crate) inlet: Inlet,
    pub(crate) begin: Begin,
    /// All was told until then, or need not be: a gap that ends by then is none.
    pub(crate) needed: u64,
    /// Up to when all is here that the node has told.
    pub(crate) watermark: u64,
    /// Its part of the rate.
    pub(crate) rate: Rate,
    /// Which keys are read; `None`: all.
    pub(crate) buckets: Option<Buckets>,
}

/// A stream, as others see it.
pub(crate) struct StreamState {
    /// Up to when all is here that the node has told, in milliseconds since the Unix epoch; 0: not known.
    pub(crate) watermark: AtomicU64,
    /// How many changes waited at the source by its last mark, about; [`UNKNOWN`]: it does not say.
    behind: AtomicU64,
    stop: AtomicBool,
    ended: AtomicBool,
    /// What fails, and since when.
    trouble: Mutex<Option<(String, Instant)>>,
    /// The cluster here refuses what it is told.
    pub(crate) refused: Mutex<Option<String>>,
    /// It has answered.
    pub(crate) answers: AtomicBool,
}

impl StreamState {
    fn new(watermark: u64) -> Self {
        let (stop, ended, answers) = (AtomicBool::new(false), AtomicBool::new(false), AtomicBool::new(false));
        // Until it has answered, it fails.
        let trouble = Mutex::new(Some(("it has not answered yet".to_owned(), Instant::now())));
        let (watermark, behind) = (AtomicU64::new(watermark), AtomicU64::new(UNKNOWN));
        Self { watermark, behind, stop, ended, trouble, refused: Mutex::default(), answers }
    }

    /// How many changes wait at the source, about, whatever is wanted of them; `None`: it does not say, or fails.
    pub(crate) fn behind(&self) -> Option<u64> {
        let behind = Some(self.behind.load(Ordering::Relaxed)).filter(|behind| *behind != UNKNOWN);
        behind.filter(|_| self.trouble.lock().is_none())
    }

    /// It is to end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Whether its thread has ended.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// What fails, and for how long.
    pub(crate) fn trouble(&self) -> Option<(String, Duration)> {
        self.trouble.lock().as_ref().map(|(why, since)| (why.clone(), since.elapsed()))
    }

    fn fails(&self, why: &str) -> bool {
        let mut trouble = self.trouble.lock();
        let since = trouble.as_ref().map_or_else(Instant::now, |(_, since)| *since);
        let is_other = trouble.as_ref().is_none_or(|(before, _)| before != why);
        *trouble = Some((why.to_owned(), since));
        is_other
    }
}

/// Begins to read a node.
pub(crate) fn start(
    config: &RelayConfig,
    target: &Target,
    counts: &Arc<Counts>,
    clock: &Arc<Clock>,
    gaps: Gaps,
    start: StreamStart,
) -> std::io::Result<Arc<StreamState>> {
    let state = Arc::new(StreamState::new(start.watermark));
    let request = Request {
        wanted: Wanted {
            values: config.mode == Mode::Full,
            prefix: config.prefix.clone(),
            region: Some(config.region),
            buckets: start.buckets,
            current: false,
        },
        follow: true,
        compress: config.compress.then_some(Codec::Zstd),
        name: Some(name(config)),
        ..Request::default()
    };
    let began = Arc::<AtomicU64>::default();
    // Nodes filter themselves.
    let (mut node, mut filter): (_, Option<Filter>) = (String::new(), None);
    let source: Box<dyn Source + Send> = match &start.inlet {
        Inlet::Node(endpoint) => {
            node = endpoint.address.to_string();
            Box::new(NodeSource::new(endpoint.clone(), request, config.value_max).of_region(config.region))
        }
        Inlet::Partition(topic, partition, partitions) => {
            node.push_str(&format!("{}/{partition}", topic.name()));
            let prefix = config.prefix.clone();
            filter = (!prefix.is_empty()).then(|| Arc::new(move |key: &[u8]| key.starts_with(&prefix)) as Filter);
            let limits = (config.region, config.value_max);
            let (topic, counts) = (Arc::clone(topic), Arc::clone(counts));
            Box::new(TopicSource::new(topic, (*partition, *partitions), limits, counts, Arc::clone(clock)))
        }
    };
    let source = Dated::new(source, Arc::clone(clock), Arc::clone(&began));
    let (target, workers) = (target.clone(), config.workers);
    let (state_of, counts) = (Arc::clone(&state), Arc::clone(counts));
    moneta_background::start("relay-read", move |_| {
        let ended = Ended(Arc::clone(&state_of));
        let reading = Reading { node, state: Arc::clone(&state_of), counts, gaps, is_told: false };
        match target {
            Target::Topic(outlet) => read(source, TopicSink(outlet), start, filter, reading),
            Target::Cluster(applier) => match RelaySink::start(applier, workers, began) {
                Ok(sink) => read(source, sink, start, filter, reading),
                Err(error) => {
                    state_of.fails(&format!("no threads to write with: {error}"));
                }
            },
        }
        drop(ended);
    })?;
    Ok(state)
}

/// Says that the thread has ended, however it does.
struct Ended(Arc<StreamState>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

/// Under which name nodes list the relay.
fn name(config: &RelayConfig) -> String {
    let app: String = config.app.chars().filter(char::is_ascii_graphic).take(40).collect();
    format!("{RELAY_READER}:{app}")
}

fn read(source: impl Source, sink: impl Sink, start: StreamStart, filter: Option<Filter>, mut reading: Reading) {
    let settings = Settings {
        batch: BATCH,
        batch_bytes: BATCH_BYTES,
        follows: true,
        filter,
        needed: start.needed,
        margin: u64::try_from(RelayConfig::MARGIN.as_millis()).ok(),
        large: None,
        large_bytes: usize::MAX,
    };
    let mut pump = Pump::new(source, sink, settings, start.rate, start.begin, start.watermark);
    // Why it ends it has told.
    let _ = pump.run(&mut reading);
}

/// A stream that is read.
struct Reading {
    node: String,
    state: Arc<StreamState>,
    counts: Arc<Counts>,
    gaps: Gaps,
    /// A failure was logged.
    is_told: bool,
}

impl<K: Sink> Owner<K> for Reading {
    fn is_over(&self) -> bool {
        self.state.is_stopped()
    }

    fn gap(&mut self, gap: Gap) {
        self.counts.count_gap(gap.cause);
        (self.gaps)(self.state.watermark.load(Ordering::Relaxed), gap);
    }

    /// What the node has lost, other copies have, and give it back.
    fn lost(&mut self, until: u64) {
        tracing::info!(node = self.node, until, "a node of the other region was killed, and lost what it took last");
    }

    fn reached(&mut self, mark: &Mark, _: &mut K) -> Result<(), PumpError> {
        // Of one that was told to end another stream may have taken the place.
        if !self.state.is_stopped() {
            self.state.watermark.fetch_max(mark.watermark, Ordering::Relaxed);
            self.state.behind.store(mark.behind.unwrap_or(UNKNOWN), Ordering::Relaxed);
        }
        self.state.answers.store(true, Ordering::Relaxed);
        *self.state.refused.lock() = None;
        if self.state.trouble.lock().take().is_some() {
            tracing::info!(node = self.node, "the feed of the other region is read");
            self.is_told = false;
        }
        Ok(())
    }

    /// What is older is gone there, and is to go here.
    fn oversized(&mut self, key: Bytes, version: Version) -> Result<Option<Change>, PumpError> {
        add(&self.counts.read, 1);
        self.counts.count(Fate::Refused(Refusal::TooLarge));
        Ok(Some(Change::Delete { key, version: version.just_below() }))
    }

    fn goes_back(&mut self, _: &mut K) -> Option<Begin> {
        tracing::warn!(
            node = self.node,
            "nodes here began so lately that they do not create all that is told: it is read once more"
        );
        std::thread::sleep(RETRY);
        None
    }

    fn goes_on(&mut self, error: &PumpError) -> bool {
        if self.state.is_stopped() || matches!(error, PumpError::Sink(SinkError::Closed)) {
            return false;
        }
        let why = error.to_string();
        if let PumpError::Sink(SinkError::Refused(_)) = error {
            *self.state.refused.lock() = Some(why.clone());
            tracing::error!(error = why, "the cluster here does not take changes: trying again");
            std::thread::sleep(REFUSED_RETRY);
            return true;
        }
        if self.state.fails(&why) || !self.is_told {
            self.is_told = true;
            tracing::warn!(node = self.node, error = why, "the feed of the other region cannot be read: trying again");
        }
        std::thread::sleep(RETRY);
        true
    }
}
