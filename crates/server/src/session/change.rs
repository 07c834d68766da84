//! `set`, `delete`, `incr` and all other commands that change an item.

use moneta_protocol::command::Style;
use moneta_protocol::encode;
use moneta_protocol::refusal::Forget;
use moneta_protocol::reply::Reply;
use moneta_store::request::{Arithmetic, Delete, Exptime, Write, WriteMode};
use moneta_store::{
    Deleted, ErrorKind, Expiry, Key, Number, Op, Outcome, Step, StoreError, Unseen, Version, Written, component,
};

use super::key::stored_key;
use super::ticket::Ticket;
use super::waiting::Waiting;
use super::{Session, Worker, curve, sample};
use crate::counters::WorkerCounters;
use crate::latency::Kind;
use crate::node::Peer;
use crate::prefixes::Use;
use crate::watch;

/// A request on one key.
pub(super) struct Asked<'a, R> {
    /// The key, as sent.
    pub(super) key: &'a [u8],
    pub(super) request: &'a R,
    pub(super) style: &'a Style<'a>,
}

pub(super) fn count_meta(counters: &WorkerCounters, style: &Style<'_>) {
    if matches!(style, Style::Meta(_)) {
        counters.cmd_meta.bump();
    }
}

#[cold]
fn failed(counters: &WorkerCounters, style: &Style<'_>, error: &StoreError, out: &mut Vec<u8>) {
    match error.kind() {
        // A writer's clock that is wrong says nothing about this store.
        ErrorKind::ClockAhead => counters.refused_ahead.bump(),
        ErrorKind::CatchingUp => {}
        _ => counters.store_errors.bump(),
    }
    encode::reply(style, &[], Reply::Failed { code: error.code(), why: &error.to_string() }, 0, out);
}

#[inline]
fn count_write(counters: &WorkerCounters, request: &Write, written: Written) {
    counters.cmd_set.bump();
    if request.compare.is_some() && matches!(request.mode, WriteMode::Set | WriteMode::Replace) {
        match written {
            Written::Stored { .. } => counters.cas_hits.bump(),
            Written::Exists => counters.cas_badval.bump(),
            Written::NotFound => counters.cas_misses.bump(),
            _ => {}
        }
    }
    match written {
        Written::Superseded { .. } => counters.superseded.bump(),
        Written::TooLarge => counters.store_too_large.bump(),
        Written::OutOfMemory => counters.store_no_memory.bump(),
        _ => {}
    }
}

/// Answers a write; `size` is the size of the value after it.
#[inline]
pub(super) fn answer_write(
    worker: &Worker,
    peer: &Peer,
    asked: Asked<'_, Write>,
    size: usize,
    outcome: Result<Written, StoreError>,
    out: &mut Vec<u8>,
) {
    let written = match outcome {
        Ok(written) => written,
        Err(error) => return failed(&worker.counters, asked.style, &error, out),
    };
    count_write(&worker.counters, asked.request, written);
    if worker.node.slow_log.is_large(size) {
        sample::large(worker, peer, Kind::Set, (asked.key, asked.style), size, worker.node.waits_for);
    }
    if worker.node.watchers.wants(watch::MUTATIONS) {
        worker.node.watchers.stored(peer, asked.key, asked.request, written, size);
    }
    if worker.node.prefixes.is_enabled() {
        worker.count_by_prefix(asked.key, Use::Set);
    }
    let reply = match written {
        Written::Stored { cas } => Reply::Stored { cas, size },
        Written::Unchanged { cas } => Reply::Unchanged { cas, size },
        Written::NotStored => Reply::NotStored,
        Written::Exists => Reply::Exists,
        Written::Superseded { by } => Reply::Superseded { by },
        Written::NotFound => Reply::NotFound,
        // Memcached answers NOT_STORED if an item would grow over the limit.
        Written::TooLarge if matches!(asked.request.mode, WriteMode::Append | WriteMode::Prepend) => Reply::NotStored,
        Written::TooLarge => Reply::TooLarge,
        Written::OutOfMemory => Reply::OutOfMemory,
    };
    encode::reply(asked.style, asked.key, reply, worker.node.clock.now(), out);
}

