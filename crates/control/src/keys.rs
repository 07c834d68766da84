//! The keys that the state was made of, each with its last change: what a plan's changes are compared with, and what a snapshot is
//! compared with that shows whether the ledger has kept something back.

use std::collections::{HashMap, HashSet};

use moneta_ledger::{Compare, Entry, Revision, Snapshot};

use crate::names::Key;

/// Keys with their last changes.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    changed: HashMap<Box<str>, Revision>,
    /// Those that were deleted since a comparison has begun; `None`: none is under way.
    deleted: Option<HashSet<Box<str>>>,
}

impl Keys {
    pub(crate) fn put(&mut self, key: &str, revision: Revision) {
        if let Some(deleted) = &mut self.deleted {
            deleted.remove(key);
        }
        match self.changed.get_mut(key) {
            Some(changed) => *changed = revision,
            None => drop(self.changed.insert(key.into(), revision)),
        }
    }

    pub(crate) fn delete(&mut self, key: &str) {
        if self.changed.remove(key).is_some()
            && let Some(deleted) = &mut self.deleted
        {
            deleted.insert(key.into());
        }
    }

    /// That a key is as it is here; `None`: it is of no concern to the state.
    pub(crate) fn unchanged(&self, key: &str) -> Option<Compare> {
        Key::read(key)?;
        Some(match self.changed.get(key) {
            Some(revision) => Compare::Modified(key.to_owned(), *revision),
            None => Compare::Absent(key.to_owned()),
        })
    }

    /// A comparison begins: what is deleted from now on is remembered until [`Keys::compared`].
    pub(crate) fn compare(&mut self) {
        self.deleted = Some(HashSet::new());
    }

    /// Whether one is under way, and these keys are those that it began with.
    pub(crate) fn is_comparing(&self) -> bool {
        self.deleted.is_some()
    }

    /// The comparison is over.
    pub(crate) fn compared(&mut self) {
        self.deleted = None;
    }

    /// Keys that are not as in a snapshot of all that begin with `prefix`, though all up to its revision was told.
    pub(crate) fn differing(&self, prefix: &str, snapshot: &Snapshot) -> Vec<String> {
        let is_lacking = |entry: &&Entry| match self.changed.get(&*entry.key) {
            // One that was changed after the snapshot is newer here.
            Some(changed) => *changed < entry.modified,
            None => {
                let is_deleted = self.deleted.as_ref().is_some_and(|deleted| deleted.contains(&*entry.key));
                Key::read(&entry.key).is_some() && !is_deleted
            }
        };
        let lacking = snapshot.entries.iter().filter(is_lacking).map(|entry| entry.key.clone());
        let there: HashSet<&str> = snapshot.entries.iter().map(|entry| &*entry.key).collect();
        let is_old = |key: &str, changed: Revision| key.starts_with(prefix) && changed <= snapshot.revision;
        let known = self.changed.iter().filter(|(key, changed)| is_old(key, **changed) && !there.contains(&***key));
        lacking.chain(known.map(|(key, _)| key.to_string())).collect()
    }
}

#[cfg(test)]
mod tests {
    use moneta_ledger::Incarnation;

    use super::*;
    use crate::names::instance;

    fn key(id: &str) -> String {
        instance("e", "a", id)
    }

    fn entry(id: &str, modified: u64) -> Entry {
        Entry { key: key(id), value: "1".into(), created: Revision(1), modified: Revision(modified), hold: None }
    }

    #[test]
    fn what_was_kept_back_is_found_and_what_is_newer_is_not() {
        let mut keys = Keys::default();
        keys.put(&key("same"), Revision(2));
        keys.put(&key("gone before"), Revision(3));
        keys.compare();
        keys.put(&key("old"), Revision(3));
        keys.put(&key("deleted since"), Revision(4));
        keys.put(&key("put since"), Revision(11));
        keys.delete(&key("deleted since"));
        let entries = vec![
            entry("same", 2),
            entry("old", 5),
            entry("new", 6),
            entry("deleted since", 4),
            Entry { key: "env/e/epochs/a/1".into(), ..entry("", 1) },
        ];
        let snapshot = Snapshot { incarnation: Incarnation(1), revision: Revision(10), entries };
        assert_eq!(keys.differing("env/", &snapshot), [key("old"), key("new"), key("gone before")]);
        assert_eq!(keys.differing("fleet/", &Snapshot { entries: Vec::new(), ..snapshot }), Vec::<String>::new());
        keys.compared();
    }

    #[test]
    fn a_change_is_compared_with_what_is_known() {
        let mut keys = Keys::default();
        keys.put(&key("i"), Revision(2));
        assert_eq!(keys.unchanged(&key("i")), Some(Compare::Modified(key("i"), Revision(2))));
        assert_eq!(keys.unchanged(&key("j")), Some(Compare::Absent(key("j"))));
        assert_eq!(keys.unchanged("audit/1"), None);
    }
}
