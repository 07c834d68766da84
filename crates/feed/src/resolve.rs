//! From what an engine has recorded to what readers are told.

use bytes::Bytes;
use moneta_store::feed::{Change, Set, Wanted};
use moneta_store::holding::{Held, held};
use moneta_store::{Cx, ItemMeta, Policy, Store, StoreError, Version};

/// What a key holds as a change; `None` if it is not wanted, or the key holds nothing that could be told. May block.
///
/// # Errors
/// The store's.
pub fn look_up<S: Store>(store: &S, key: &[u8], wanted: &Wanted) -> Result<Option<Change>, StoreError> {
    if !wanted.has_key(key) {
        return Ok(None);
    }
    let cx = Cx::outside().under(Policy::Batch);
    let held = pollster::block_on(held(store, &cx, key))?;
    let key = Bytes::copy_from_slice(key);
    let change = match held {
        Held::Item(item) => {
            let value = wanted.values.then(|| item.value.into_vec().into());
            Change::Set(Set { key, meta: item.meta, value, as_of: None })
        }
        Held::Buried(version) => Change::Delete { key, version },
        Held::Unknown => return Ok(None),
    };
    Ok(is_wanted(wanted, &change).then_some(change))
}

/// Whether a reader wants a change. Gaps and losses concern all readers.
pub fn is_wanted(wanted: &Wanted, change: &Change) -> bool {
    match change {
        Change::Set(set) => wanted.has_key(&set.key) && has_set(wanted, &set.meta),
        Change::Delete { key, version } => wanted.has_key(key) && has_delete(wanted, *version),
        Change::Flush(floor) => wanted.has_version(floor.version),
        Change::Gap(_) | Change::Lost { .. } => true,
    }
}

/// Whether an item is wanted: it was made in the reader's region, or was read since, as after a touch. That keeps the version, and
/// a reader of one region is to hear of a life that is longer wherever it was made so: stores mark as read what a write of its own
/// version leaves to live longer. What is told for another read changes nothing elsewhere.
fn has_set(wanted: &Wanted, meta: &ItemMeta) -> bool {
    wanted.has_version(meta.version()) || meta.fetched
}

/// Whether a delete under this version is wanted. What has expired is told as deleted under the version just below its own, which
/// counts as one of the item's region; so a delete by the last writer of a region passes for one of the next region, too.
fn has_delete(wanted: &Wanted, version: Version) -> bool {
    wanted.has_version(version) || wanted.has_version(Version(version.0.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use moneta_store::Origin;

    use super::*;

    #[test]
    fn what_lives_longer_is_of_every_region() {
        let wanted = Wanted { region: Some(1), ..Wanted::default() };
        for (region, fetched, is_told) in [(1, false, true), (1, true, true), (0, false, false), (0, true, true)] {
            let cas = Version::new(1 << 40, Origin::new(region, 3)).0;
            let meta = ItemMeta { cas, fetched, ..ItemMeta::default() };
            let set = moneta_store::feed::Set { key: b"k"[..].into(), meta, value: None, as_of: None };
            assert_eq!(super::is_wanted(&wanted, &Change::Set(set)), is_told, "{region} {fetched}");
        }
    }

    #[test]
    fn what_is_told_just_below_a_version_is_of_its_region() {
        let wanted = |region| Wanted { region: Some(region), ..Wanted::default() };
        for writer in [0, 7, 15] {
            let version = Version::new(1 << 40, Origin::new(1, writer));
            assert!(has_delete(&wanted(1), version) && !has_delete(&wanted(0), version), "writer {writer}");
            let expired = version.just_below();
            assert!(has_delete(&wanted(1), expired) && !has_delete(&wanted(2), expired), "writer {writer}");
        }
    }
}