/// Answers a delete.
pub(super) fn answer_delete(
    worker: &Worker,
    asked: Asked<'_, Delete>,
    outcome: Result<Deleted, StoreError>,
    out: &mut Vec<u8>,
) {
    let counters = &worker.counters;
    if worker.node.prefixes.is_enabled() {
        worker.count_by_prefix(asked.key, Use::Delete);
    }
    let reply = match outcome {
        Ok(Deleted::Deleted) => {
            // An item that is only marked as stale does not count as deleted.
            if !asked.request.invalidate {
                counters.delete_hits.bump();
                if worker.node.watchers.wants(watch::DELETIONS) {
                    worker.node.watchers.deleted(asked.key, matches!(asked.style, Style::Meta(_)));
                }
            }
            Reply::Deleted
        }
        Ok(Deleted::Superseded { by }) => {
            counters.superseded.bump();
            Reply::Superseded { by }
        }
        Ok(Deleted::Exists) => {
            if matches!(asked.style, Style::Meta(_)) {
                counters.delete_misses.bump();
            }
            Reply::Exists
        }
        Ok(Deleted::NotFound) => {
            counters.delete_misses.bump();
            Reply::NotFound
        }
        Err(error) => return failed(counters, asked.style, &error, out),
    };
    encode::reply(asked.style, asked.key, reply, 0, out);
}

/// Answers `incr`, `decr`, `ma`.
pub(super) fn answer_arithmetic(
    worker: &Worker,
    asked: Asked<'_, Arithmetic>,
    outcome: Result<Number, StoreError>,
    out: &mut Vec<u8>,
) {
    let counters = &worker.counters;
    let (hits, misses) = if asked.request.decrement {
        (&counters.decr_hits, &counters.decr_misses)
    } else {
        (&counters.incr_hits, &counters.incr_misses)
    };
    let reply = match outcome {
        Ok(Number::Value { number, meta, created }) => {
            if !created {
                hits.bump();
            }
            Reply::Number { number, meta, created }
        }
        Ok(Number::NotFound) => {
            misses.bump();
            Reply::NotFound
        }
        Ok(Number::NonNumeric) => Reply::NonNumeric,
        Ok(Number::Exists) => Reply::Exists,
        Ok(Number::OutOfMemory) => {
            counters.store_no_memory.bump();
            Reply::OutOfMemory
        }
        Err(error) => return failed(counters, asked.style, &error, out),
    };
    encode::reply(asked.style, asked.key, reply, worker.node.clock.now(), out);
}

/// Answers `flush_all`.
pub(super) fn answer_flush(worker: &Worker, style: &Style<'_>, outcome: Result<(), StoreError>, out: &mut Vec<u8>) {
    match outcome {
        Ok(()) => encode::reply(style, &[], Reply::Ok, 0, out),
        Err(error) => failed(&worker.counters, style, &error, out),
    }
}

impl Session {
    /// Writes an item and answers.
    #[inline]
    pub(super) fn write(&mut self, worker: &Worker, asked: Asked<'_, Write>, value: &[u8], output: &mut Vec<u8>) {
        let mut buffer;
        let key = match asked.style {
            Style::Meta(style) => {
                worker.counters.cmd_meta.bump();
                if style.base64_key {
                    buffer = Self::key_buffer();
                    stored_key(asked.key, asked.style, &mut buffer)
                } else {
                    asked.key
                }
            }
            _ => asked.key,
        };
        let key = Key::new(key, worker.store.seed());
        match worker.store.call(&worker.cx, &key, Op::Write(value, asked.request), &mut Unseen) {
            Step::Done(outcome) => {
                let outcome = outcome.map(Outcome::written);
                let size = grown_size(worker, &key, &asked, value.len(), &outcome);
                curve::write(worker, key.hash, asked.request, key.bytes.len() + value.len(), &outcome);
                let (peer, out) = self.peer_and_out(output);
                answer_write(worker, peer, asked, size, outcome, out);
            }
            Step::Wait(future) => {
                curve::write_late(worker, key.hash, asked.request, key.bytes.len() + value.len());
                let waiting = Waiting::Write { request: *asked.request, size: value.len(), future };
                self.park(worker, waiting, Ticket::new(asked.key, asked.style), value.len());
            }
        }
    }

    pub(super) fn delete(&mut self, worker: &Worker, asked: Asked<'_, Delete>, output: &mut Vec<u8>) {
        count_meta(&worker.counters, asked.style);
        let mut buffer = Self::key_buffer();
        let key = Key::new(stored_key(asked.key, asked.style, &mut buffer), worker.store.seed());
        curve::delete(worker, key.hash, asked.request);
        match worker.store.call(&worker.cx, &key, Op::Delete(asked.request), &mut Unseen) {
            Step::Done(outcome) => answer_delete(worker, asked, outcome.map(Outcome::deleted), self.out(output)),
            Step::Wait(future) => {
                let waiting = Waiting::Delete { request: *asked.request, future };
                self.park(worker, waiting, Ticket::new(asked.key, asked.style), 0);
            }
        }
    }

