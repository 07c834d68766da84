//! A thread that follows a source.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::counts::{SourceCounts, SourceStatus};
use super::guard::Guarded;
use super::{SourceError, TopologySource};
use crate::topology::Topology;

/// How long the thread waits for news at a time: what an end of it takes at most, unless a query is under way.
const TURN: Duration = Duration::from_millis(200);

/// Follows a source on a thread until it is dropped.
pub struct Watch {
    stop: Arc<AtomicBool>,
    counts: Arc<SourceCounts>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Begins to follow `source`, whose [`Guarded::first`] the caller has, and calls `taken` with each later topology.
    ///
    /// # Errors
    /// When the system has no thread.
    pub fn start<S: TopologySource + 'static>(
        mut source: Guarded<S>,
        mut taken: impl FnMut(Topology) + Send + 'static,
    ) -> Result<Self, SourceError> {
        let (stop, counts) = (Arc::new(AtomicBool::new(false)), source.counts());
        let stopped = Arc::clone(&stop);
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                match source.next(TURN) {
                    Ok(Some(topology)) => taken(topology),
                    Ok(None) => {}
                    // Counted and logged. A source says by itself when it can be read again; this is for one that does not.
                    Err(_) => thread::park_timeout(TURN),
                }
            }
        };
        let thread = thread::Builder::new().name("topology".into()).spawn(run).map_err(SourceError::Start)?;
        Ok(Self { stop, counts, thread: Some(thread) })
    }

    /// What the source has done.
    pub fn status(&self) -> SourceStatus {
        self.counts.status()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic there was reported there.
            let _ = thread.join();
        }
    }
}

impl TopologySource for Box<dyn TopologySource> {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        (**self).next(timeout)
    }

    fn name(&self) -> String {
        (**self).name()
    }
}
