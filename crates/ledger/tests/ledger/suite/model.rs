//! Random operations against a plain map with a history.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use moneta_ledger::{Change, Commit, Committed, Compare, Cursor, Entry, Hold, Ledger, LedgerError, Revision};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use super::{Made, follow, now, told};

/// Random sequences, and the operations of one.
const CASES: u32 = 24;
const OPERATIONS: usize = 40;

#[derive(Clone, Debug)]
enum Guess {
    Absent,
    Present,
    /// As it is now.
    Now,
    /// As something else is.
    Stale,
}

#[derive(Clone, Debug)]
enum Operation {
    Commit {
        compares: Vec<(u8, Guess)>,
        puts: Vec<(u8, u16, Option<u8>)>,
        deletes: Vec<u8>,
    },
    Snapshot(u8),
    Hold,
    Release(u8),
    /// To one of the last revisions.
    Compact(u8),
    /// From one of the last revisions, below this prefix.
    Follow(u8, u8),
}

fn operation() -> impl Strategy<Value = Operation> {
    let guess = prop_oneof![1 => Just(Guess::Absent), 1 => Just(Guess::Present), 3 => Just(Guess::Now), 1 => Just(Guess::Stale)];
    let compares = prop::collection::vec((0..8_u8, guess), 0..2);
    let puts = prop::collection::vec((0..8_u8, any::<u16>(), prop::option::weighted(0.3, any::<u8>())), 0..4);
    let deletes = prop::collection::vec(0..8_u8, 0..3);
    prop_oneof![
        8 => (compares, puts, deletes).prop_map(|(compares, puts, deletes)| Operation::Commit { compares, puts, deletes }),
        2 => (0..4_u8).prop_map(Operation::Snapshot),
        1 => Just(Operation::Hold),
        1 => any::<u8>().prop_map(Operation::Release),
        1 => any::<u8>().prop_map(Operation::Compact),
        2 => (any::<u8>(), 0..4_u8).prop_map(|(from, prefix)| Operation::Follow(from, prefix)),
    ]
}

fn key(number: u8) -> String {
    // Some are prefixes of others.
    ["a", "a/1", "a/1/x", "a/2", "b/1", "b/2", "b2", "c"][usize::from(number) % 8].to_owned()
}

fn prefix(number: u8) -> &'static str {
    ["", "a/", "b", "c"][usize::from(number) % 4]
}

/// What a change was, but for its revision where nothing has told it.
type Was = (String, Option<(Bytes, Option<Hold>)>);

#[derive(Default)]
struct Model {
    entries: BTreeMap<String, Entry>,
    /// Each commit with changes. The revision of one that no answer told: nothing.
    history: Vec<(Option<Revision>, Vec<Was>)>,
    /// Revisions that were seen: one can follow from them. With the length of the history then.
    seen: Vec<(Revision, usize)>,
    compacted: Revision,
    holds: Vec<Hold>,
}

