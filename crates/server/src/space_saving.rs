//! The keys that come most often in a stream, in fixed memory: Space-Saving (Metwally, Agrawal and El Abbadi, "Efficient Computation of
//! Frequent and Top-k Elements in Data Streams", 2005).
//!
//! A key that is counted has an entry with its weight; one that is not takes the place of the least entry, and its weight begins at that
//! of the one it replaces, which is its error. So no weight is told too low, none too high by more than its error, and what has
//! more than 1 / [`ENTRIES`] of the whole weight has an entry.
//!
//! Entries lie in arrays: looking for a key compares the 32-bit tags of all, which takes a few dozen vector instructions.

use std::collections::HashMap;

use moneta_store::KeyHash;
use moneta_store::request::KEY_MAX;

/// Entries of a summary.
pub(crate) const ENTRIES: usize = 128;

/// The bytes of a key.
#[derive(Clone, Copy)]
struct KeyBytes {
    length: u8,
    bytes: [u8; KEY_MAX],
}

const _: () = assert!(KEY_MAX <= u8::MAX as usize, "a key's length fits in a byte");

impl KeyBytes {
    const EMPTY: Self = Self { length: 0, bytes: [0; KEY_MAX] };

    fn get(&self) -> &[u8] {
        &self.bytes[..usize::from(self.length)]
    }

    fn set(&mut self, key: &[u8]) {
        let length = key.len().min(KEY_MAX);
        self.bytes[..length].copy_from_slice(&key[..length]);
        self.length = length as u8;
    }
}

/// A summary of one stream: 36 KiB.
pub(crate) struct Summary {
    used: usize,
    /// No entry weighs less; none before `passed` weighs as little.
    least: u64,
    passed: usize,
    tags: [u32; ENTRIES],
    weights: [u64; ENTRIES],
    errors: [u64; ENTRIES],
    keys: [KeyBytes; ENTRIES],
    /// The sum of all weights.
    total: u64,
}

impl Default for Summary {
    fn default() -> Self {
        Self {
            used: 0,
            least: 0,
            passed: 0,
            tags: [0; ENTRIES],
            weights: [0; ENTRIES],
            errors: [0; ENTRIES],
            keys: [KeyBytes::EMPTY; ENTRIES],
            total: 0,
        }
    }
}

impl Summary {
    /// Counts a key.
    pub(crate) fn add(&mut self, key: &[u8], weight: u64) {
        self.total = self.total.saturating_add(weight);
        let tag = KeyHash::seeded(0).hash(key) as u32;
        if let Some(place) = self.find(key, tag) {
            self.weights[place] = self.weights[place].saturating_add(weight);
            return;
        }
        let (place, floor) = if self.used < ENTRIES {
            self.used += 1;
            (self.used - 1, 0)
        } else {
            let place = self.next_least();
            (place, self.weights[place])
        };
        self.tags[place] = tag;
        self.weights[place] = floor.saturating_add(weight);
        self.errors[place] = floor;
        self.keys[place].set(key);
    }

    /// Forgets everything.
    pub(crate) fn clear(&mut self) {
        (self.used, self.least, self.passed, self.total) = (0, 0, 0, 0);
    }

    fn find(&self, key: &[u8], tag: u32) -> Option<usize> {
        const CHUNK: usize = 16;
        for (chunk, tags) in self.tags.chunks_exact(CHUNK).enumerate() {
            // Without an early end, so that it is done by vectors.
            if !tags.iter().fold(false, |any, other| any | (*other == tag)) {
                continue;
            }
            let first = chunk * CHUNK;
            let is_it = |place: &usize| self.tags[*place] == tag && self.keys[*place].get() == key;
            if let Some(place) = (first..(first + CHUNK).min(self.used)).find(is_it) {
                return Some(place);
            }
        }
        None
    }

    /// An entry that weighs least, of a summary that is full. Weights only grow, so all weights are compared once for the many
    /// entries that weigh the same.
    fn next_least(&mut self) -> usize {
        loop {
            if let Some(place) = self.weights[self.passed..].iter().position(|weight| *weight == self.least) {
                self.passed += place;
                return self.passed;
            }
            (self.least, self.passed) = (self.least_weight(), 0);
        }
    }

    fn least_weight(&self) -> u64 {
        self.weights.iter().copied().fold(u64::MAX, u64::min)
    }

    /// The most that a key without an entry may weigh.
    fn floor(&self) -> u64 {
        if self.used < ENTRIES { 0 } else { self.least_weight() }
    }
}

