//! `get` and all other commands that read.

use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use moneta_protocol::command::{Keys, ReadVerb, Style};
use moneta_protocol::encode;
use moneta_protocol::reply::Reply;
use moneta_store::request::Retrieve;
use moneta_store::{ErrorKind, ItemRef, Key, Lookup, Op, Outcome, Step, StoreError, Visit};

use super::key::stored_key;
use super::limited::spend_of_app;
use super::several::{Failure, Several};
use super::ticket::Ticket;
use super::waiting::{Waiting, changes};
use super::{Flow, Session, Worker, curve, sample};
use crate::counters::WorkerCounters;
use crate::latency::Kind;
use crate::node::Peer;
use crate::prefixes::Use;
use crate::watch;

/// Keys of a multi-get that are read together, or announced to the store before the first of them is read.
pub(super) const GROUP: usize = 16;

/// Groups of a multi-get between two readings of the clock.
const GROUPS: u32 = 8;
/// How long a multi-get runs before other connections have their turn.
const SLICE: Duration = Duration::from_micros(100);

/// The time slice of a multi-get. Short ones do not read the clock.
#[derive(Default)]
struct Slice {
    groups: u32,
    began: Option<Instant>,
}

impl Slice {
    /// Called before each group: whether the slice is over.
    #[inline]
    fn is_over(&mut self) -> bool {
        self.groups += 1;
        if self.groups < GROUPS {
            return false;
        }
        self.groups = 0;
        self.look()
    }

    #[cold]
    fn look(&mut self) -> bool {
        let now = Instant::now();
        now.duration_since(*self.began.get_or_insert(now)) >= SLICE
    }
}

/// How a read ended, for its counters.
#[derive(Clone, Copy)]
enum Read {
    Hit,
    Miss { expired: bool },
}

/// A read of one key.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    /// The key, as sent.
    pub(super) key: &'a [u8],
    pub(super) request: &'a Retrieve,
    pub(super) verb: ReadVerb,
    pub(super) style: &'a Style<'a>,
}

impl Asked<'_> {
    /// A text `touch` is answered without an item.
    #[inline]
    fn is_text_touch(&self) -> bool {
        self.verb == ReadVerb::Touch && matches!(self.style, Style::Text(_))
    }

    #[inline(always)]
    fn item(&self, item: &ItemRef<'_>, now: u32, out: &mut Vec<u8>) {
        if self.is_text_touch() {
            encode::reply(self.style, self.key, Reply::Line("TOUCHED"), now, out);
        } else {
            encode::item(self.style, self.key, item, now, out);
        }
    }

    #[inline]
    fn miss(&self, now: u32, out: &mut Vec<u8>) {
        let reply = if self.is_text_touch() { Reply::NotFound } else { Reply::Miss };
        encode::reply(self.style, self.key, reply, now, out);
    }

    /// A failed read. Classic text has no error inside a list of values, so that is returned, to be told in place of the `END`
    /// after them. What cannot be served at all, or is on a part of a device that is bad, is a miss there.
    #[cold]
    fn failed(&self, counters: &WorkerCounters, error: &StoreError, now: u32, out: &mut Vec<u8>) -> Option<Failure> {
        if error.kind() != ErrorKind::CatchingUp {
            counters.store_errors.bump();
        }
        if !matches!(self.style, Style::Text(_)) || self.is_text_touch() {
            encode::reply(
                self.style,
                self.key,
                Reply::Failed { code: error.code(), why: &error.to_string() },
                now,
                out,
            );
            return None;
        }
        if matches!(error.kind(), ErrorKind::CatchingUp | ErrorKind::Unsupported | ErrorKind::Device) {
            self.miss(now, out);
            return None;
        }
        Some(error.to_string().into())
    }

    /// Counts a hit or a miss as memcached does: a command that touches counts as a touch and not as a get.
    #[inline]
    fn count(&self, counters: &WorkerCounters, read: Read) {
        let (commands, hits, misses) = match self.request.touch {
            None => (&counters.cmd_get, &counters.get_hits, &counters.get_misses),
            Some(_) => (&counters.cmd_touch, &counters.touch_hits, &counters.touch_misses),
        };
        commands.bump();
        if self.verb == ReadVerb::Meta {
            counters.cmd_meta.bump();
        }
        match read {
            Read::Hit => hits.bump(),
            Read::Miss { expired } => {
                misses.bump();
                counters.get_expired.add(u64::from(expired));
            }
        }
    }

    /// `tier`: what answered it. The checks belong to each read, what they lead to does not.
    #[inline(always)]
    fn tell(&self, worker: &Worker, peer: &Peer, found: watch::Fetched, tier: &'static str) {
        let node = &*worker.node;
        let is_large = matches!(found, watch::Fetched::Found { size } if node.slow_log.is_large(size));
        let is_heard = node.watchers.wants(watch::FETCHERS) | node.prefixes.is_enabled();
        if is_large | is_heard | node.app_limits().is_some() {
            self.tell_some(worker, peer, found, tier);
        }
    }

    #[cold]
    fn tell_some(&self, worker: &Worker, peer: &Peer, found: watch::Fetched, tier: &'static str) {
        if let watch::Fetched::Found { size } = found
            && worker.node.slow_log.is_large(size)
        {
            sample::large(worker, peer, Kind::Get, (self.key, self.style), size, tier);
        }
        if worker.node.watchers.wants(watch::FETCHERS) {
            worker.node.watchers.fetched(peer, self.key, &found);
        }
        if worker.node.prefixes.is_enabled() {
            let hit = matches!(found, watch::Fetched::Found { .. });
            worker.count_by_prefix(self.key, Use::Get { hit });
        }
        if let Some(apps) = worker.node.app_limits()
            && let watch::Fetched::Found { size } = found
        {
            spend_of_app(apps, peer.door, self.key, size);
        }
    }
}

