//! What the curve of misses over RAM is told of requests on sampled keys. Of the others it costs two instructions: a test of the hash
//! that the store needs anyway, and a branch.

use moneta_store::request::{Delete, Exptime, Retrieve, Write, WriteMode};
use moneta_store::{Expiry, Lookup, Policy, StoreError, Written};

use super::Worker;
use crate::miss_curve::Noted;

/// A read of the key with this hash ended; `size`: bytes of key and value, if it is a hit.
#[inline(always)]
pub(super) fn read(worker: &Worker, hash: u64, request: &Retrieve, size: Option<usize>) {
    if worker.counters.for_curve.has(hash) {
        sampled_read(worker, hash, request, size);
    }
}

/// The same of a read that was not shown to a visitor.
#[inline]
pub(super) fn looked(worker: &Worker, hash: u64, key: &[u8], request: &Retrieve, outcome: &Result<Lookup, StoreError>) {
    match outcome {
        Ok(Lookup::Found(item)) => read(worker, hash, request, Some(key.len() + item.value.len())),
        Ok(Lookup::Miss { .. }) => read(worker, hash, request, None),
        Ok(Lookup::Visited) | Err(_) => {}
    }
}

#[cold]
#[inline(never)]
fn sampled_read(worker: &Worker, hash: u64, request: &Retrieve, size: Option<usize>) {
    match request.touch {
        None => note(worker, Noted::Read { hash, size }),
        // It counts as a touch and not as a get.
        Some(exptime) if size.is_some() => {
            note(worker, Noted::Changed { hash, more: 0, expires: Some(expires(worker, exptime)) });
        }
        Some(_) => {}
    }
}

/// A write ended; `size`: bytes of the key and of what was sent.
#[inline(always)]
pub(super) fn write(worker: &Worker, hash: u64, request: &Write, size: usize, outcome: &Result<Written, StoreError>) {
    if worker.counters.for_curve.has(hash) && matches!(outcome, Ok(Written::Stored { .. } | Written::Unchanged { .. }))
    {
        sampled_write(worker, hash, request, size);
    }
}

/// A write was begun that has to wait. Most that wait are stored.
#[inline(always)]
pub(super) fn write_late(worker: &Worker, hash: u64, request: &Write, size: usize) {
    if worker.counters.for_curve.has(hash) && request.mode == WriteMode::Set && request.compare.is_none() {
        sampled_write(worker, hash, request, size);
    }
}

#[cold]
#[inline(never)]
fn sampled_write(worker: &Worker, hash: u64, request: &Write, size: usize) {
    if worker.cx.policy() == Policy::Batch {
        // It brings nothing into RAM.
        return;
    }
    match request.mode {
        WriteMode::Append | WriteMode::Prepend => note(worker, Noted::Changed { hash, more: size, expires: None }),
        _ => note(worker, Noted::Wrote { hash, size, expires: expires(worker, request.exptime) }),
    }
}

/// A delete was begun.
#[inline(always)]
pub(super) fn delete(worker: &Worker, hash: u64, request: &Delete) {
    if worker.counters.for_curve.has(hash) && !request.invalidate && request.compare.is_none() {
        note(worker, Noted::Deleted { hash });
    }
}

/// A number was changed.
#[inline(always)]
pub(super) fn arithmetic(worker: &Worker, hash: u64) {
    if worker.counters.for_curve.has(hash) {
        note(worker, Noted::Changed { hash, more: 0, expires: None });
    }
}

#[cold]
#[inline(never)]
fn note(worker: &Worker, noted: Noted) {
    worker.node.note_for_curve(worker.cx.policy(), &worker.counters.for_curve, noted);
}

/// When an item expires, as the curve has it: 0 for never.
fn expires(worker: &Worker, exptime: Exptime) -> u32 {
    Expiry::resolve(exptime, worker.node.clock.now()).0
}