/// A key of several summaries together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heavy {
    pub(crate) key: Box<[u8]>,
    /// Its weight: not too low.
    pub(crate) weight: u64,
    /// By how much that may be too high.
    pub(crate) error: u64,
}

/// Several summaries as one: bounds add up.
#[derive(Default)]
pub(crate) struct Merged {
    keys: HashMap<Box<[u8]>, (u64, u64)>,
    /// The floors of all summaries so far.
    floors: u64,
    total: u64,
}

impl Merged {
    /// Adds one.
    pub(crate) fn add(&mut self, summary: &Summary) {
        let floor = summary.floor();
        let known: Vec<&[u8]> = summary.keys[..summary.used].iter().map(KeyBytes::get).collect();
        // What another summary has and this one has not may have come here as often as its floor says.
        for (weight, error) in self.keys.values_mut() {
            *weight += floor;
            *error += floor;
        }
        for (place, key) in known.into_iter().enumerate() {
            let (weight, error) = (summary.weights[place], summary.errors[place]);
            match self.keys.get_mut(key) {
                Some(of_all) => {
                    of_all.0 = of_all.0 - floor + weight;
                    of_all.1 = of_all.1 - floor + error;
                }
                None => {
                    self.keys.insert(key.into(), (weight + self.floors, error + self.floors));
                }
            }
        }
        self.floors += floor;
        self.total = self.total.saturating_add(summary.total);
    }

    /// The sum of all weights.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The `most` heaviest keys of which at least half of the weight is sure, the heaviest first.
    pub(crate) fn heaviest(self, most: usize) -> Vec<Heavy> {
        let heavy = |(key, (weight, error))| Heavy { key, weight, error };
        // Of the others more than half may be what the keys weighed whose place they took: where none is hot, these are all.
        let is_sure = |heavy: &Heavy| heavy.error <= heavy.weight / 2;
        let mut all: Vec<Heavy> = self.keys.into_iter().map(heavy).filter(is_sure).collect();
        all.sort_by(|one, other| other.weight.cmp(&one.weight).then_with(|| one.key.cmp(&other.key)));
        all.truncate(most);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stream in which key `n` comes about as often as 1 / n says, in a mixed order.
    fn skewed(keys: u64, seed: u64) -> Vec<u64> {
        let mut random = fastrand::Rng::with_seed(seed);
        (0..20_000).map(|_| (1.0 / random.f64().max(1.0 / keys as f64)) as u64).collect()
    }

    fn check(streams: &[Vec<u64>]) {
        let (mut exact, mut merged) = (HashMap::<u64, u64>::new(), Merged::default());
        for stream in streams {
            let mut summary = Summary::default();
            for key in stream {
                summary.add(key.to_string().as_bytes(), 1);
                *exact.entry(*key).or_default() += 1;
            }
            merged.add(&summary);
        }
        let total: u64 = exact.values().sum();
        assert_eq!(merged.total(), total);
        let found = merged.heaviest(usize::MAX);
        for Heavy { key, weight, error } in &found {
            let truth = exact[&std::str::from_utf8(key).unwrap().parse().unwrap()];
            assert!(*weight >= truth && weight - error <= truth, "{weight} less {error} for {truth}");
            assert!(*error <= total / ENTRIES as u64, "{error} of {total}");
        }
        for (key, truth) in exact {
            let is_found = found.iter().any(|heavy| *heavy.key == *key.to_string().as_bytes());
            // A key may be left out whose weight is no more than its error.
            assert!(is_found || truth <= 2 * total / ENTRIES as u64, "{key} came {truth} times of {total}");
        }
    }

    #[test]
    fn bounds_hold_for_one_stream_and_for_several() {
        check(&[skewed(5000, 1)]);
        check(&[skewed(5000, 2), skewed(300, 3), skewed(20, 4)]);
    }

    #[test]
    fn few_keys_are_counted_exactly_and_a_cleared_summary_is_as_new() {
        let mut summary = Summary::default();
        let long = [0xff; KEY_MAX];
        for _ in 0..2 {
            summary.clear();
            summary.add(&long, 3);
            summary.add(b"", 4);
            summary.add(&long, 2);
            let mut merged = Merged::default();
            merged.add(&summary);
            let heavy = |key: &[u8], weight| Heavy { key: key.into(), weight, error: 0 };
            assert_eq!((merged.total(), merged.heaviest(9)), (9, vec![heavy(&long, 5), heavy(b"", 4)]));
        }
    }
}