/// How far a read of one key is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// It is answered.
    Answered,
    /// It failed; why is told in place of `END`.
    Failed,
    /// It has to wait.
    Parked,
}

/// Writes the reply of a hit directly from the item's memory.
struct Answer<'a> {
    asked: &'a Asked<'a>,
    now: u32,
    out: &'a mut Vec<u8>,
    /// Bytes of the value.
    size: usize,
}

impl Visit for Answer<'_> {
    #[inline]
    fn item(&mut self, item: &ItemRef<'_>) {
        self.size = item.value.len();
        self.asked.item(item, self.now, self.out);
    }
}

/// Ends a `get`: with why it failed, if it did.
#[inline]
pub(super) fn end_get(style: &Style<'_>, failure: Option<&Failure>, out: &mut Vec<u8>) {
    match failure {
        None => encode::end_of_get(style, out),
        Some(why) => encode::reply(style, &[], Reply::Failed { code: None, why }, 0, out),
    }
}

/// Answers a read whose item was not shown to a visitor: it had to wait, missed, or failed. What is returned is to be told in
/// place of `END`.
pub(super) fn answer_read(
    worker: &Worker,
    peer: &Peer,
    asked: Asked<'_>,
    hash: u64,
    outcome: Result<Lookup, StoreError>,
    out: &mut Vec<u8>,
) -> Option<Failure> {
    curve::looked(worker, hash, asked.key, asked.request, &outcome);
    let read = match &outcome {
        Ok(Lookup::Visited | Lookup::Found(_)) => Read::Hit,
        Ok(Lookup::Miss { expired }) => Read::Miss { expired: *expired },
        Err(_) => Read::Miss { expired: false },
    };
    asked.count(&worker.counters, read);
    let now = worker.node.clock.now();
    match outcome {
        Ok(Lookup::Found(item)) => {
            worker.counters.ledger.note_read(item.value.len());
            asked.tell(worker, peer, watch::Fetched::Found { size: item.value.len() }, worker.node.waits_for);
            asked.item(&item.as_ref(), now, out);
        }
        Ok(Lookup::Miss { expired }) => {
            asked.tell(worker, peer, watch::Fetched::Missed { expired }, worker.node.waits_for);
            asked.miss(now, out);
        }
        // After a wait there is no visitor that could have been shown an item.
        Ok(Lookup::Visited) => asked.miss(now, out),
        Err(error) => return asked.failed(&worker.counters, &error, now, out),
    }
    None
}

