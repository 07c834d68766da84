//! What a cluster store counts.

use std::sync::Arc;

use moneta_store::metric::{Values, by};
use moneta_store::{Counter, Lookup, StoreError};
use parking_lot::Mutex;

use crate::durations::Durations;

/// How reads of keys ended, of one thread: each worker has other numbers, so that none waits for a cache line of another.
#[derive(Debug, Default)]
pub(crate) struct Reads {
    hits: Counter,
    misses: Counter,
    failures: Counter,
}

impl Reads {
    #[inline]
    pub(crate) fn note(&self, ended: &Result<Lookup, StoreError>) {
        let counter = match ended {
            Ok(Lookup::Miss { .. }) => &self.misses,
            Ok(_) => &self.hits,
            Err(_) => &self.failures,
        };
        counter.add(1);
    }
}

/// How reads ended, of all threads.
#[derive(Debug, Default)]
pub(crate) struct AllReads {
    /// Of threads that are no workers.
    pub(crate) outside: Reads,
    workers: Mutex<Vec<Arc<Reads>>>,
}

impl AllReads {
    /// Those of one more worker.
    pub(crate) fn of_worker(&self) -> Arc<Reads> {
        let reads = Arc::<Reads>::default();
        self.workers.lock().push(Arc::clone(&reads));
        reads
    }

    /// By result.
    pub(crate) fn values(&self) -> Values {
        let workers = self.workers.lock();
        let all = || workers.iter().map(|worker| &**worker).chain([&self.outside]);
        let sum = |counter: fn(&Reads) -> &Counter| all().map(|reads| counter(reads).get()).sum();
        by(&[
            ("hit", sum(|reads| &reads.hits)),
            ("miss", sum(|reads| &reads.misses)),
            ("failed", sum(|reads| &reads.failures)),
        ])
    }
}

/// What became of items in doubt.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// Other copies have nothing newer.
    pub(crate) kept: Counter,
    /// Replaced by something newer.
    pub(crate) replaced: Counter,
    /// Another copy would have it, and has not.
    pub(crate) dropped: Counter,
    /// No copy answered for them: they stay in doubt.
    pub(crate) open: Counter,
}

impl Swept {
    /// By result.
    pub(crate) fn values(&self) -> Values {
        by(&[
            ("kept", self.kept.get()),
            ("replaced", self.replaced.get()),
            ("dropped", self.dropped.get()),
            ("open", self.open.get()),
        ])
    }
}

/// What became of the last writes of processes that are gone.
#[derive(Debug, Default)]
pub(crate) struct Mends {
    /// Processes that were taken up.
    pub(crate) processes: Counter,
    /// Writes given to a copy that lacked them.
    pub(crate) given: Counter,
    /// Writes that a copy lacks and no other one has any more, or of which that could not be known.
    pub(crate) left: Counter,
    /// Feeds that did not reach back.
    pub(crate) gaps: Counter,
}

impl Mends {
    /// Writes, by result.
    pub(crate) fn values(&self) -> Values {
        by(&[("given", self.given.get()), ("left", self.left.get())])
    }
}

/// Numbers of all threads.
#[derive(Debug, Default)]
pub(crate) struct ClusterCounters {
    /// Keys that were read.
    pub(crate) reads: AllReads,
    /// Reads that went to another copy.
    pub(crate) second_reads: Counter,
    /// Reads that failed, and found the budget for second reads spent.
    pub(crate) retries_refused: Counter,
    /// Items given to a near copy that missed them.
    pub(crate) fills: Counter,
    /// Items that were about to be given to others and were older than what a third copy has.
    pub(crate) outdated_sources: Counter,
    /// Writes that were stamped again, since a copy held something newer.
    pub(crate) stamped_anew: Counter,
    /// Changes that were decided on a key's home.
    pub(crate) decisions: Counter,
    /// Of these, rounds that had to be repeated.
    pub(crate) conflicts: Counter,
    /// Hints delivered.
    pub(crate) hints_delivered: Counter,
    /// Items in doubt that were compared.
    pub(crate) swept: Swept,
    /// Writes given to the nodes that hold their keys by a newer topology.
    pub(crate) carried_over: Counter,
    /// Last writes of processes that are gone.
    pub(crate) mends: Mends,
    /// Topologies taken.
    pub(crate) topologies: Counter,
    /// How long requests took.
    pub(crate) durations: Arc<Durations>,
}
