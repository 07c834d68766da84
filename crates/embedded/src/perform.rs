//! What each request does in a batch, by the rules of [`moneta_store::change`].

use moneta_store::change::{self, Removal};
use moneta_store::request::{Arithmetic, Delete, Retrieve, Write};
use moneta_store::{Deleted, Item, Key, Lookup, Number, Outcome, OwnedOp, Put, Written};

use crate::bench::Bench;
use crate::database::Database;
use crate::error::Failure;

/// Does an operation, whatever it is.
pub(crate) fn perform<D: Database>(bench: &mut Bench<'_, D>, key: &Key<'_>, op: &OwnedOp) -> Result<Outcome, Failure> {
    Ok(match op {
        OwnedOp::Read(request) => get(bench, key, request)?.into(),
        OwnedOp::Write(value, request) => set(bench, key, value, request)?.into(),
        OwnedOp::Delete(request) => delete(bench, key, request)?.into(),
        OwnedOp::Arithmetic(request) => arithmetic(bench, key, request)?.into(),
        OwnedOp::Put(item, how) => put(bench, key, item, *how)?.into(),
        OwnedOp::Drop => {
            forget_if_in_doubt(bench, key)?;
            Outcome::Done
        }
        OwnedOp::Peek | OwnedOp::Holds | OwnedOp::NoteHit | OwnedOp::NextCas => {
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
fn get<D: Database>(bench: &mut Bench<'_, D>, key: &Key<'_>, request: &Retrieve) -> Result<Lookup, Failure> {
    let now = bench.shared.now();
    let (found, mut hands) = bench.look(key)?;
    let Some(reading) = change::read(found.live.as_ref(), request, now) else {
        return Ok(Lookup::Miss { expired: found.expired });
    };
    let mut cas = reading.meta.cas;
    if let Some(version) = &reading.rewrite {
        cas = hands.store(key, version)?;
    }
    // Whoever creates an item is told that nothing was there.
    match reading.created {
        true => Ok(Lookup::Found(Item { meta: reading.shown(cas), value: Vec::new().into() })),
        false => Ok(Lookup::Found(Item { meta: reading.shown(cas), value: reading.value.to_vec().into() })),
    }
}

/// A write. A plain set does not look at what is there.
fn set<D: Database>(
    bench: &mut Bench<'_, D>,
    key: &Key<'_>,
    value: &[u8],
    request: &Write,
) -> Result<Written, Failure> {
    let (now, item_max) = (bench.shared.now(), bench.item_max);
    if !change::needs_old(request) {
        return match change::write(None, value, request, now, item_max) {
            Ok(version) => Ok(Written::Stored { cas: bench.blindly().store(key, &version)? }),
            Err(ended) => forget_too_large(ended, bench, key),
        };
    }
    let (found, mut hands) = bench.look(key)?;
    match change::write(found.live.as_ref(), value, request, now, item_max) {
        Ok(version) => Ok(Written::Stored { cas: hands.store(key, &version)? }),
        Err(ended) => forget_too_large(ended, bench, key),
    }
}

/// What is too large to be stored leaves nothing of what it was to replace.
fn forget_too_large<D: Database>(ended: Written, bench: &mut Bench<'_, D>, key: &Key<'_>) -> Result<Written, Failure> {
    if ended == Written::TooLarge {
        bench.forget(key)?;
    }
    Ok(ended)
}

/// A delete, or what takes its place.
fn delete<D: Database>(bench: &mut Bench<'_, D>, key: &Key<'_>, request: &Delete) -> Result<Deleted, Failure> {
    let now = bench.shared.now();
    let (found, mut hands) = bench.look(key)?;
    match change::delete(found.live.as_ref(), request, now) {
        Ok(Removal::Remove) => hands.remove(key)?,
        Ok(Removal::Rewrite(version)) => _ = hands.store(key, &version)?,
        Err(ended) => return Ok(ended),
    }
    Ok(Deleted::Deleted)
}

/// Arithmetic.
fn arithmetic<D: Database>(bench: &mut Bench<'_, D>, key: &Key<'_>, request: &Arithmetic) -> Result<Number, Failure> {
    let now = bench.shared.now();
    let (found, mut hands) = bench.look(key)?;
    match change::arithmetic(found.live.as_ref(), request, now) {
        Ok(computed) => Ok(computed.answer(hands.store(key, &computed.version)?)),
        Err(ended) => Ok(ended),
    }
}

/// Removes what is under a key that is in doubt; one that was written meanwhile, be it in this batch, no longer is.
fn forget_if_in_doubt<D: Database>(bench: &mut Bench<'_, D>, key: &Key<'_>) -> Result<(), Failure> {
    if bench.is_in_doubt(key) { bench.forget(key) } else { Ok(()) }
}

/// An item of another tier.
fn put<D: Database>(bench: &mut Bench<'_, D>, key: &Key<'_>, item: &Item, how: Put) -> Result<Written, Failure> {
    if item.value.len() > bench.item_max {
        bench.forget(key)?;
        return Ok(Written::TooLarge);
    }
    if how == Put::Present && bench.look(key)?.0.live.is_none() {
        return Ok(Written::NotStored);
    }
    let cas = bench.blindly().store_item(key, &item.as_ref(), item.meta.cas != 0)?;
    Ok(Written::Stored { cas })
}