/// Answers those of several reads that have ended. Ready when these are all; then `out` has the replies.
pub(super) fn answer_several(
    worker: &Worker,
    peer: &Peer,
    several: &mut Several,
    style: &Style<'_>,
    cx: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Poll<()> {
    if several.written.is_empty() {
        let start = out.len();
        let polled = answer_next(worker, peer, several, style, cx, out);
        if polled.is_pending() {
            several.hold(out, start);
        }
        return polled;
    }
    let mut written = std::mem::take(&mut several.written);
    let polled = answer_next(worker, peer, several, style, cx, &mut written);
    if polled.is_ready() {
        out.append(&mut written);
    }
    several.written = written;
    polled
}

/// Answers as many of several reads as have ended.
fn answer_next(
    worker: &Worker,
    peer: &Peer,
    several: &mut Several,
    style: &Style<'_>,
    cx: &mut Context<'_>,
    out: &mut Vec<u8>,
) -> Poll<()> {
    let Several { verb, request, keys, next, reads, pipelined, failure, .. } = several;
    while *next < keys.len() {
        let Key { bytes: key, hash } = keys.key(*next);
        let asked = Asked { key, request, verb: *verb, style };
        let mut answer = Answer { asked: &asked, now: worker.node.clock.now(), out, size: 0 };
        let ended = ready!(reads.as_mut().poll_next(cx, &mut answer));
        let size = answer.size;
        match ended {
            Some(Ok(Lookup::Visited)) => {
                asked.count(&worker.counters, Read::Hit);
                curve::read(worker, hash, request, Some(asked.key.len() + size));
                worker.counters.ledger.note_read(size);
                asked.tell(worker, peer, watch::Fetched::Found { size }, worker.node.waits_for);
            }
            Some(outcome) => {
                let failed = answer_read(worker, peer, asked, hash, outcome, out);
                *failure = failure.take().or(failed);
            }
            None => unreachable!("a read ends for each key"),
        }
        if *pipelined {
            end_get(style, failure.take().as_ref(), out);
        }
        *next += 1;
    }
    Poll::Ready(())
}

/// Answers `me` after a wait.
pub(super) fn answer_debug_late(
    worker: &Worker,
    key: &[u8],
    style: &Style<'_>,
    outcome: Result<Lookup, StoreError>,
    out: &mut Vec<u8>,
) {
    let now = worker.node.clock.now();
    match outcome {
        Ok(Lookup::Found(item)) => debug_line(key, &item.as_ref(), now, out),
        Ok(_) => encode::reply(style, key, Reply::Miss, now, out),
        Err(error) => {
            encode::reply(style, key, Reply::Failed { code: error.code(), why: &error.to_string() }, now, out)
        }
    }
}

/// The reply to `me`: `size` covers key and value, `cls` is always 1, since there are no slab classes.
fn debug_line(key: &[u8], item: &ItemRef<'_>, now: u32, out: &mut Vec<u8>) {
    let meta = &item.meta;
    let exp = meta.expiry.remaining(now).map_or(-1, i64::from);
    let la = now.saturating_sub(meta.last_access);
    let fetch = if meta.fetched { "yes" } else { "no" };
    let size = key.len() + item.value.len();
    out.extend_from_slice(b"ME ");
    out.extend_from_slice(key);
    let rest = format!(" exp={exp} la={la} cas={} fetch={fetch} cls=1 size={size}\r\n", meta.cas);
    out.extend_from_slice(rest.as_bytes());
}

impl Session {
    /// Reads one key and answers.
    #[inline]
    pub(super) fn read_one(&mut self, worker: &Worker, asked: Asked<'_>, output: &mut Vec<u8>) {
        let mut buffer;
        let key = match asked.style {
            Style::Meta(style) if style.base64_key => {
                buffer = Self::key_buffer();
                stored_key(asked.key, asked.style, &mut buffer)
            }
            _ => asked.key,
        };
        let looked = self.look_up(worker, &Key::new(key, worker.store.seed()), asked, output);
        if asked.verb != ReadVerb::Get {
            return;
        }
        match looked {
            Looked::Answered => encode::end_of_get(asked.style, self.out(output)),
            Looked::Failed => self.extras().parked.end_get(output),
            Looked::Parked => self.extras().parked.end_last(),
        }
    }

    /// Reads one key of a line.
    #[inline]
    fn look_up(&mut self, worker: &Worker, key: &Key<'_>, asked: Asked<'_>, output: &mut Vec<u8>) -> Looked {
        let now = worker.node.clock.now();
        let mut answer = Answer { asked: &asked, now, out: self.out(output), size: 0 };
        match worker.store.call(&worker.cx, key, Op::Read(asked.request), &mut answer) {
            Step::Done(Ok(Outcome::Read(Lookup::Visited))) => {
                let size = answer.size;
                asked.count(&worker.counters, Read::Hit);
                asked.tell(worker, &self.peer, watch::Fetched::Found { size }, sample::RAM);
                curve::read(worker, key.hash, asked.request, Some(key.bytes.len() + size));
                Looked::Answered
            }
            step => self.end_look_up(worker, key.hash, asked, step, output),
        }
    }

    /// Completes a read that was not a hit in RAM.
    #[inline(never)]
    fn end_look_up(
        &mut self,
        worker: &Worker,
        hash: u64,
        asked: Asked<'_>,
        step: Step,
        output: &mut Vec<u8>,
    ) -> Looked {
        match step {
            Step::Done(outcome) => {
                let (peer, out) = self.peer_and_out(output);
                match answer_read(worker, peer, asked, hash, outcome.map(Outcome::lookup), out) {
                    None => Looked::Answered,
                    Some(why) => {
                        self.extras().parked.fail_get(why);
                        Looked::Failed
                    }
                }
            }
            Step::Wait(future) => {
                let waiting = Waiting::Read { verb: asked.verb, request: *asked.request, hash, future };
                self.park(worker, waiting, Ticket::new(asked.key, asked.style), 0);
                Looked::Parked
            }
        }
    }

    /// Reads the keys of a line, group by group, until all are read or there is no room for replies.
    pub(super) fn read_many(
        &mut self,
        worker: &Worker,
        mut keys: Keys<'_>,
        asked: Asked<'_>,
        input: &[u8],
        output: &mut Vec<u8>,
        high_water: usize,
    ) -> Flow {
        let Style::Text(style) = *asked.style else {
            return Flow::Next;
        };
        let seed = worker.store.seed();
        let mut slice = Slice::default();
        loop {
            if slice.is_over() {
                return self.hold(keys, asked, style.with_cas, style.more, input);
            }
            let group_start = keys;
            let mut group = [Key { bytes: &[], hash: 0 }; GROUP];
            let mut count = 0;
            while count < GROUP
                && let Some(key) = keys.split_first()
            {
                group[count] = Key::new(key, seed);
                count += 1;
            }
            let group = &group[..count];
            let may_begin = self.reads_together && output.len() < high_water && !self.is_held_up(worker, high_water);
            if may_begin && self.read_together(worker, group, asked, false) {
                if count < GROUP {
                    break;
                }
                continue;
            }
            worker.store.announce(group);
            let mut executed = group_start;
            for key in group {
                if output.len() >= high_water || self.is_held_up(worker, high_water) {
                    return self.pause(executed, asked, style.with_cas, style.more, input);
                }
                if self.must_not_overtake(key.bytes, changes(asked.request)) {
                    return self.hold(executed, asked, style.with_cas, style.more, input);
                }
                self.look_up(worker, key, Asked { key: key.bytes, ..asked }, output);
                executed.split_first();
            }
            if count < GROUP {
                break;
            }
        }
        if !style.more {
            match &mut self.extras {
                Some(extras) => extras.parked.end_get(output),
                None => end_get(asked.style, None, output),
            }
        }
        Flow::Next
    }

    /// Leaves the rest of a line for another turn.
    fn hold(&mut self, rest: Keys<'_>, asked: Asked<'_>, with_cas: bool, more: bool, input: &[u8]) -> Flow {
        match self.pause(rest, asked, with_cas, more, input) {
            Flow::Paused { rest } => Flow::Held { rest },
            other => other,
        }
    }

    /// Leaves the rest of a line for the next call.
    fn pause(&mut self, rest: Keys<'_>, asked: Asked<'_>, with_cas: bool, more: bool, input: &[u8]) -> Flow {
        let (Keys::One(keys) | Keys::Line(keys)) = rest;
        // The keys are a part of the input: their distance from its end is the length that this command leaves.
        let rest = input.as_ptr_range().end as usize - keys.as_ptr() as usize;
        self.decoder.resume_get(with_cas, asked.request.touch, more, rest);
        Flow::Paused { rest }
    }

    /// `me`.
    pub(super) fn debug(&mut self, worker: &Worker, key: &[u8], style: &Style<'_>, output: &mut Vec<u8>) {
        worker.counters.cmd_meta.bump();
        let now = worker.node.clock.now();
        let mut buffer = Self::key_buffer();
        let stored = Key::new(stored_key(key, style, &mut buffer), worker.store.seed());
        let out = self.out(output);
        let mut visitor = |item: &ItemRef<'_>| debug_line(key, item, now, out);
        match worker.store.call(&worker.cx, &stored, Op::Peek, &mut visitor) {
            Step::Done(Ok(Outcome::Read(Lookup::Visited))) => {}
            Step::Done(outcome) => {
                answer_debug_late(worker, key, style, outcome.map(Outcome::lookup), self.out(output));
            }
            Step::Wait(future) => self.park(worker, Waiting::Debug { future }, Ticket::new(key, style), 0),
        }
    }
}
