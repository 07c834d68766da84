//! How what feeds tell goes to this node's store, in mode newer.

use std::sync::Arc;
use std::time::Duration;

use moneta_feed::apply::AsOf;
use moneta_feed::{Change, Rules, Sink, SinkError, StoreSink};
use moneta_store::versions::Floor;
use moneta_store::{Cx, Policy, Step, Store, StoreError, Version, component};

use super::state::CatchUpState;

/// Pause before what the store cannot take so early is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Tries of a set that the store does not create, since it has just begun and cannot tell yet what was deleted; and of what its
/// clock is behind.
const EARLY_TRIES: u32 = 50;

/// Why the store cannot be dropped.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("the store is closed")]
    Closed,
    #[error("{0}")]
    Store(#[from] StoreError),
}

/// A sink to this node's store that counts what it takes.
pub(super) struct OwnStore {
    state: Arc<CatchUpState>,
    sink: StoreSink<Arc<dyn Store>>,
    /// Of what was taken, so many are counted.
    taken: u64,
    superseded: u64,
}

impl OwnStore {
    /// What it refuses for a clock that is behind is an error only if it stays so for some seconds: then the node has not learned
    /// everything.
    pub(super) fn of(state: &Arc<CatchUpState>) -> Self {
        Self::with_tries(state, EARLY_TRIES)
    }

    fn with_tries(state: &Arc<CatchUpState>, tries: u32) -> Self {
        let rules = Rules {
            // A delete of the key since then is in the same feed, and comes before the node answers reads: so an item is as good
            // as one that was read now.
            as_of: AsOf::Now,
            // Nothing says that it will be read soon.
            policy: Policy::Batch,
            pause: RETRY,
            early_tries: tries,
            clock_tries: Some(tries),
            failure_tries: Some(1),
            overlaps: false,
        };
        let (store, clock, gate) = (Arc::clone(&state.store), Arc::clone(&state.clock), Arc::clone(&state.gate));
        let sink = StoreSink::new(store, clock, rules, gate, Box::new(|_, _| ()));
        Self { state: Arc::clone(state), sink, taken: 0, superseded: 0 }
    }

    fn count(&mut self) {
        let tally = self.sink.tally();
        // What it has no room for is gone, as an item that was evicted.
        let taken = tally.taken + tally.refused;
        self.state.counts.taken.add(taken - std::mem::replace(&mut self.taken, taken));
        self.state.counts.superseded.add(tally.superseded - std::mem::replace(&mut self.superseded, tally.superseded));
    }
}

impl Sink for OwnStore {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        let taken = self.sink.take(changes);
        self.count();
        taken
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        self.sink.settle()
    }

    fn take_lacks(&mut self) -> bool {
        self.sink.take_lacks()
    }
}

impl CatchUpState {
    /// Drops everything that the node holds.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn drop_all(&self) -> Result<(), ApplyError> {
        let Some(entered) = self.gate.enter() else { return Err(ApplyError::Closed) };
        self.counts.dropped.add(1);
        let floor = Floor::local(Version::at(self.clock.millis()));
        let step = component::floor(&*self.store, &Cx::outside(), floor);
        drop(entered);
        match step {
            Step::Done(ended) => ended,
            Step::Wait(pending) => pollster::block_on(pending),
        }?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use moneta_memory::{Memory, MemoryConfig};
    use moneta_store::versions::Versioning;
    use moneta_store::{Clock, ErrorKind, KeyHash};

    use super::super::{AtDeadline, CatchUp, CatchUpConfig};
    use super::*;

    #[test]
    fn a_node_whose_clock_is_behind_has_not_learned_what_it_refuses() {
        let clock = Arc::new(Clock::manual(1_790_000_000));
        let versioning = Versioning { cluster: true, ..Versioning::default() };
        let seed = KeyHash::seeded(7);
        let (limit, item_max, threads) = (16 << 20, 1 << 20, 1);
        let config = MemoryConfig { limit, item_max, evict: true, threads, shards: None, seed, versioning };
        let store: Arc<dyn Store> = Arc::new(Memory::new(&config, Arc::clone(&clock)).expect("memory"));
        let deadline = Duration::from_secs(600);
        let config = CatchUpConfig {
            own: None,
            kept_until: Some(0),
            lost_some: false,
            skew_max: 500,
            deadline,
            at_deadline: AtDeadline::StayOut,
            item_max: 1 << 20,
            outward: Default::default(),
        };
        let node = CatchUp::new(store, config, Arc::clone(&clock));
        let delete = Change::Delete { key: b"key"[..].into(), version: Version::at(clock.millis() + 3_600_000) };
        let apply = || OwnStore::with_tries(node.state(), 2).take(vec![delete.clone()]);
        let refused = apply();
        assert!(
            matches!(&refused, Err(SinkError::Failed(error)) if error.kind() == ErrorKind::ClockAhead),
            "{refused:?}"
        );
        clock.advance(3_600);
        apply().expect("its clock is right by now");
        assert_eq!(node.state().counts.taken.get(), 1);
    }
}
