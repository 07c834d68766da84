//! What the threads of a run have found, together.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};

use moneta_store::{KeyHash, Version};
use parking_lot::Mutex;

use crate::comparison::{Difference, Sight};
use crate::error::Side;
use crate::report::{Counts, Example, Kind};

/// Differing keys of which it is known that they were counted, so that no walk that lists a key twice, and no key listed by both
/// sides, counts twice. 16 MiB; beyond it such keys may.
const KNOWN_MAX: usize = 1 << 20;

/// Counts and examples.
#[derive(Debug)]
pub(crate) struct Tally {
    inner: Mutex<Inner>,
    examples: usize,
}

#[derive(Debug, Default)]
struct Inner {
    counts: Counts,
    examples: BTreeMap<Kind, Vec<Example>>,
    known: HashSet<u64>,
}

impl Tally {
    /// Nothing yet; at most so many examples of each kind will be kept.
    pub(crate) fn new(examples: usize) -> Self {
        Self { inner: Mutex::default(), examples }
    }

    /// Changes counts.
    pub(crate) fn count(&self, change: impl FnOnce(&mut Counts)) -> Counts {
        let mut inner = self.inner.lock();
        change(&mut inner.counts);
        inner.counts
    }

    /// Enters a difference; false if the key has been entered already.
    pub(crate) fn different(&self, key: &[u8], difference: Difference, a: &Sight, b: &Sight) -> bool {
        let mut inner = self.inner.lock();
        if !inner.is_new(key) {
            return false;
        }
        inner.counts.different += 1;
        match order(a, b) {
            Some(Ordering::Greater) => inner.counts.newer_in_a += 1,
            Some(Ordering::Less) => inner.counts.newer_in_b += 1,
            Some(Ordering::Equal) => inner.counts.same_version += 1,
            None => {}
        }
        let kinds = match difference {
            Difference::Only(Side::A) => vec![Kind::OnlyInA],
            Difference::Only(Side::B) => vec![Kind::OnlyInB],
            Difference::Parts { value, flags, expiry } => {
                let parts = [(value, Kind::Value), (flags, Kind::Flags), (expiry, Kind::Expiry)];
                parts.into_iter().filter_map(|(differs, kind)| differs.then_some(kind)).collect()
            }
        };
        for kind in kinds {
            *inner.counts.of(kind) += 1;
            self.example(&mut inner, kind, || Example::of_items(key, a, b));
        }
        true
    }

    /// Enters a key that could not be compared.
    pub(crate) fn error(&self, key: &[u8], reason: String) {
        let mut inner = self.inner.lock();
        if inner.is_new(key) {
            *inner.counts.of(Kind::Errors) += 1;
            self.example(&mut inner, Kind::Errors, || Example::of_reason(key, reason));
        }
    }

    /// Enters a key that could not be repaired.
    pub(crate) fn unrepaired(&self, key: &[u8], reason: &str) {
        let mut inner = self.inner.lock();
        *inner.counts.of(Kind::Unrepaired) += 1;
        self.example(&mut inner, Kind::Unrepaired, || Example::of_reason(key, reason.to_owned()));
    }

    /// Enters a key that was counted as repaired and turned out not to be.
    pub(crate) fn not_repaired_after_all(&self, key: &[u8], reason: &str) {
        self.count(|counts| counts.repaired = counts.repaired.saturating_sub(1));
        self.unrepaired(key, reason);
    }

    /// All of it.
    pub(crate) fn finish(self) -> (Counts, BTreeMap<Kind, Vec<Example>>) {
        let inner = self.inner.into_inner();
        (inner.counts, inner.examples)
    }

    fn example(&self, inner: &mut Inner, kind: Kind, example: impl FnOnce() -> Example) {
        let examples = inner.examples.entry(kind).or_default();
        if examples.len() < self.examples {
            examples.push(example());
        }
    }
}

/// Which of two items is the newer one, where both servers tell and either has a version.
fn order(a: &Sight, b: &Sight) -> Option<Ordering> {
    let (Sight::Item(a), Sight::Item(b)) = (a, b) else { return None };
    let (a, b) = (a.version?, b.version?);
    (a.max(b) > Version::ZERO).then(|| a.cmp(&b))
}

impl Inner {
    /// Takes note of a key.
    fn is_new(&mut self, key: &[u8]) -> bool {
        let hash = KeyHash::seeded(0).hash(key);
        if self.known.len() >= KNOWN_MAX { !self.known.contains(&hash) } else { self.known.insert(hash) }
    }
}
