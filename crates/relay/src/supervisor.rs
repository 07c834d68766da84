//! Which copy of the other region is read, and what becomes of its streams.
//!
//! ```text
//!             topology                  a node fails for longer than the patience
//!   start ──▶ a copy is chosen ──▶ a stream for each of its nodes ──▶ the next copy, from the moment up to which all is here,
//!                 ▲                        │                           less the margin
//!                 └── its nodes changed ───┘
//! ```
//!
//! One thread looks after all this, and keeps the progress. It is told to end by its task, and ends once its streams have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};
use moneta_cluster::Topology;
use moneta_cluster::sources::{Guarded, TopologySource};
use moneta_feed::{Begin, Rate};
use moneta_net::Outward;

use crate::copies::{choose, next_after};
use crate::counts::add;
use crate::due::DueCause;
use crate::leases::{Carried, Leases};
use crate::part::Part;
use crate::share::Share;
use crate::stream::{Gaps, Inlet, StreamStart, StreamState, Target, start};
use crate::topic::Topic;
use crate::view::{RelayShared, Shown};

/// How often the relay looks after its streams, and how long it waits for a topology meanwhile.
const TURN: Duration = Duration::from_millis(200);
/// How long a node may say nothing: one that follows says something each second.
const SILENCE: Duration = Duration::from_secs(5);
/// How long streams may take to end.
const STREAMS_WITHIN: Duration = Duration::from_secs(8);

/// Looks after the streams.
pub(crate) struct Supervisor {
    pub(crate) shared: Arc<RelayShared>,
    pub(crate) target: Target,
    /// The topic that is read in place of nodes, and how many partitions it has; 0: not known.
    pub(crate) inlet: Option<Arc<dyn Topic>>,
    pub(crate) partitions: u32,
    /// What looks after the topic.
    pub(crate) watch: Option<Task>,
    pub(crate) closed: Arc<AtomicBool>,
    pub(crate) outward: Outward,
    pub(crate) gaps: Gaps,
    pub(crate) topology: Topology,
    /// The copy that is read.
    pub(crate) copy: String,
    pub(crate) parts: Vec<Part>,
    /// How many shares there are, and who asks for them.
    pub(crate) leases: Option<(u16, Leases)>,
    pub(crate) owes: Box<dyn Fn() -> bool + Send>,
    /// Streams that were told to end, with their share.
    pub(crate) leaving: Vec<(Share, Arc<StreamState>)>,
}

impl Supervisor {
    pub(crate) fn run(&mut self, run: &Run, mut source: Guarded<Box<dyn TopologySource>>) {
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
        let mut streams = Vec::new();
        let of = u32::from(share.of.max(1));
        for partition in (0..self.partitions).filter(|one| one % of == u32::from(share.number) - 1) {
            let slot = partition.to_string();
            let resume = part.kept.resume(&copy, &slot);
            // One that came meanwhile is read from its first message on, whenever that was.
            let is_new = part.kept.copy == copy && !part.kept.slots.contains_key(&slot);
            let begin = Begin::Since(if is_new { 1 } else { resume.since });
            let (inlet, rate) = (Inlet::Partition(Arc::clone(topic), partition, self.partitions), Rate::default());
            let (needed, watermark) = (resume.whole.max(part.needed_at_least), resume.whole);
            let starting = StreamStart { inlet, begin, needed, watermark, rate: rate.clone(), buckets: None };
            let gaps = Arc::clone(&self.gaps);
            let state = start(config, &self.target, &self.shared.counts, clock, gaps, starting)?;
            streams.push(Shown { share, slot, address: topic.name().to_owned(), state, rate });
        }
        if streams.is_empty() && self.partitions > 0 {
            let (name, partitions) = (topic.name(), self.partitions);
            tracing::warn!(topic = name, partitions, %share, "nothing to read: no partition of the topic is for this share");
        } else {
            tracing::info!(topic = topic.name(), partitions = streams.len(), %share, "a topic is read");
        }
        let mut view = self.shared.view.lock();
        view.copy = copy;
        view.streams.extend(streams);
        view.shares = self.parts.iter().map(|part| part.share).collect();
        Ok(())
    }

    /// Begins to read all nodes of the copy, for all shares.
    pub(crate) fn read_all(&mut self) -> std::io::Result<()> {
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
        let mut streams = Vec::new();
        for node in &replica.nodes {
            let resume = part.kept.resume(&replica.name, &node.slot);
            let rate = Rate::of(config.rate.get());
            let starting = StreamStart {
                inlet: Inlet::Node(self.outward.to(node.address.clone()).patient(SILENCE)),
                begin: Begin::Since(resume.since),
                needed: resume.whole.max(part.needed_at_least),
                watermark: resume.whole,
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
            self.parts.push(Part::of_lease(share, whole, &self.shared.config, &self.shared.clock));
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
        let mut before: Option<u64> = None;
        {
            let view = self.shared.view.lock();
            for part in &mut self.parts {
                let streams = || view.streams.iter().filter(|stream| stream.share == part.share);
                if streams().next().is_some() {
                    let slots = streams().map(|one| (one.slot.clone(), one.state.watermark.load(Ordering::Relaxed)));
                    before = before.into_iter().chain(part.kept.advance(&view.copy, slots)).min();
                }
            }
        }
        if let Some(since) = before {
            tracing::info!(since, "another copy was read since: what it lacked is to be repaired");
            self.shared.due(since, DueCause::Switch);
        }
    }

    pub(crate) fn keep(&mut self) {
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
