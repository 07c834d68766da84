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
/// Tries of a set that the store does not create: it has just begun, and cannot tell yet what was deleted.
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
    /// The store's, but for those of clocks: these pass.
    pub(super) fn apply(&self, changes: &[Told]) -> Result<(), ApplyError> {
        let mut left: Vec<&Told> = changes.iter().collect();
        for _ in 0..EARLY_TRIES {
            left = self.apply_once(&left)?;
            if left.is_empty() {
                break;
            }
            std::thread::sleep(RETRY);
        }
        Ok(())
    }

    /// What is to be tried again is returned.
    fn apply_once<'t>(&self, changes: &[&'t Told]) -> Result<Vec<&'t Told>, ApplyError> {
        let closed = self.closed.read();
        if *closed {
            return Err(ApplyError::Closed);
        }
        self.clock.refresh();
        // Polled together: one may hold what another one waits for.
        let ended = pollster::block_on(join_all(changes.iter().map(|told| self.begin(told))));
        drop(closed);
        let mut again = Vec::new();
        for (told, ended) in changes.iter().zip(ended) {
            match ended {
                Ok(Fate::Taken) => self.counts.taken.add(1),
                Ok(Fate::Superseded) => self.counts.superseded.add(1),
                Ok(Fate::Unsure) => again.push(*told),
                Err(error) if error.kind() == ErrorKind::ClockAhead => again.push(*told),
                Err(error) => return Err(error.into()),
            }
        }
        Ok(again)
    }

    fn begin(&self, told: &Told) -> Pending<Fate> {
        let step = match told {
            Told::Set(set) => self.put(set),
            Told::Delete { key, version } => {
                let step = self.call(&self.key(key), Op::Bury(*version));
                step.map(|outcome| match outcome.deleted() {
                    Deleted::Superseded => Fate::Superseded,
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
                Written::Superseded => Fate::Superseded,
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
