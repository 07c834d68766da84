//! Writes by version: what is newer replaces what is older, and nothing older replaces it, in whatever order both arrive. Done by
//! the shard's writer, which reads what is there.

use moneta_store::versions::{Standing, Verdict, digest, follows, follows_delete};
use moneta_store::{Deleted, Item, ItemMeta, Key, Version, Written};

use crate::batch_context::BatchContext;
use crate::database::Database;
use crate::error::Failure;

/// How a write by version stands to what the key has.
struct Compared {
    verdict: Verdict,
    /// The key has a live item.
    is_live: bool,
    /// The version that it stands to.
    by: Version,
}

/// [`moneta_store::Put::Newer`].
pub(crate) fn put<D: Database>(
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
    item: &Item,
    as_of: u64,
    base: Option<Version>,
) -> Result<Written, Failure> {
    if item.value.len() > context.item_max {
        context.forget(key)?;
        return Ok(Written::TooLarge);
    }
    let version = item.meta.version();
    let Compared { verdict, is_live, by } =
        compare(context, key, (version, base), || standing(&item.meta, item.value.as_slice()))?;
    match verdict {
        Verdict::Older => return Ok(Written::Superseded { by }),
        Verdict::Same => return Ok(Written::Unchanged { cas: version.0 }),
        Verdict::Newer if !is_live && context.shared.is_unsure(as_of, context.shared.deletes.find(key.hash).1) => {
            return Ok(Written::NotStored);
        }
        Verdict::Newer => {}
    }
    let mut item = item.as_ref();
    // What was there lives longer: that counts as a read, and is how a feed of one region tells it from what was written elsewhere.
    item.meta.fetched |= is_live && by == version;
    let cas = context.blindly().store_item(key, &item, true)?;
    Ok(Written::Stored { cas })
}

/// [`moneta_store::Op::Bury`].
pub(crate) fn bury<D: Database>(
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
    version: Version,
) -> Result<Deleted, Failure> {
    let Compared { verdict, is_live, by } = compare(context, key, (version, None), || Standing::Deleted(version))?;
    if verdict != Verdict::Newer {
        return Ok(Deleted::Superseded { by });
    }
    context.forget(key)?;
    context.bury(key, version);
    // What is stored after a kill must be above it, too.
    context.shared.next_sequence()?;
    Ok(if is_live { Deleted::Deleted } else { Deleted::NotFound })
}

fn compare<D: Database>(
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
    (version, base): (Version, Option<Version>),
    written: impl FnOnce() -> Standing,
) -> Result<Compared, Failure> {
    let is_older = |by| Compared { verdict: Verdict::Older, is_live: false, by };
    let shared = context.shared;
    let floors = shared.floors();
    if floors.takes_write(version, base) {
        return Ok(is_older(floors.bound));
    }
    let buried = context.buried.get(&key.hash).copied();
    let found = context.look(key)?.0;
    // Behind the look: what has expired is remembered before it leaves.
    let deleted = shared.deletes.find(key.hash).0.max(buried);
    if let Some(deleted) = deleted
        && deleted >= version
    {
        let verdict = written().against(&Standing::Deleted(deleted));
        return Ok(Compared { verdict, is_live: false, by: deleted });
    }
    if let Some(deleted) = deleted.filter(|deleted| !follows_delete(base, *deleted)) {
        return Ok(is_older(deleted));
    }
    if let Some(old) = found.live {
        let verdict = match written().against(&standing(&old.meta, old.value)) {
            Verdict::Newer if !follows(base, Some(old.meta.version())) => Verdict::Older,
            verdict => verdict,
        };
        return Ok(Compared { verdict, is_live: true, by: old.meta.version() });
    }
    // Nothing older may take the place of what has expired. The same with a longer life may.
    let expired = found.expired.map(Version::just_below).filter(|expired| *expired > Version::ZERO);
    let stands = expired.is_none_or(|expired| expired < version && follows_delete(base, expired));
    let by = expired.unwrap_or_default();
    Ok(if stands { Compared { verdict: Verdict::Newer, is_live: false, by } } else { is_older(by) })
}

fn standing(meta: &ItemMeta, value: &[u8]) -> Standing {
    Standing::Item { version: meta.version(), expiry: meta.expiry, digest: digest(meta, [value]) }
}
