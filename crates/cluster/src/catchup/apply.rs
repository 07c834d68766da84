//! Applies what feeds tell to this node's store, in mode newer.

use std::time::Duration;

use futures_util::future::join_all;
use moneta_client::wire::changes::{Set, Told};
use moneta_store::versions::Floor;
use moneta_store::{
    Cx, Deleted, ErrorKind, ItemRef, Key, Op, Outcome, Pending, Policy, Put, Step, Store, StoreError, Unseen, Value,
    Version, Written, component,
};

use super::State;

/// Pause before what failed, or what the store cannot take so early, is tried again.
const RETRY: Duration = Duration::from_millis(100);
/// Tries of a set that the store does not create, since it has just begun and cannot tell yet what was deleted; and of what its clock is
/// behind.
const EARLY_TRIES: usize = 50;

/// What becomes of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Taken,
    Superseded,
    /// The store may have forgotten a delete of the key.
    Unsure,
}

/// Why changes cannot be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error("the store is closed")]
    Closed,
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl State {
    /// Applies changes, all at once but for flushes, which are at the end of `changes` if there are any.
    ///
    /// # Errors
    /// The store's. That this node's clock is behind a change is one only if it stays so for some seconds.
    pub(super) fn apply(&self, changes: &[Told]) -> Result<(), ApplyError> {
        self.apply_within(changes, EARLY_TRIES)
    }

    fn apply_within(&self, changes: &[Told], tries: usize) -> Result<(), ApplyError> {
        let mut left: Vec<&Told> = changes.iter().collect();
        let mut ahead = None;
        for _ in 0..tries {
            (left, ahead) = self.apply_once(&left)?;
            if left.is_empty() {
                break;
            }
            std::thread::sleep(RETRY);
        }
        // What the store has refused so is missing here: the node has not learned everything.
        ahead.map_or(Ok(()), |error| Err(ApplyError::Store(error)))
    }

    /// What is to be tried again is returned, and why, if this node's clock is behind.
    fn apply_once<'t>(&self, changes: &[&'t Told]) -> Result<(Vec<&'t Told>, Option<StoreError>), ApplyError> {
        let closed = self.closed.read();
        if *closed {
            return Err(ApplyError::Closed);
        }
        self.clock.refresh();
        // Polled together: one may hold what another one waits for.
        let ended = pollster::block_on(join_all(changes.iter().map(|told| self.begin(told))));
        drop(closed);
        let (mut again, mut ahead) = (Vec::new(), None);
        for (told, ended) in changes.iter().zip(ended) {
            match ended {
                Ok(Fate::Taken) => self.counts.taken.add(1),
                Ok(Fate::Superseded) => self.counts.superseded.add(1),
                Ok(Fate::Unsure) => again.push(*told),
                Err(error) if error.kind() == ErrorKind::ClockAhead => {
                    again.push(*told);
                    ahead = Some(error);
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok((again, ahead))
    }

    fn begin(&self, told: &Told) -> Pending<Fate> {
        let step = match told {
            Told::Set(set) => self.put(set),
            Told::Delete { key, version } => {
                let step = self.call(&self.key(key), Op::Bury(*version));
                step.map(|outcome| match outcome.deleted() {
                    Deleted::Superseded { .. } => Fate::Superseded,
                    _ => Fate::Taken,
                })
            }
            // The node would not take it, and what is older is gone.
            Told::TooLarge { key, version } => {
                self.call(&self.key(key), Op::Bury(version.just_below())).map(|outcome| match outcome.deleted() {
                    Deleted::Superseded { .. } => Fate::Superseded,
                    _ => Fate::Taken,
                })
            }
            Told::Flush { version, second } => self.flush(Floor { version: *version, second: *second }),
            Told::Gap { .. } | Told::Lost { .. } | Told::At { .. } | Told::End => Step::done(Fate::Taken),
        };
        match step {
            Step::Done(fate) => Box::pin(std::future::ready(fate)),
            Step::Wait(pending) => pending,
        }
    }

    fn put(&self, set: &Set) -> Step<Fate> {
        let Some(value) = &set.value else { return Step::done(Fate::Taken) };
        let item = ItemRef { meta: set.meta, value: Value::whole(value) };
        // A delete of the key since then is in the same feed, and comes before the node answers reads: so the item is as good
        // as one that was read now.
        let as_of = self.clock.millis();
        self.call(&self.key(&set.key), Op::Put(&item, Put::Newer { as_of, base: None })).map(|outcome| {
            match outcome.written() {
                Written::Superseded { .. } => Fate::Superseded,
                Written::NotStored => Fate::Unsure,
                _ => Fate::Taken,
            }
        })
    }

    fn flush(&self, floor: Floor) -> Step<Fate> {
        component::floor(&*self.store, &Cx::outside(), floor).map(|()| Fate::Taken)
    }

    /// Drops everything that the node holds.
    ///
    /// # Errors
    /// The store's.
    pub(super) fn drop_all(&self) -> Result<(), ApplyError> {
        let closed = self.closed.read();
        if *closed {
            return Err(ApplyError::Closed);
        }
        self.counts.dropped.add(1);
        match self.flush(Floor::local(Version::at(self.clock.millis()))) {
            Step::Done(ended) => ended,
            Step::Wait(pending) => pollster::block_on(pending),
        }?;
        Ok(())
    }

    fn call(&self, key: &Key<'_>, op: Op<'_>) -> Step<Outcome> {
        // Nothing says that it will be read soon.
        self.store.call(&Cx::outside().under(Policy::Batch), key, op, &mut Unseen)
    }

    fn key<'k>(&self, key: &'k [u8]) -> Key<'k> {
        Key::new(key, self.store.seed())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use moneta_memory::{Memory, MemoryConfig};
    use moneta_store::versions::Versioning;
    use moneta_store::{Clock, KeyHash};

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
            connector: Default::default(),
        };
        let node = CatchUp::new(store, config, Arc::clone(&clock));
        let told = Told::Delete { key: b"key".to_vec(), version: Version::at(clock.millis() + 3_600_000) };
        let refused = node.state().apply_within(std::slice::from_ref(&told), 2);
        assert!(
            matches!(&refused, Err(ApplyError::Store(error)) if error.kind() == ErrorKind::ClockAhead),
            "{refused:?}"
        );
        clock.advance(3_600);
        node.state().apply_within(&[told], 2).expect("its clock is right by now");
        assert_eq!(node.state().counts.taken.get(), 1);
    }
}
