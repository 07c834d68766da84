//! Where an image is not what the ledger has.

use std::collections::HashSet;

use crate::entry::Snapshot;
use crate::image::view::{Difference, View};

/// What differs; keys that were changed after the snapshot are left out. Nothing if all is well, or too much was deleted since to tell.
pub(crate) fn differences(view: &View, snapshot: &Snapshot) -> Option<Vec<Difference>> {
    if view.forgot_deletes_after(snapshot.revision) {
        return None;
    }
    let is_newer = |key: &str| view.changed_at(key).is_some_and(|changed| changed > snapshot.revision);
    let mut differences = Vec::new();
    let mut known = HashSet::with_capacity(snapshot.entries.len());
    for entry in &snapshot.entries {
        known.insert(entry.key.as_str());
        if view.get(&entry.key).is_none_or(|found| **found != *entry) && !is_newer(&entry.key) {
            differences.push(Difference { key: entry.key.clone(), entry: Some(entry.clone()) });
        }
    }
    for entry in view.range("") {
        if !known.contains(entry.key.as_str()) && !is_newer(&entry.key) {
            differences.push(Difference { key: entry.key.clone(), entry: None });
        }
    }
    (!differences.is_empty()).then_some(differences)
}
