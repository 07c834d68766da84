//! A store and the model, side by side, and what is known of both.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use moneta_store::{Clock, Expiry, Key, Store};

use super::call::{Driven, Outcome};
use super::cas_book::CasBook;
use super::compare::Comparison;
use super::options::Options;
use crate::model::ModelStore;

/// Both stores and what is known of them.
pub(super) struct Pair<'a, S> {
    pub(super) driven: Driven<'a, S>,
    pub(super) model: ModelStore,
    pub(super) options: Options,
    pub(super) book: CasBook,
    /// Keys under which something may lie: a dead or flushed item may, until the store notices.
    pub(super) laid: HashSet<usize>,
    /// When items die of which the store may have lost a part and kept the rest.
    pub(super) remains: HashMap<usize, Expiry>,
    pub(super) clock: Arc<Clock>,
    keys: &'a [Vec<u8>],
}

impl<'a, S: Store> Pair<'a, S> {
    /// Both, empty.
    pub(super) fn new(driven: Driven<'a, S>, options: Options, clock: Arc<Clock>, keys: &'a [Vec<u8>]) -> Self {
        Self {
            driven,
            model: ModelStore::new(Arc::clone(&clock), options.config.value_max),
            options,
            book: CasBook::default(),
            laid: HashSet::new(),
            remains: HashMap::new(),
            clock,
            keys,
        }
    }

    /// A key as the store takes it.
    pub(super) fn key(&self, number: usize) -> Key<'a> {
        let seed = self.driven.store.seed();
        let shared = self.options.keys_per_hash.max(1);
        let hash = Key::new(&self.keys[number / shared * shared], seed).hash;
        Key { bytes: &self.keys[number], hash }
    }

    /// How many keys there are.
    pub(super) fn key_numbers(&self) -> std::ops::Range<usize> {
        0..self.keys.len()
    }

    /// The number of a key that a store shows.
    pub(super) fn number_of(&self, key: &[u8]) -> Option<usize> {
        self.keys.iter().position(|known| known == key)
    }

    pub(super) fn model_driven(&self) -> Driven<'_, ModelStore> {
        Driven { store: &self.model, idle: &|_| unreachable!("the model never waits") }
    }

    /// What the model shows of a key.
    pub(super) fn model_peek(&self, number: usize) -> Result<Outcome, String> {
        self.model_driven().peek(&self.key(number))
    }

    pub(super) fn comparison(&self, number: usize) -> Comparison {
        let Options {
            last_access_slack,
            fetched_slack,
            expiry_slack,
            bare_numbers,
            bare_items,
            versions_unknown,
            counted,
            ..
        } = self.options;
        let (versions, came_back) = (self.book.versions(number), self.options.restarts);
        let remains_died = self.remains.get(&number).is_some_and(|expiry| expiry.is_dead(self.clock.now()));
        let may_be_expired = came_back || remains_died;
        Comparison {
            versions,
            last_access_slack,
            fetched_slack,
            expiry_slack,
            bare_numbers,
            bare_items,
            versions_unknown,
            counted,
            may_be_expired,
        }
    }

    /// Notes that the store has evicted a key.
    pub(super) fn forget(&mut self, number: usize) {
        if let Some(item) = self.model.remember(&self.keys[number]) {
            self.remains.insert(number, item.expiry);
        }
        self.model.restore(&self.keys[number], None);
        self.laid.remove(&number);
    }
}