/// Runs random sequences, each on an empty ledger. `MONETA_SEED` repeats one.
pub fn run<K>(make: impl Fn() -> (Made, K)) {
    let config = Config { cases: CASES, failure_persistence: None, ..Config::default() };
    let mut runner = match std::env::var("MONETA_SEED").ok().and_then(|seed| seed.parse::<u64>().ok()) {
        Some(seed) => {
            let mut bytes = [0; 32];
            bytes[..8].copy_from_slice(&seed.to_le_bytes());
            TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &bytes))
        }
        None => TestRunner::new(config),
    };
    let operations = prop::collection::vec(operation(), 1..OPERATIONS);
    let outcome = runner.run(&operations, |operations| {
        let (ledger, _kept) = make();
        let mut model = Model::default();
        let start = now(ledger.snapshot("")).cursor();
        model.seen.push((start.revision, 0));
        for operation in operations {
            model.check(&*ledger, start, operation)?;
        }
        model.check(&*ledger, start, Operation::Snapshot(0))?;
        model.check(&*ledger, start, Operation::Follow(0, 0))
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

impl Model {
    fn check(&mut self, ledger: &dyn Ledger, start: Cursor, operation: Operation) -> Result<(), TestCaseError> {
        match operation {
            Operation::Commit { compares, puts, deletes } => return self.commit(ledger, compares, puts, deletes),
            Operation::Snapshot(number) => {
                let snapshot = now(ledger.snapshot(prefix(number)));
                let expected = self.entries.values().filter(|entry| entry.key.starts_with(prefix(number)));
                prop_assert_eq!(snapshot.entries, expected.cloned().collect::<Vec<_>>());
                self.seen.push((snapshot.revision, self.history.len()));
            }
            Operation::Hold => self.holds.push(now(ledger.hold(Duration::from_secs(600)))),
            Operation::Release(number) => {
                if self.holds.is_empty() {
                    return Ok(());
                }
                let hold = self.holds.remove(usize::from(number) % self.holds.len());
                now(ledger.release(hold));
                let mut gone: Vec<Was> = Vec::new();
                self.entries.retain(|key, entry| {
                    let stays = entry.hold != Some(hold);
                    if !stays {
                        gone.push((key.clone(), None));
                    }
                    stays
                });
                if !gone.is_empty() {
                    self.history.push((None, gone));
                }
            }
            Operation::Compact(number) => {
                let before = self.seen[usize::from(number) % self.seen.len()].0;
                now(ledger.compact(before));
                self.compacted = self.compacted.max(before);
            }
            Operation::Follow(from, number) => return self.follow(ledger, start, from, prefix(number)),
        }
        Ok(())
    }

    fn commit(
        &mut self,
        ledger: &dyn Ledger,
        compares: Vec<(u8, Guess)>,
        puts: Vec<(u8, u16, Option<u8>)>,
        deletes: Vec<u8>,
    ) -> Result<(), TestCaseError> {
        let (mut commit, mut holds) = (Commit::new(), true);
        for (number, guess) in compares {
            let (key, entry) = (key(number), self.entries.get(&key(number)));
            let (compare, is_so) = match (guess, entry) {
                (Guess::Absent, entry) => (Compare::Absent(key), entry.is_none()),
                (Guess::Present, entry) => (Compare::Present(key), entry.is_some()),
                (Guess::Now, Some(entry)) => (Compare::Modified(key, entry.modified), true),
                (Guess::Now, None) => (Compare::Absent(key), true),
                (Guess::Stale, entry) => {
                    let stale = Revision(entry.map_or(1, |entry| entry.modified.0 - 1));
                    (Compare::Modified(key, stale), false)
                }
            };
            holds &= is_so;
            commit = commit.only_if(compare);
        }
        let mut changed: BTreeMap<String, Option<(Bytes, Option<Hold>)>> = BTreeMap::new();
        for (number, value, hold) in puts {
            let hold = hold.and_then(|hold| self.holds.get(usize::from(hold) % self.holds.len().max(1)).copied());
            changed.insert(key(number), Some((Bytes::from(value.to_string()), hold)));
        }
        for number in deletes {
            changed.entry(key(number)).or_insert(None);
        }
        for (key, change) in &changed {
            commit = match change {
                Some((value, Some(hold))) => commit.put_held(key.clone(), value.clone(), *hold),
                Some((value, None)) => commit.put(key.clone(), value.clone()),
                None => commit.delete(key.clone()),
            };
        }
        match now(ledger.commit(commit)) {
            Committed::Conflict => prop_assert!(!holds, "a conflict, where all compares hold"),
            Committed::Done(revision) => {
                prop_assert!(holds, "no conflict, where a compare does not hold");
                self.apply(changed, revision)?;
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        changed: BTreeMap<String, Option<(Bytes, Option<Hold>)>>,
        revision: Revision,
    ) -> Result<(), TestCaseError> {
        let mut was = Vec::new();
        for (key, change) in changed {
            match &change {
                None if self.entries.remove(&key).is_none() => continue,
                None => {}
                Some((value, hold)) => {
                    let created = self.entries.get(&key).map_or(revision, |entry| entry.created);
                    let entry =
                        Entry { key: key.clone(), value: value.clone(), created, modified: revision, hold: *hold };
                    self.entries.insert(key.clone(), entry);
                }
            }
            was.push((key, change));
        }
        if !was.is_empty() {
            let last = self.seen.last().expect("the begin is seen").0;
            prop_assert!(revision > last, "{revision} comes after {last}");
            self.history.push((Some(revision), was));
            self.seen.push((revision, self.history.len()));
        }
        Ok(())
    }

    fn follow(&self, ledger: &dyn Ledger, start: Cursor, from: u8, prefix: &str) -> Result<(), TestCaseError> {
        let (revision, known) = self.seen[usize::from(from) % self.seen.len()];
        let after = Cursor { revision, ..start };
        if revision < self.compacted {
            let error = super::refusal(ledger, after);
            prop_assert!(matches!(error, LedgerError::Compacted { .. }), "{:?}", error);
            return Ok(());
        }
        let until = now(ledger.snapshot("")).revision;
        let told = told(&mut *follow(ledger, prefix, after), until);
        let expected: Vec<(Option<Revision>, Vec<Was>)> = self.history[known..]
            .iter()
            .map(|(revision, was)| {
                (*revision, was.iter().filter(|(key, _)| key.starts_with(prefix)).cloned().collect::<Vec<_>>())
            })
            .filter(|(_, was)| !was.is_empty())
            .collect();
        let mut last = revision;
        prop_assert_eq!(told.len(), expected.len(), "{:?} was told, {:?} was expected", told, expected);
        for ((revision, changes), (known, was)) in told.into_iter().zip(expected) {
            prop_assert!(revision > last);
            prop_assert!(
                known.is_none_or(|known| known == revision),
                "{} was told, {:?} was answered",
                revision,
                known
            );
            last = revision;
            let changes: Vec<Was> = changes
                .into_iter()
                .map(|change| match change {
                    Change::Put(entry) => (entry.key, Some((entry.value, entry.hold))),
                    Change::Deleted { key, .. } => (key, None),
                })
                .collect();
            prop_assert_eq!(changes, was);
        }
        Ok(())
    }
}
