//! What is told of some requests: those that are timed, for the times and the hot keys, and those that waited long or brought a large
//! value, for the slow log.

use moneta_protocol::command::{Command, Keys, ReadVerb, Style, TextStyle};
use moneta_protocol::decoder::Shortcut;

use super::key::stored_key;
use super::limited::asked;
use super::ticket::Ticket;
use super::waiting::Waiting;
use super::{Flow, Session, Worker};
use crate::latency::{Kind, Started};
use crate::node::Peer;
use crate::slow_log::{Noted, Why};

/// What answers requests at once.
pub(super) const RAM: &str = "ram";

/// Keys of one line that are counted for the hot keys, at most.
const KEYS_MAX: usize = 16;

/// A command that is timed and was executed.
pub(super) struct Sampled<'a> {
    pub(super) kind: Kind,
    pub(super) started: Started,
    pub(super) keys: Keys<'a>,
    pub(super) style: &'a Style<'a>,
    /// Bytes of the request.
    pub(super) consumed: usize,
    /// The address from which on keys of a line are left for another turn.
    pub(super) rest: Option<usize>,
}

impl Session {
    /// A command that is timed was executed: it is answered now, or when the last request that it has parked is.
    #[cold]
    pub(super) fn sampled(&mut self, worker: &Worker, sampled: &Sampled<'_>, output: &[u8]) {
        let Sampled { kind, started, mut keys, style, consumed, rest } = *sampled;
        let is_parked = self.extras.as_mut().is_some_and(|extras| extras.parked.time_last(kind, started.at));
        if !is_parked {
            worker.latencies().record(kind, started.at);
        }
        if !worker.node.live.finds_hot_keys() {
            return;
        }
        let now = worker.node.clock.now();
        let mut buffer = Self::key_buffer();
        if let Keys::One(key) = keys {
            let key = stored_key(key, style, &mut buffer);
            if is_parked {
                return worker.counters.hot_keys.asked(now, std::iter::once(key), 1);
            }
            let moved = consumed + output.len().saturating_sub(started.output);
            return worker.counters.hot_keys.answered(now, key, moved);
        }
        let is_done = |key: &&[u8]| rest.is_none_or(|rest| (key.as_ptr() as usize) < rest);
        let each = std::iter::from_fn(move || keys.split_first()).take_while(is_done);
        let (first, count) = (each.clone().next(), each.clone().count());
        // Of a long line one key in so many, each of which stands for as many.
        let step = count.div_ceil(KEYS_MAX).max(1);
        worker.counters.hot_keys.asked(now, each.skip(fastrand::usize(..step)).step_by(step), step as u64);
        if let Some(first) = first.filter(|_| !is_parked) {
            let moved = consumed + output.len().saturating_sub(started.output);
            // Which of its keys has which bytes is not known; the first of many lines is as likely to be any of them.
            worker.counters.hot_keys.moved(now, first, moved / count);
        }
    }

    /// The same of a command that is no shortcut; `input` is the command.
    #[cold]
    #[expect(clippy::too_many_arguments, reason = "all of it is at hand where this is called, and nowhere else")]
    pub(super) fn sampled_command(
        &mut self,
        worker: &Worker,
        kind: Kind,
        started: Started,
        command: &Command<'_>,
        input: &[u8],
        flow: &Flow,
        output: &[u8],
    ) {
        let text = Style::Text(TextStyle::default());
        let (keys, style) = asked(command).unwrap_or((Keys::Line(&[]), text));
        let rest = match flow {
            Flow::Paused { rest } | Flow::Held { rest } => Some(input.as_ptr_range().end as usize - rest),
            _ => None,
        };
        self.sampled(worker, &Sampled { kind, started, keys, style: &style, consumed: input.len(), rest }, output);
    }

    /// The same of one of several `get`s that are read together, counted from 0; `input` begins with them.
    #[cold]
    pub(super) fn sampled_pipelined(
        &mut self,
        worker: &Worker,
        started: Started,
        input: &[u8],
        place: u32,
        output: &[u8],
    ) {
        let mut rest = input;
        for before in 0..=place {
            let Some(Shortcut::Get { key, consumed }) = self.decoder.shortcut(rest) else { return };
            if before == place {
                let (keys, style) = (Keys::One(key), Style::Text(TextStyle::default()));
                let sampled = Sampled { kind: Kind::Get, started, keys, style: &style, consumed, rest: None };
                return self.sampled(worker, &sampled, output);
            }
            rest = &rest[consumed..];
        }
    }
}

/// A command that is timed was answered after a wait, with a reply of so many bytes.
#[cold]
pub(super) fn moved_late(worker: &Worker, waiting: &Waiting, ticket: &Ticket, bytes: usize) {
    if !worker.node.live.finds_hot_keys() {
        return;
    }
    let now = worker.node.clock.now();
    if let Waiting::Several(several) = waiting {
        if let Some(share) = bytes.checked_div(several.keys.len()) {
            worker.counters.hot_keys.moved(now, several.keys.key(0).bytes, share);
        }
        return;
    }
    let bytes = bytes + if let Waiting::Write { size, .. } = waiting { *size } else { 0 };
    let mut buffer = Session::key_buffer();
    let key = ticket.with_style(|style| stored_key(ticket.key(), style, &mut buffer).to_vec());
    if !key.is_empty() {
        worker.counters.hot_keys.moved(now, &key, bytes);
    }
}

/// A request waited for so many milliseconds. `behind`: its reply waits for others.
#[cold]
pub(super) fn waited(worker: &Worker, peer: &Peer, waiting: &Waiting, ticket: &Ticket, waited: i32, behind: bool) {
    let (command, bytes) = match waiting {
        Waiting::Read { verb: ReadVerb::Touch | ReadVerb::GetAndTouch, .. } => (Kind::Touch.name(), 0),
        Waiting::Read { .. } | Waiting::Several(_) => (Kind::Get.name(), 0),
        Waiting::Write { size, .. } => (Kind::Set.name(), *size),
        Waiting::Delete { .. } | Waiting::Forget { .. } => (Kind::Delete.name(), 0),
        Waiting::Arithmetic { .. } => (Kind::Arithmetic.name(), 0),
        Waiting::Debug { .. } => ("debug", 0),
        Waiting::Flush { .. } => ("flush_all", 0),
    };
    let at = worker.node.clock.millis();
    let milliseconds = u64::try_from(waited).unwrap_or(0);
    let worker_late = worker.counters.late.between(at.saturating_sub(milliseconds), at);
    let why = Why::Waited { milliseconds, worker_late, behind };
    let mut buffer = Session::key_buffer();
    ticket.with_style(|style| {
        let key = match waiting {
            Waiting::Several(several) if !several.keys.is_empty() => several.keys.key(0).bytes,
            _ => stored_key(ticket.key(), style, &mut buffer),
        };
        worker.node.slow_log.note(at, peer, &Noted { why, command, key, bytes, tier: worker.node.waits_for });
    });
}

/// A value of so many bytes was read or written.
#[cold]
pub(super) fn large(
    worker: &Worker,
    peer: &Peer,
    kind: Kind,
    (key, style): (&[u8], &Style<'_>),
    bytes: usize,
    tier: &'static str,
) {
    let mut buffer = Session::key_buffer();
    let key = stored_key(key, style, &mut buffer);
    let noted = Noted { why: Why::Large, command: kind.name(), key, bytes, tier };
    worker.node.slow_log.note(worker.node.clock.millis(), peer, &noted);
}
