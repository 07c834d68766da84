//! Where a stream's changes go: to the threads that write, each key to its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use moneta_feed::{Buckets, Change, Sink, SinkError};

use crate::counts::add;
use crate::worker::{Applier, Worker, context};

/// The threads of one stream. What is taken is under way until others are taken or it is settled, so that the next changes are read
/// meanwhile.
pub(crate) struct RelaySink {
    applier: Arc<Applier>,
    workers: Vec<Worker>,
    /// When the connection was begun on which the changes come.
    began: Arc<AtomicU64>,
    lacks: bool,
}

impl RelaySink {
    /// Starts `workers` threads.
    ///
    /// # Errors
    /// If the system has none.
    pub(crate) fn start(applier: Arc<Applier>, workers: usize, began: Arc<AtomicU64>) -> std::io::Result<Self> {
        let workers = (0..workers.max(1)).map(|_| Worker::start(Arc::clone(&applier))).collect::<Result<_, _>>()?;
        Ok(Self { applier, workers, began, lacks: false })
    }

    fn share(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        let count = self.workers.len();
        let mut parts: Vec<Vec<Change>> = (0..count).map(|_| Vec::new()).collect();
        for change in changes {
            let of = change.key().map_or(0, |key| usize::from(Buckets::of(key)) % count);
            parts[of].push(change);
        }
        let began = self.began.load(Ordering::Relaxed);
        for (worker, part) in self.workers.iter_mut().zip(parts).filter(|(_, part)| !part.is_empty()) {
            worker.give(part, began)?;
        }
        Ok(())
    }
}

impl Sink for RelaySink {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        self.settle()?;
        add(&self.applier.counts.read, changes.len() as u64);
        add(&self.applier.counts.bytes, changes.iter().map(|change| change.size() as u64).sum());
        let mut run = Vec::with_capacity(changes.len());
        for change in changes {
            if !matches!(change, Change::Flush(_)) {
                run.push(change);
                continue;
            }
            // What came before it has ended, and what comes after it begins after it.
            self.share(std::mem::take(&mut run))?;
            self.settle()?;
            let began = self.began.load(Ordering::Relaxed);
            self.lacks |= self.applier.apply(&context(), vec![change], began)?;
        }
        self.share(run)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        let mut failure = None;
        for worker in &mut self.workers {
            match worker.settle() {
                Ok(lacks) => self.lacks |= lacks,
                Err(error) => failure = Some(error),
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn take_lacks(&mut self) -> bool {
        std::mem::take(&mut self.lacks)
    }
}
