//! One state of an image. It never changes; the next one shares with it what is the same.

use std::ops::Bound;
use std::sync::Arc;

use rpds::RedBlackTreeMapSync;

use crate::entry::{Change, Cursor, Entry, Revision, Snapshot};

/// Deletes that are remembered for [`View::since`].
const DELETES_MAX: usize = 20_000;

/// All entries at one revision, and what was changed last.
#[derive(Clone, Debug)]
pub struct View {
    cursor: Cursor,
    entries: RedBlackTreeMapSync<Arc<str>, Item>,
    /// Keys that are gone, and since when.
    deleted: RedBlackTreeMapSync<Arc<str>, Revision>,
    /// Each key that is there or is known to be gone, by its last change.
    changed: RedBlackTreeMapSync<(Revision, Arc<str>), ()>,
    /// All deletes after this are known.
    floor: Revision,
}

#[derive(Clone, Debug)]
struct Item {
    entry: Arc<Entry>,
    /// Its place in `changed`: when it was put, or put right.
    at: Revision,
}

/// A key that is not as in a snapshot.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(crate) key: String,
    /// What the ledger has.
    pub(crate) entry: Option<Entry>,
}

impl Default for View {
    fn default() -> Self {
        Self {
            cursor: Cursor::default(),
            entries: RedBlackTreeMapSync::new_sync(),
            deleted: RedBlackTreeMapSync::new_sync(),
            changed: RedBlackTreeMapSync::new_sync(),
            floor: Revision(0),
        }
    }
}

impl View {
    /// Of which ledger it is, and up to where.
    pub fn cursor(&self) -> Cursor {
        self.cursor
    }

    /// The number of entries.
    pub fn len(&self) -> usize {
        self.entries.size()
    }

    /// Whether it has no entries.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<&Arc<Entry>> {
        self.entries.get(key).map(|item| &item.entry)
    }

    /// Entries whose key begins with `prefix`, in the order of keys.
    pub fn range<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a Arc<Entry>> {
        self.entries
            .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
            .map(|(_, item)| &item.entry)
            .take_while(move |entry| entry.key.starts_with(prefix))
    }

    /// What was changed below `prefix` after `cursor`, in the order of revisions: of each key the last change only. Nothing if that is
    /// not known any more, or the cursor is of another ledger: then all that is there is to be told.
    pub fn since<'a>(&'a self, prefix: &'a str, cursor: Cursor) -> Option<impl Iterator<Item = Change> + 'a> {
        if cursor.incarnation != self.cursor.incarnation
            || cursor.revision < self.floor
            || cursor.revision > self.cursor.revision
        {
            return None;
        }
        let from = (Revision(cursor.revision.0.saturating_add(1)), Arc::from(""));
        let changed = self.changed.range::<(Revision, Arc<str>), _>((Bound::Included(from), Bound::Unbounded));
        Some(changed.filter(move |((_, key), ())| key.starts_with(prefix)).map(|((revision, key), ())| {
            match self.entries.get(key) {
                Some(item) => Change::Put(Entry::clone(&item.entry)),
                None => Change::Deleted { key: key.to_string(), revision: *revision },
            }
        }))
    }

    /// When a key was last changed, as far as that is known.
    pub(crate) fn changed_at(&self, key: &str) -> Option<Revision> {
        self.entries.get(key).map(|item| item.at).or_else(|| self.deleted.get(key).copied())
    }

    pub(crate) fn forgot_deletes_after(&self, revision: Revision) -> bool {
        self.floor > revision
    }

    /// The same up to a later revision.
    pub(crate) fn at(&self, revision: Revision) -> Self {
        let mut next = self.clone();
        next.cursor.revision = next.cursor.revision.max(revision);
        next
    }

    /// With what one commit changed.
    pub(crate) fn changed(&self, revision: Revision, changes: &[Change]) -> Self {
        let mut next = self.at(revision);
        for change in changes {
            match change {
                Change::Put(entry) => next.put(Arc::new(entry.clone()), revision),
                Change::Deleted { key, .. } => next.delete(key, revision),
            }
        }
        next.forget();
        next
    }

    /// With what differed as the ledger has it. It counts as changed after all that is here, so that readers are told.
    pub(crate) fn mended(&self, differences: &[Difference]) -> Self {
        let mut next = self.clone();
        let at = Revision(next.cursor.revision.0 + 1);
        for difference in differences {
            match &difference.entry {
                Some(entry) => next.put(Arc::new(entry.clone()), at),
                None => next.delete(&difference.key, at),
            }
        }
        next.forget();
        next
    }

    /// The state of a snapshot. What is the same stays; what is gone was deleted, and nobody knows when: it counts as deleted at the
    /// snapshot. Of another ledger nothing is known before it.
    pub(crate) fn begun_anew(&self, snapshot: Snapshot) -> Self {
        let cursor = snapshot.cursor();
        let mut next = match self.cursor.incarnation == cursor.incarnation && self.cursor.revision <= cursor.revision {
            true => Self { cursor, ..self.clone() },
            false => Self { cursor, floor: cursor.revision, ..Self::default() },
        };
        // What was not told although it was changed before counts as changed after all that was: so readers are told.
        let least = match next.entries.is_empty() {
            true => Revision(0),
            false => Revision(self.cursor.revision.0 + 1),
        };
        let mut gone = next.entries.clone();
        for entry in snapshot.entries {
            gone.remove_mut(entry.key.as_str());
            let is_same = next.get(&entry.key).is_some_and(|found| **found == entry);
            if !is_same {
                let at = entry.modified.max(least);
                next.put(Arc::new(entry), at);
            }
        }
        for (key, _) in &gone {
            next.delete(key, cursor.revision.max(least));
        }
        next.forget();
        next
    }

    fn put(&mut self, entry: Arc<Entry>, at: Revision) {
        let key = self.unmark(&entry.key).unwrap_or_else(|| Arc::from(entry.key.as_str()));
        self.deleted.remove_mut(&key);
        self.changed.insert_mut((at, Arc::clone(&key)), ());
        self.entries.insert_mut(key, Item { entry, at });
    }

    fn delete(&mut self, key: &str, at: Revision) {
        let key = self.unmark(key).unwrap_or_else(|| Arc::from(key));
        self.entries.remove_mut(&key);
        self.changed.insert_mut((at, Arc::clone(&key)), ());
        self.deleted.insert_mut(key, at);
    }

    /// Takes a key out of `changed`.
    fn unmark(&mut self, key: &str) -> Option<Arc<str>> {
        let found = self.entries.get_key_value(key).map(|(key, item)| (Arc::clone(key), item.at));
        let (key, at) = found.or_else(|| self.deleted.get_key_value(key).map(|(key, at)| (Arc::clone(key), *at)))?;
        self.changed.remove_mut(&(at, Arc::clone(&key)));
        Some(key)
    }

    /// Keeps deletes within their bound: the older half goes.
    fn forget(&mut self) {
        if self.deleted.size() <= DELETES_MAX {
            return;
        }
        let mut deletes: Vec<(Revision, Arc<str>)> =
            self.deleted.iter().map(|(key, at)| (*at, Arc::clone(key))).collect();
        deletes.sort_unstable();
        for delete in deletes.drain(..DELETES_MAX / 2) {
            self.deleted.remove_mut(&delete.1);
            self.floor = self.floor.max(delete.0);
            self.changed.remove_mut(&delete);
        }
    }
}
