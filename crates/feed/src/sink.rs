//! Where changes go.

use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use futures_util::future::join_all;
use moneta_store::feed::Change;
use moneta_store::steps::into_pending;
use moneta_store::{Clock, Cx, ErrorKind, Pending, Policy, Step, Store, StoreError};

use crate::apply::{AsOf, Fate, Tally, begin, may_pass};
use crate::gate::Gate;

/// Takes changes.
pub trait Sink {
    /// Takes changes, in this order. What it began it may end later, before it takes others or settles.
    ///
    /// # Errors
    /// When it cannot take them.
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError>;

    /// Waits until all that it took has ended.
    ///
    /// # Errors
    /// When something it took did not end well.
    fn settle(&mut self) -> Result<(), SinkError>;

    /// Whether it may lack what it took since this was asked last: what came shortly before is to be told again.
    fn take_lacks(&mut self) -> bool;
}

/// Why a sink does not take changes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// Its store is closed.
    #[error("the store is closed")]
    Closed,
    /// It will never take them: it knows no versions, or is something else.
    #[error("{0}")]
    Refused(String),
    /// It failed; the same may succeed later.
    #[error("{0}")]
    Failed(StoreError),
    /// What it prints to is gone.
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// What is done about changes that a store does not take at once.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// When the items were last known to be current.
    pub as_of: AsOf,
    /// How requests treat a cache tier.
    pub policy: Policy,
    /// Pause before what was not taken is tried again.
    pub pause: Duration,
    /// Tries of what the store does not create, since it has begun so lately that it cannot tell what was deleted.
    pub early_tries: u32,
    /// Tries of what is ahead of the store's clock; `None`: until it is taken.
    pub clock_tries: Option<u32>,
    /// Tries of what fails otherwise; `None`: until it is taken.
    pub failure_tries: Option<u32>,
    /// Changes may be under way while others are fetched: for stores elsewhere. What waits in this process may hold up requests.
    pub overlaps: bool,
}

/// Called with an error that will be tried again, and the number of changes that it concerns.
pub type Retrying = Box<dyn FnMut(&StoreError, usize)>;

/// A store in mode newer: an engine, another node, a whole cluster. It belongs to one thread.
pub struct StoreSink<S> {
    store: S,
    clock: Arc<Clock>,
    rules: Rules,
    gate: Arc<Gate>,
    cx: Cx,
    under_way: Vec<(Change, Pending<Fate>)>,
    tally: Tally,
    lacks: bool,
    retrying: Retrying,
}

impl<S: Store> StoreSink<S> {
    /// Writes to `store` as long as the gate is open.
    pub fn new(store: S, clock: Arc<Clock>, rules: Rules, gate: Arc<Gate>, retrying: Retrying) -> Self {
        let cx = Cx::outside().under(rules.policy);
        let (under_way, tally) = (Vec::new(), Tally::default());
        Self { store, clock, rules, gate, cx, under_way, tally, lacks: false, retrying }
    }

    /// What became of all that it took.
    pub fn tally(&self) -> Tally {
        self.tally
    }

    /// Counts as one that may lack what it took.
    pub fn note_lacks(&mut self) {
        self.lacks = true;
    }

    fn start(&mut self, changes: Vec<Change>) {
        self.clock.refresh();
        let now = self.clock.millis();
        for change in changes {
            match begin(&self.store, &self.cx, &change, self.rules.as_of, now) {
                Step::Done(Ok(fate)) if fate != Fate::Unsure => self.tally.count(fate),
                step => self.under_way.push((change, into_pending(step))),
            }
        }
    }

    /// Begins changes among which only the first may be a flush.
    fn take_run(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        if changes.is_empty() {
            return Ok(());
        }
        let gate = Arc::clone(&self.gate);
        let Some(entered) = gate.enter() else { return Err(SinkError::Closed) };
        let is_flush = matches!(changes[0], Change::Flush(_));
        self.start(changes);
        drop(entered);
        if is_flush || !self.rules.overlaps { self.settle() } else { Ok(()) }
    }
}

/// Whether another try is left of `tries` after so many.
fn is_left(tries: Option<u32>, done: u32) -> bool {
    tries.is_none_or(|tries| done < tries)
}

impl<S: Store> Sink for StoreSink<S> {
    fn take(&mut self, changes: Vec<Change>) -> Result<(), SinkError> {
        self.settle()?;
        let mut run = Vec::with_capacity(changes.len());
        for change in changes {
            let is_flush = matches!(change, Change::Flush(_));
            if is_flush {
                self.take_run(std::mem::take(&mut run))?;
                self.settle()?;
            }
            run.push(change);
            if is_flush {
                self.take_run(std::mem::take(&mut run))?;
            }
        }
        self.take_run(run)
    }

    fn settle(&mut self) -> Result<(), SinkError> {
        let mut done = 0;
        while !self.under_way.is_empty() {
            let (changes, pending): (Vec<_>, Vec<_>) = std::mem::take(&mut self.under_way).into_iter().unzip();
            // Polled together: one may hold what another one waits for.
            let ended = pollster::block_on(join_all(pending));
            done += 1;
            let (mut again, mut why) = (Vec::new(), None);
            for (change, ended) in changes.into_iter().zip(ended) {
                let error = match ended {
                    Ok(Fate::Unsure) if is_left(Some(self.rules.early_tries), done) => {
                        again.push(change);
                        continue;
                    }
                    Ok(fate) => {
                        self.lacks |= fate == Fate::Unsure;
                        self.tally.count(fate);
                        continue;
                    }
                    Err(error) => error,
                };
                let is_ahead = error.kind() == ErrorKind::ClockAhead;
                if !may_pass(&error) {
                    return Err(SinkError::Refused(error.to_string()));
                }
                let tries = if is_ahead { self.rules.clock_tries } else { self.rules.failure_tries };
                if !is_left(tries, done) {
                    return Err(SinkError::Failed(error));
                }
                self.lacks |= !is_ahead;
                again.push(change);
                why = Some(error);
            }
            if again.is_empty() {
                return Ok(());
            }
            if let Some(error) = &why {
                (self.retrying)(error, again.len());
            }
            sleep(self.rules.pause);
            let gate = Arc::clone(&self.gate);
            let Some(_entered) = gate.enter() else { return Err(SinkError::Closed) };
            self.start(again);
        }
        Ok(())
    }

    fn take_lacks(&mut self) -> bool {
        std::mem::take(&mut self.lacks)
    }
}
