//! A thread that follows a source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use moneta_background::{Run, Task};

use super::advice::Advised;
use super::counts::{SourceCounts, SourceStatus};
use super::guard::Guarded;
use super::source::{SourceError, TopologySource};
use crate::topology::Topology;

/// How long the thread waits for news at a time: what an end of it takes at most, unless a query is under way.
const TURN: Duration = Duration::from_millis(200);
/// How often a topology is tried that could not be taken.
const AGAIN: Duration = Duration::from_secs(1);

/// Follows a source on a thread until it is dropped.
pub struct Watch {
    hurries: Arc<AtomicBool>,
    counts: Arc<SourceCounts>,
    task: Option<Task>,
}

impl Watch {
    /// Begins to follow `source`, whose [`Guarded::first`] the caller has, and calls `taken` with each later topology. Where that
    /// returns false, the topology could not be taken: it is called again with it once a second, until it is or there is a later
    /// one. `advised` is called with what the source says of the nodes' states.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start<S: TopologySource + 'static>(
        mut source: Guarded<S>,
        mut taken: impl FnMut(&Topology) -> bool + Send + 'static,
        mut advised: impl FnMut(&[Advised]) + Send + 'static,
    ) -> Result<Self, SourceError> {
        let (counts, hurries) = (source.counts(), Arc::<AtomicBool>::default());
        let is_hurried = Arc::clone(&hurries);
        let run = move |task: &Run| {
            // What could not be taken, and when that was tried last.
            let mut left: Option<(Topology, Instant)> = None;
            while !task.is_stopped() {
                if is_hurried.swap(false, Ordering::Relaxed) {
                    source.hurry();
                }
                match source.next(TURN) {
                    Ok(Some(topology)) => left = (!taken(&topology)).then(|| (topology, Instant::now())),
                    Ok(None) => {}
                    // Counted and logged. A source says by itself when it can be read again; this is for one that does not.
                    Err(error) => {
                        task.failed(&error);
                        task.sleep(TURN);
                    }
                }
                source.advice().into_iter().for_each(|advice| advised(&advice));
                if left.as_ref().is_some_and(|(_, tried)| tried.elapsed() >= AGAIN) {
                    let tried = left.take().map(|(topology, _)| topology).filter(|topology| !taken(topology));
                    left = tried.map(|topology| (topology, Instant::now()));
                }
            }
        };
        let task = moneta_background::start("topology", run).map_err(SourceError::Start)?;
        Ok(Self { hurries, counts, task: Some(task) })
    }

    /// Has the source read again as soon as may be.
    pub fn hurry(&self) {
        self.hurries.store(true, Ordering::Relaxed);
    }

    /// Why the source cannot be read, if it cannot.
    pub fn failure(&self) -> Option<Arc<str>> {
        self.counts.failure()
    }

    /// What the source has done.
    pub fn status(&self) -> SourceStatus {
        self.counts.status()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.stop();
            // A panic there was reported there.
            task.join();
        }
    }
}

impl TopologySource for Box<dyn TopologySource> {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        (**self).next(timeout)
    }

    fn hurry(&mut self) {
        (**self).hurry();
    }

    fn advice(&mut self) -> Option<Vec<Advised>> {
        (**self).advice()
    }

    fn epochs_grow(&self) -> bool {
        (**self).epochs_grow()
    }

    fn is_behind(&mut self, epoch: u64) {
        (**self).is_behind(epoch);
    }

    fn name(&self) -> String {
        (**self).name()
    }
}
