//! A walk, checked while operations go on between its batches.

use std::collections::HashSet;

use moneta_store::{Cursor, ItemMeta, Store};

use super::call::Outcome;
use super::options::Mode;
use super::pair::Pair;

/// Batches after which a walk over at most some thousand keys is taken to be endless.
const BATCHES_MAX: usize = 1_000_000;

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    cursor: Cursor,
    batches: usize,
    /// Keys that were live when the walk began and were not changed since: each is to be shown once, by a store that is
    /// short of room at least once, as it may move what it keeps.
    steady: HashSet<usize>,
    shown: HashSet<usize>,
}

/// An item that the store showed, copied: it must not be asked anything while it shows.
struct Shown {
    key: Vec<u8>,
    meta: ItemMeta,
    value_bytes: usize,
    size: usize,
}

impl Walk {
    /// Begins a walk of the store.
    pub(super) fn begin<S: Store>(pair: &Pair<'_, S>) -> Result<Self, String> {
        let mut steady = HashSet::new();
        for number in pair.key_numbers() {
            if matches!(pair.model_peek(number)?, Outcome::Hit(_)) {
                steady.insert(number);
            }
        }
        Ok(Self { cursor: Cursor::default(), batches: 0, steady, shown: HashSet::new() })
    }

    /// Takes note that a key was changed: it may be shown any number of times.
    pub(super) fn changed(&mut self, number: usize) {
        self.steady.remove(&number);
    }

    /// How many keys it has shown.
    pub(super) fn shown(&self) -> usize {
        self.shown.len()
    }

    /// Walks a batch; false when there are no more.
    pub(super) fn batch<S: Store>(&mut self, pair: &Pair<'_, S>) -> Result<bool, String> {
        let mut batch = Vec::new();
        let more = pair.driven.walk(&mut self.cursor, &mut |item| {
            let (meta, value_bytes, size) = (item.meta, item.value_bytes, item.size);
            batch.push(Shown { key: item.key.to_vec(), meta, value_bytes, size });
        })?;
        for shown in &batch {
            self.show(pair, shown)?;
        }
        self.batches += 1;
        if self.batches > BATCHES_MAX {
            return Err(format!("the walk goes on after {BATCHES_MAX} batches"));
        }
        Ok(more)
    }

    fn show<S: Store>(&mut self, pair: &Pair<'_, S>, shown: &Shown) -> Result<(), String> {
        let name = shown.key.escape_ascii();
        let number = pair.number_of(&shown.key).ok_or(format!("the walk shows b\"{name}\", which was never stored"))?;
        let again = !self.shown.insert(number);
        if again && self.steady.contains(&number) && pair.options.mode == Mode::Exact {
            return Err(format!("the walk shows key {number} twice"));
        }
        let Outcome::Hit(item) = pair.model_peek(number)? else {
            return Err(format!("the walk shows key {number}, which has no live item"));
        };
        let mut comparison = pair.comparison(number);
        comparison.metas(&item.meta, &shown.meta).map_err(|reason| format!("the walk at key {number}: {reason}"))?;
        if shown.value_bytes != item.value.len() || shown.size < shown.key.len() + item.value.len() {
            let Shown { value_bytes, size, .. } = shown;
            let expected = item.value.len();
            return Err(format!("the walk gives key {number} {value_bytes} of {expected} bytes and size {size}"));
        }
        Ok(())
    }

    /// Checks that no steady item was left out. One that the store says it has lost counts as evicted, in lossy mode.
    pub(super) fn end<S: Store>(self, pair: &mut Pair<'_, S>) -> Result<(), String> {
        for number in self.steady.difference(&self.shown).copied() {
            if !matches!(pair.model_peek(number)?, Outcome::Hit(_)) {
                continue;
            }
            let key = pair.key(number);
            let evicted = matches!(pair.driven.peek(&key)?, Outcome::Miss { .. });
            if !(evicted && pair.options.mode == Mode::Lossy) {
                return Err(format!("the walk left out key {number}"));
            }
            pair.forget(number);
        }
        Ok(())
    }
}