    pub(super) fn arithmetic(&mut self, worker: &Worker, asked: Asked<'_, Arithmetic>, output: &mut Vec<u8>) {
        count_meta(&worker.counters, asked.style);
        let mut buffer = Self::key_buffer();
        let key = Key::new(stored_key(asked.key, asked.style, &mut buffer), worker.store.seed());
        curve::arithmetic(worker, key.hash);
        match worker.store.call(&worker.cx, &key, Op::Arithmetic(asked.request), &mut Unseen) {
            Step::Done(outcome) => answer_arithmetic(worker, asked, outcome.map(Outcome::number), self.out(output)),
            Step::Wait(future) => {
                let waiting = Waiting::Arithmetic { request: *asked.request, future };
                self.park(worker, waiting, Ticket::new(asked.key, asked.style), 0);
            }
        }
    }

    pub(super) fn flush_all(&mut self, worker: &Worker, delay: Exptime, style: &Style<'_>, output: &mut Vec<u8>) {
        worker.counters.cmd_flush.bump();
        if !worker.node.live.answers_flush() {
            return super::admin::not_allowed(style, "flush_all", self.out(output));
        }
        worker.node.note_flush_for_curve(Expiry::resolve(delay, worker.node.clock.now()).0);
        match component::flush(&worker.store, &worker.cx, delay) {
            Step::Done(outcome) => answer_flush(worker, style, outcome, self.out(output)),
            Step::Wait(future) => self.park(worker, Waiting::Flush { future }, Ticket::new(&[], style), 0),
        }
    }

    /// Deletes the old item of a key after a write that was too large, after parked requests on the key.
    #[cold]
    pub(super) fn forget(&mut self, worker: &Worker, forget: Forget<'_>) {
        let mut buffer = Self::key_buffer();
        let bytes = if forget.base64 {
            moneta_protocol::base64::decode_key(forget.key, &mut buffer).unwrap_or_default()
        } else {
            forget.key
        };
        if forget.older_than.is_some() && !self.may_name_versions(worker)
            || !self.may_change(worker, bytes, forget.older_than.is_some())
        {
            return;
        }
        let forgotten = Forgotten { key: bytes.into(), older_than: forget.older_than };
        match self.must_not_overtake(bytes, true) {
            true => self.extras().forgotten = Some(forgotten),
            false => self.begin_to_forget(worker, &forgotten),
        }
    }

    /// Begins a delete that had to wait, if it need not wait any more. True: it has begun.
    pub(super) fn forget_parked(&mut self, worker: &Worker) -> bool {
        let Some(extras) = &mut self.extras else { return false };
        let Some(forgotten) = &extras.forgotten else { return false };
        if extras.parked.stands_before(&forgotten.key, true) {
            return false;
        }
        extras.forgotten.take().inspect(|forgotten| self.begin_to_forget(worker, forgotten)).is_some()
    }

    fn begin_to_forget(&mut self, worker: &Worker, forgotten: &Forgotten) {
        let key = Key::new(&forgotten.key, worker.store.seed());
        let request = Delete::default();
        let op = match forgotten.older_than {
            Some(version) => Op::Bury(version.just_below()),
            None => Op::Delete(&request),
        };
        match worker.store.call(&worker.cx, &key, op, &mut Unseen) {
            Step::Done(Ok(_)) => {}
            Step::Done(Err(_)) => worker.counters.store_errors.bump(),
            Step::Wait(future) => {
                let style = Style::Text(Default::default());
                self.park(worker, Waiting::Forget { future }, Ticket::new(&forgotten.key, &style), 0);
            }
        }
    }
}

/// A key whose old item goes, since the write that should have replaced it was refused.
pub(super) struct Forgotten {
    key: Box<[u8]>,
    /// The write had a version: only what is older goes.
    older_than: Option<Version>,
}

/// The size of the value after a write. For append and prepend it is read back, only if the meta flag `s` asks for it; if that
/// read would have to wait, it is the size that was sent.
#[inline]
pub(super) fn grown_size(
    worker: &Worker,
    key: &Key<'_>,
    asked: &Asked<'_, Write>,
    size: usize,
    outcome: &Result<Written, StoreError>,
) -> usize {
    if !matches!(asked.request.mode, WriteMode::Append | WriteMode::Prepend) {
        return size;
    }
    let Style::Meta(style) = asked.style else { return size };
    if !matches!(outcome, Ok(Written::Stored { .. })) || !style.flags.contains(&b's') {
        return size;
    }
    let mut grown = size;
    let mut measure = |item: &moneta_store::ItemRef<'_>| grown = item.value.len();
    let _ = worker.store.call(&worker.cx, key, Op::Peek, &mut measure);
    grown
}
