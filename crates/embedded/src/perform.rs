//! What each request does in a batch, by the rules of [`moneta_store::change`].

use moneta_store::change::{self, Old, Removal};
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{Deleted, Item, Key, Lookup, Number, Outcome, OwnedOp, Put, Version, Written};

use crate::batch_context::BatchContext;
use crate::database::Database;
use crate::error::Failure;
use crate::newer;

/// Performs an operation that a writer was asked for.
pub(crate) fn perform<D: Database>(
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
    op: &OwnedOp,
) -> Result<Outcome, Failure> {
    Ok(match op {
        OwnedOp::Read(request) => get(context, key, request)?.into(),
        OwnedOp::Write(value, request) => set(context, key, value, request)?.into(),
        OwnedOp::Delete(request) => delete(context, key, request)?.into(),
        OwnedOp::Arithmetic(request) => arithmetic(context, key, request)?.into(),
        OwnedOp::Put(item, Put::Newer { as_of, base }) => newer::put(context, key, item, *as_of, *base)?.into(),
        OwnedOp::Put(item, how) => put(context, key, item, *how)?.into(),
        OwnedOp::Bury(version) => newer::bury(context, key, *version)?.into(),
        OwnedOp::Drop => {
            forget_if_untrusted(context, key)?;
            Outcome::Done
        }
        OwnedOp::Peek | OwnedOp::Holds | OwnedOp::NoteHit | OwnedOp::NextCas | OwnedOp::BuriedAs => {
            unreachable!("these change nothing, and never come to a writer")
        }
    })
}

/// How an operation ends for which there is no room; what its key had is removed by then. `None`: in an error.
pub(crate) fn without_room(op: &OwnedOp) -> Option<Outcome> {
    match op {
        OwnedOp::Write(..) | OwnedOp::Put(..) => Some(Written::OutOfMemory.into()),
        OwnedOp::Arithmetic(_) => Some(Number::OutOfMemory.into()),
        // Where there is no room to mark the item, it goes.
        OwnedOp::Delete(_) => Some(Deleted::Deleted.into()),
        _ => None,
    }
}

/// A read that changes something: touches, wins, creates.
fn get<D: Database>(context: &mut BatchContext<'_, D>, key: &Key<'_>, request: &Retrieve) -> Result<Lookup, Failure> {
    let (now, is_copy) = (context.shared.now(), context.shared.is_copy());
    let (found, mut writer) = context.look(key)?;
    let Some(reading) = change::read(found.live.as_ref(), request, now) else {
        return Ok(Lookup::Miss { expired: found.expired.is_some() });
    };
    let mut cas = reading.meta.cas;
    if let Some(version) = reading.rewrite {
        cas = writer.store(key, &in_cluster(version, found.live.as_ref(), is_copy))?;
    }
    // The request that creates an item is answered as if none was there.
    match reading.created {
        true => Ok(Lookup::Found(Item { meta: reading.shown(cas), value: Vec::new().into() })),
        false => Ok(Lookup::Found(Item { meta: reading.shown(cas), value: reading.value.to_vec().into() })),
    }
}

/// A write. A plain set does not look at what is there.
fn set<D: Database>(
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
    value: &[u8],
    request: &Write,
) -> Result<Written, Failure> {
    let (now, item_max) = (context.shared.now(), context.item_max);
    if !change::needs_old(request) {
        return match change::write(None, value, request, now, item_max) {
            Ok(version) => Ok(Written::Stored { cas: context.blindly().store(key, &version)? }),
            Err(ended) => forget_too_large(ended, context, key),
        };
    }
    let (found, mut writer) = context.look(key)?;
    match change::write(found.live.as_ref(), value, request, now, item_max) {
        Ok(version) => Ok(Written::Stored { cas: writer.store(key, &version)? }),
        Err(ended) => forget_too_large(ended, context, key),
    }
}

/// What is too large to be stored leaves nothing of what it was to replace.
fn forget_too_large<D: Database>(
    ended: Written,
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
) -> Result<Written, Failure> {
    if ended == Written::TooLarge {
        context.forget(key)?;
    }
    Ok(ended)
}

/// A delete, or what takes its place.
fn delete<D: Database>(context: &mut BatchContext<'_, D>, key: &Key<'_>, request: &Delete) -> Result<Deleted, Failure> {
    let (now, is_copy) = (context.shared.now(), context.shared.is_copy());
    let (found, mut writer) = context.look(key)?;
    let deleted = match change::delete(found.live.as_ref(), request, now) {
        Ok(Removal::Remove) => {
            writer.remove(key)?;
            Deleted::Deleted
        }
        Ok(Removal::Rewrite(version)) => {
            writer.store(key, &in_cluster(version, found.live.as_ref(), is_copy))?;
            return Ok(Deleted::Deleted);
        }
        Err(Deleted::NotFound) => {
            if is_copy {
                // What a flush has hidden may show again, where an earlier command replaces that flush.
                context.forget(key)?;
            }
            if request.compare.is_some() || request.drop_value || request.invalidate {
                // No delete: other copies are told of none.
                return Ok(Deleted::NotFound);
            }
            Deleted::NotFound
        }
        Err(ended) => return Ok(ended),
    };
    if is_copy {
        // Whether the key was there or not: another copy may have it.
        let version = context.shared.next_sequence()?;
        context.bury(key, Version(version));
    }
    Ok(deleted)
}

/// A version as one of several copies makes it, where this is one.
fn in_cluster<'v>(version: change::Version<'v>, old: Option<&Old<'_>>, is_copy: bool) -> change::Version<'v> {
    match old {
        Some(old) if is_copy => version.in_cluster(&old.meta, old.value.len()),
        _ => version,
    }
}

/// Arithmetic.
fn arithmetic<D: Database>(
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
    request: &Arithmetic,
) -> Result<Number, Failure> {
    let now = context.shared.now();
    let (found, mut writer) = context.look(key)?;
    match change::arithmetic(found.live.as_ref(), request, now) {
        Ok(computed) => Ok(computed.answer(writer.store(key, &computed.version)?)),
        Err(ended) => Ok(ended),
    }
}

/// Removes what is under a key that is in doubt; one that was written meanwhile, be it in this batch, no longer is.
fn forget_if_untrusted<D: Database>(context: &mut BatchContext<'_, D>, key: &Key<'_>) -> Result<(), Failure> {
    if context.is_untrusted(key) { context.forget(key) } else { Ok(()) }
}

/// An item of another tier.
fn put<D: Database>(
    context: &mut BatchContext<'_, D>,
    key: &Key<'_>,
    item: &Item,
    how: Put,
) -> Result<Written, Failure> {
    if item.value.len() > context.item_max {
        context.forget(key)?;
        return Ok(Written::TooLarge);
    }
    if how == Put::Present && context.look(key)?.0.live.is_none() {
        return Ok(Written::NotStored);
    }
    let cas = context.blindly().store_item(key, &item.as_ref(), item.meta.cas != 0)?;
    Ok(Written::Stored { cas })
}
