//! What is believed of a source.
//!
//! A list that is suddenly empty or much shorter is more often a fault of what makes lists (a registry that was restarted, a
//! template with a missing variable) than the end of half a cluster. To believe it would move most keys and answer misses for
//! them. To wait costs little: nodes that are really gone are ejected by their health meanwhile.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::advice::Advised;
use super::counts::SourceCounts;
use super::kept::Kept;
use super::source::{SourceError, TopologySource};
use crate::topology::{Replica, Topology};

/// When a topology that lost much is believed.
#[derive(Clone, Debug)]
pub struct GuardConfig {
    /// It was read so many times in a row without a change or a failure between them. At least 1; 1: no guard.
    pub reads: u32,
    /// And this long after it was read first.
    pub hold: Duration,
    /// File that keeps the last topology taken, for a start without the source. `None`: none does.
    pub kept: Option<PathBuf>,
}

impl Default for GuardConfig {
    fn default() -> Self {
        Self { reads: 3, hold: Duration::from_secs(10), kept: None }
    }
}

/// A source whose topologies can be believed: it says those that differ from the one before, after their confirmation where they
/// lost much.
pub struct Guarded<S> {
    source: S,
    config: GuardConfig,
    kept: Option<Kept>,
    /// What was said last, or kept of before.
    current: Option<Topology>,
    /// What waits for its confirmation.
    pending: Option<Pending>,
    /// The text of the last failure: the same one is logged once.
    failure: Option<String>,
    counts: Arc<SourceCounts>,
}

struct Pending {
    topology: Topology,
    since: Instant,
    reads: u32,
}

impl<S: TopologySource> Guarded<S> {
    /// A guard round `source`.
    pub fn new(source: S, config: GuardConfig) -> Self {
        let kept = config.kept.clone().map(Kept::at);
        Self { source, config, kept, current: None, pending: None, failure: None, counts: Arc::default() }
    }

    /// Its counts.
    pub fn counts(&self) -> Arc<SourceCounts> {
        Arc::clone(&self.counts)
    }

    /// The topology to start with: what the source says within `timeout`; what was kept, if the source says nothing, or says what
    /// cannot be believed beside what was kept.
    ///
    /// # Errors
    /// What the source fails with, if nothing was kept.
    pub fn first(&mut self, timeout: Duration) -> Result<Topology, SourceError> {
        self.current = match self.kept.as_ref().map(Kept::load) {
            Some(Ok(kept)) => kept,
            Some(Err(error)) => {
                tracing::warn!(%error, "the topology kept of before cannot be used");
                None
            }
            None => None,
        };
        let from = Instant::now();
        let failure = loop {
            let left = timeout.saturating_sub(from.elapsed());
            let said = self.source.next(left);
            match said.and_then(|said| self.not_older(said)) {
                Ok(Some(topology)) => {
                    if let Some(taken) = self.judge(topology) {
                        return Ok(taken);
                    }
                    break None;
                }
                Ok(None) if from.elapsed() < timeout => {}
                Ok(None) => break Some(SourceError::Silent),
                Err(error) => {
                    self.note_failure(&error);
                    break Some(error);
                }
            }
        };
        match (&self.current, failure) {
            (Some(kept), failure) => {
                if failure.is_some() {
                    tracing::warn!(
                        source = self.source.name(),
                        epoch = kept.epoch,
                        "begins with the topology kept of before"
                    );
                }
                self.counts.changes.fetch_add(1, Ordering::Relaxed);
                self.counts.epoch.store(kept.epoch, Ordering::Relaxed);
                Ok(kept.clone())
            }
            (None, failure) => Err(failure.unwrap_or(SourceError::Silent)),
        }
    }

    /// Fails where the source says a topology from before the one in force, or another one of its epoch, and has epochs that only
    /// grow; the source is told so.
    fn not_older(&mut self, said: Option<Topology>) -> Result<Option<Topology>, SourceError> {
        let (Some(topology), Some(current)) = (&said, &self.current) else { return Ok(said) };
        let is_other = topology.epoch == current.epoch && !topology.same_but_for_epoch(current);
        if self.source.epochs_grow() && (topology.epoch < current.epoch || is_other) {
            let back = SourceError::EpochBack { said: topology.epoch, current: current.epoch };
            // One that has this epoch too is to come after it all the same.
            self.source.is_behind(current.epoch + u64::from(is_other));
            return Err(back);
        }
        Ok(said)
    }

