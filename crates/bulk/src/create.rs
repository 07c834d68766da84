//! Items into a store that holds nothing of their keys: for stores or items without versions.
//!
//! Without versions nothing says which of two items is newer, so what is there stays.

use std::thread::sleep;
use std::time::Duration;

use futures_util::future::join_all;
use moneta_feed::{Set, SinkError};
use moneta_item::request::{Exptime, Write, WriteMode};
use moneta_store::steps::into_pending;
use moneta_store::{Cx, Key, Op, Outcome, Pending, Policy, Step, Store, StoreError, Unseen, Written};

use crate::moment::seconds;

/// Pause before what failed is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// What became of items that were to be created.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Created {
    /// They are there now.
    pub created: u64,
    /// The key held something.
    pub there: u64,
    /// They have expired meanwhile, or their source had marked them as stale.
    pub over: u64,
    /// The store had no room for them.
    pub refused: u64,
}

/// Creates items in a store.
pub struct CreateSink<S> {
    store: S,
    cx: Cx,
    /// Tries of what fails.
    tries: u32,
    under_way: Vec<(Set, Pending<Outcome>)>,
    created: Created,
}

impl<S: Store> CreateSink<S> {
    /// Creates in `store`; tries so often what fails.
    pub fn new(store: S, tries: u32) -> Self {
        let cx = Cx::outside().under(Policy::Batch);
        Self { store, cx, tries, under_way: Vec::new(), created: Created::default() }
    }

    /// What became of all that it took.
    pub fn created(&self) -> Created {
        self.created
    }

    /// Begins to create items, once those of before have ended.
    ///
    /// # Errors
    /// When these did not end well.
    pub fn take(&mut self, items: impl IntoIterator<Item = Set>) -> Result<(), SinkError> {
        self.settle()?;
        items.into_iter().for_each(|item| self.start(item));
        Ok(())
    }

    fn start(&mut self, set: Set) {
        let Some(value) = &set.value else { return };
        if set.meta.stale || set.meta.expiry.is_dead(seconds()) {
            self.created.over += 1;
            return;
        }
        let write = Write {
            mode: WriteMode::Add,
            flags: set.meta.flags,
            exptime: Exptime(set.meta.expiry.0.into()),
            ..Write::default()
        };
        let key = Key::new(&set.key, self.store.seed());
        let step = self.store.call(&self.cx, &key, Op::Write(value, &write), &mut Unseen);
        match step {
            Step::Done(Ok(outcome)) => self.count(outcome),
            step => self.under_way.push((set, into_pending(step))),
        }
    }

    fn count(&mut self, outcome: Outcome) {
        match outcome.written() {
            Written::Stored { .. } => self.created.created += 1,
            Written::TooLarge | Written::OutOfMemory => self.created.refused += 1,
            _ => self.created.there += 1,
        }
    }

    /// Waits until all has ended.
    ///
    /// # Errors
    /// When something failed as often as it is tried.
    pub fn settle(&mut self) -> Result<(), SinkError> {
        let mut done = 0;
        while !self.under_way.is_empty() {
            let (items, pending): (Vec<_>, Vec<_>) = std::mem::take(&mut self.under_way).into_iter().unzip();
            let mut failed: Option<StoreError> = None;
            let mut again = Vec::new();
            for (item, ended) in items.into_iter().zip(pollster::block_on(join_all(pending))) {
                match ended {
                    Ok(outcome) => self.count(outcome),
                    Err(error) => {
                        // It may have been created: then it is there.
                        again.push(item);
                        failed = Some(error);
                    }
                }
            }
            let Some(error) = failed else { return Ok(()) };
            done += 1;
            if done >= self.tries {
                return Err(SinkError::Failed(error));
            }
            sleep(PAUSE);
            again.into_iter().for_each(|item| self.start(item));
        }
        Ok(())
    }
}