    /// What is to be taken of what the source says: nothing, or the topology with its epoch.
    fn judge(&mut self, topology: Topology) -> Option<Topology> {
        if self.failure.take().is_some() {
            tracing::info!(source = self.source.name(), "the topology's source answers again");
        }
        self.counts.failing.store(false, Ordering::Relaxed);
        self.counts.counted.store(topology.epoch != 0, Ordering::Relaxed);
        *self.counts.failure.lock() = None;
        let Some(current) = &self.current else { return Some(self.take(topology)) };
        let news = !topology.same_but_for_epoch(current) || (topology.epoch != 0 && topology.epoch != current.epoch);
        if !news {
            self.forget_pending();
            return None;
        }
        let Some(loss) = loss(current, &topology).filter(|_| self.config.reads > 1) else {
            return Some(self.take(topology));
        };
        match &mut self.pending {
            Some(pending) if pending.topology == topology => {
                pending.reads += 1;
                let confirmed = pending.reads >= self.config.reads && pending.since.elapsed() >= self.config.hold;
                confirmed.then(|| self.take(topology))
            }
            _ => {
                self.counts.refused.fetch_add(1, Ordering::Relaxed);
                self.counts.held_back.store(true, Ordering::Relaxed);
                let source = self.source.name();
                tracing::warn!(source, loss, "the topology lost much at once: it waits for its confirmation");
                self.pending = Some(Pending { topology, since: Instant::now(), reads: 1 });
                None
            }
        }
    }

    fn take(&mut self, mut topology: Topology) -> Topology {
        self.forget_pending();
        let before = self.current.as_ref().map_or(0, |current| current.epoch);
        if topology.epoch == 0 {
            topology.epoch = before + 1;
        }
        let (source, epoch) = (self.source.name(), topology.epoch);
        if epoch < before {
            self.counts.epochs_back.fetch_add(1, Ordering::Relaxed);
            tracing::warn!(source, epoch, before, "the topology's epoch goes back");
        }
        let (replicas, nodes) = (topology.replicas.len(), topology.nodes().count());
        tracing::info!(source, epoch, replicas, nodes, "the topology is a new one");
        self.counts.changes.fetch_add(1, Ordering::Relaxed);
        self.counts.epoch.store(epoch, Ordering::Relaxed);
        if self.current.as_ref() != Some(&topology)
            && let Some(Err(error)) = self.kept.as_ref().map(|kept| kept.store(&topology))
        {
            tracing::warn!(%error, "the topology cannot be kept");
        }
        self.current = Some(topology.clone());
        topology
    }

    fn forget_pending(&mut self) {
        self.pending = None;
        self.counts.held_back.store(false, Ordering::Relaxed);
    }

    /// A failure confirms nothing: what waits begins to wait anew.
    fn note_failure(&mut self, error: &SourceError) {
        self.forget_pending();
        self.counts.failures.fetch_add(1, Ordering::Relaxed);
        self.counts.failing.store(true, Ordering::Relaxed);
        let text = error.to_string();
        *self.counts.failure.lock() = Some(text.as_str().into());
        if self.failure.as_ref() != Some(&text) {
            tracing::warn!(source = self.source.name(), %error, "the topology cannot be read, the last one stays");
            self.failure = Some(text);
        }
    }
}

impl<S: TopologySource> TopologySource for Guarded<S> {
    /// The next topology to be taken. [`Guarded::first`] comes before it, or what was kept is not looked at.
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        let said = self.source.next(timeout);
        match said.and_then(|said| self.not_older(said)) {
            Ok(Some(topology)) => Ok(self.judge(topology)),
            Ok(None) => Ok(None),
            Err(error) => {
                self.note_failure(&error);
                Err(error)
            }
        }
    }

    fn hurry(&mut self) {
        self.source.hurry();
    }

    fn advice(&mut self) -> Option<Vec<Advised>> {
        self.source.advice()
    }

    fn epochs_grow(&self) -> bool {
        self.source.epochs_grow()
    }

    fn is_behind(&mut self, epoch: u64) {
        self.source.is_behind(epoch);
    }

    fn name(&self) -> String {
        self.source.name()
    }
}

/// What `new` lacks of `old`, if that is more than half of the nodes, or of a replica's. A node is its slot: an address may
/// change.
fn loss(old: &Topology, new: &Topology) -> Option<String> {
    let mut lost_of_all = 0;
    let mut lost_of_one = None;
    for before in &old.replicas {
        let after: HashSet<&str> =
            new.replicas.iter().filter(|after| after.name == before.name).flat_map(slots).collect();
        let lost = slots(before).filter(|slot| !after.contains(slot)).count();
        lost_of_all += lost;
        if 2 * lost > before.nodes.len() {
            lost_of_one = Some(format!("replica {} loses {lost} of {} nodes", before.name, before.nodes.len()));
        }
    }
    let all = old.nodes().count();
    if 2 * lost_of_all > all { Some(format!("{lost_of_all} of {all} nodes")) } else { lost_of_one }
}

fn slots(replica: &Replica) -> impl Iterator<Item = &str> {
    replica.nodes.iter().map(|node| node.slot.as_str())
}
