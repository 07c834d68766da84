//! One connection of a load: requests out, replies in, each counted, timed and, if asked, verified.
//!
//! Nothing is allocated per request once the buffers have grown to the largest reply.

use std::collections::VecDeque;
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;

use moneta_net::{Received, Transport};

use crate::address::{Address, Subject};
use crate::error::Result;
use crate::keys::{Key, KeyText};
use crate::operation::Operation;
use crate::recorder::Recorder;
use crate::schedule::Clock;
use crate::value::Values;
use crate::wire::{Answer, Command, Expected, Protocol};
use crate::workload::{Request, Source, Workload};

/// First size of the receive buffer in bytes; larger replies make it grow.
const RECEIVE: usize = 64 * 1024;
/// Free space, in bytes, below which the receive buffer is compacted before a read.
const ROOM: usize = 16 * 1024;

/// What the connections of one thread share.
#[derive(Debug)]
pub struct Context<S> {
    /// Where requests come from.
    pub source: S,
    /// What decides sizes and expiration times.
    pub workload: Arc<Workload>,
    /// Writes and checks values.
    pub values: Values,
    /// The protocol spoken.
    pub protocol: Protocol,
    /// The keys asked for by one get.
    pub multiget: usize,
    /// Whether values read are checked.
    pub verify: bool,
    /// Requests that may still be started, if their number is limited.
    pub quota: Option<u64>,
    /// What is counted and timed.
    pub recorder: Recorder,
    /// Reads the time.
    pub clock: Clock,
    /// Writes keys.
    pub key_text: KeyText,
}

impl<S: Source> Context<S> {
    fn next(&mut self) -> Option<Request> {
        match &mut self.quota {
            Some(0) => return None,
            Some(left) => *left -= 1,
            None => {}
        }
        self.source.next()
    }
}

/// A request on its way.
#[derive(Debug)]
struct Pending {
    started: u64,
    operation: Operation,
    expected: Expected,
    /// Keys in the request, for the tally.
    keys: u32,
    /// Keys of `Connection::asked` that are not answered yet.
    unanswered: u32,
    fill: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    stream: Transport,
    address: Address,
    receive: Vec<u8>,
    start: usize,
    end: usize,
    send: Vec<u8>,
    sent: usize,
    pending: VecDeque<Pending>,
    asked: VecDeque<Key>,
    missed: VecDeque<Key>,
}

impl Connection {
    /// Connects, to speak `protocol`.
    ///
    /// # Errors
    /// [`crate::BenchError::Connection`].
    pub fn open(address: &Address, protocol: Protocol) -> Result<Self> {
        Ok(Self {
            stream: address.connect_nonblocking(protocol)?,
            address: address.clone(),
            receive: vec![0; RECEIVE],
            start: 0,
            end: 0,
            send: Vec::with_capacity(RECEIVE),
            sent: 0,
            pending: VecDeque::with_capacity(64),
            asked: VecDeque::with_capacity(256),
            missed: VecDeque::with_capacity(256),
        })
    }

    /// Its socket, to register it with a poll.
    pub fn descriptor(&self) -> RawFd {
        self.stream.as_raw_fd()
    }

    /// Requests sent or about to be sent and not answered.
    pub fn outstanding(&self) -> usize {
        self.pending.len()
    }

    /// Writes the fills that misses have made due into the send buffer.
    #[inline]
    pub fn queue_fills<S: Source>(&mut self, context: &mut Context<S>, started: u64) {
        while let Some(key) = self.missed.pop_front() {
            let request = Request { operation: Operation::Set, key, version: context.source.next_version() };
            self.queue(context, request, started, true);
        }
    }

    /// Writes the next request into the send buffer; false when there is none left.
    #[inline]
    pub fn queue_next<S: Source>(&mut self, context: &mut Context<S>, started: u64) -> bool {
        let Some(request) = context.next() else { return false };
        if context.multiget > 1 && request.operation == Operation::Get {
            self.queue_multiget(context, request.key, started);
        } else {
            self.queue(context, request, started, false);
        }
        true
    }

    #[inline]
    fn queue<S: Source>(&mut self, context: &mut Context<S>, request: Request, started: u64, fill: bool) {
        let Request { operation, key, version } = request;
        let workload = &context.workload;
        let value_length = if operation.stores() { workload.value_length(operation, key, version) } else { 0 };
        let ttl = workload.ttl(key, version);
        let text = context.key_text.write(key);
        context.protocol.begin(&mut self.send, Command { operation, key: text, ttl, value_length });
        if operation.stores() {
            workload.append_value(&context.values, &mut self.send, operation, key, version);
            context.protocol.end_value(&mut self.send);
        }
        let expected = if operation.reads() { Expected::Value } else { Expected::Status };
        self.asked.push_back(key);
        self.pending.push_back(Pending { started, operation, expected, keys: 1, unanswered: 1, fill });
    }

    fn queue_multiget<S: Source>(&mut self, context: &mut Context<S>, first: Key, started: u64) {
        let keys = context.multiget as u32;
        context.protocol.begin_multiget(&mut self.send);
        for index in 0..keys {
            let key = if index == 0 { first } else { context.source.another_key() };
            context.protocol.multiget_key(&mut self.send, context.key_text.write(key));
            self.asked.push_back(key);
        }
        context.protocol.end_multiget(&mut self.send);
        let (operation, expected) = (Operation::Get, Expected::Values);
        self.pending.push_back(Pending { started, operation, expected, keys, unanswered: keys, fill: false });
    }

    /// Sends what is queued, as far as the socket takes it.
    ///
    /// # Errors
    /// [`crate::BenchError::Connection`].
    #[inline]
    pub fn flush(&mut self) -> Result<()> {
        if self.sent < self.send.len() {
            let sent = self.stream.send(&self.send[self.sent..]).map_err(|error| self.address.failed(error.into()))?;
            self.sent += sent;
            if self.sent < self.send.len() {
                return Ok(());
            }
        }
        self.send.clear();
        self.sent = 0;
        Ok(())
    }

    /// Reads what has arrived and handles the replies in it; the number of requests, fills aside, that are now answered.
    ///
    /// # Errors
    /// [`crate::BenchError::Connection`] when the server closes, [`crate::BenchError::Protocol`] when it answers nonsense.
    #[inline]
    pub fn receive<S: Source>(&mut self, context: &mut Context<S>) -> Result<usize> {
        let mut answered = 0;
        loop {
            self.make_room();
            let received = self.stream.receive_into(&mut self.receive[self.end..]);
            match received.map_err(|error| self.address.failed(error.into()))? {
                Received::Some { bytes, drained } => {
                    self.end += bytes;
                    answered += self.handle_replies(context)?;
                    if drained {
                        return Ok(answered);
                    }
                }
                Received::Nothing => return Ok(answered),
                Received::End => return Err(self.address.failed(ErrorKind::UnexpectedEof.into())),
            }
        }
    }

    #[inline]
    fn make_room(&mut self) {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.receive.len() - self.end >= ROOM {
            return;
        }
        self.receive.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.receive.len() - self.end < ROOM {
            self.receive.resize(self.receive.len() * 2, 0);
        }
    }

    #[inline]
    fn handle_replies<S: Source>(&mut self, context: &mut Context<S>) -> Result<usize> {
        let now = context.clock.now();
        let mut answered = 0;
        while self.start < self.end {
            let bytes = &self.receive[self.start..self.end];
            let Some(pending) = self.pending.front_mut() else {
                return Err(self.address.violated(format!("{} bytes that were not asked for", bytes.len())));
            };
            let parsed = context.protocol.parse(bytes, pending.expected);
            let Some(reply) = parsed.map_err(|reason| self.address.violated(reason))? else { break };
            let keys = Keys { asked: &mut self.asked, missed: &mut self.missed };
            keys.account(context, pending, reply.answer).map_err(|reason| self.address.violated(reason))?;
            self.start += reply.length;
            if reply.last {
                context.recorder.latencies.record(pending.operation, now.saturating_sub(pending.started));
                context.recorder.tally.requests += 1;
                context.recorder.tally.keys += u64::from(pending.keys);
                answered += usize::from(!pending.fill);
                self.pending.pop_front();
            }
        }
        Ok(answered)
    }
}

/// The keys of a connection's requests, oldest first.
struct Keys<'a> {
    asked: &'a mut VecDeque<Key>,
    missed: &'a mut VecDeque<Key>,
}

impl Keys<'_> {
    #[inline]
    fn account<S>(mut self, context: &mut Context<S>, pending: &mut Pending, answer: Answer<'_>) -> Result<(), String> {
        match answer {
            Answer::Hit { key: text, data } => {
                let key = self.find(context, pending, text)?;
                context.recorder.tally.hits += 1;
                if context.verify {
                    verify(context, key, data);
                }
            }
            Answer::End | Answer::Missing => self.miss_rest(context, pending),
            Answer::Done => {
                context.recorder.tally.hits += u64::from(!pending.operation.stores());
                context.recorder.tally.fills += u64::from(pending.fill);
                self.forget(pending);
            }
            Answer::NotStored => {
                context.recorder.tally.not_stored += 1;
                self.miss_growth(context, pending);
                self.forget(pending);
            }
            Answer::Failed(message) => {
                let operation = pending.operation;
                context.recorder.failure(|| format!("{}: {}", operation.name(), message.escape_ascii()));
                if pending.expected != Expected::Values {
                    self.forget(pending);
                }
            }
        }
        Ok(())
    }

    /// The asked key that a value belongs to; keys before it were not answered, so they are misses.
    #[inline]
    fn find<S>(&mut self, context: &mut Context<S>, pending: &mut Pending, text: &[u8]) -> Result<Key, String> {
        while pending.unanswered > 0 {
            pending.unanswered -= 1;
            let Some(key) = self.asked.pop_front() else { break };
            if text.is_empty() || context.key_text.write(key) == text {
                return Ok(key);
            }
            self.miss(context, key, true);
        }
        Err(format!("a value for {}, which was not asked for", text.escape_ascii()))
    }

    fn miss_rest<S>(&mut self, context: &mut Context<S>, pending: &mut Pending) {
        // A delete or touch that misses is no reason to store the key.
        let fill = pending.operation.reads() || matches!(pending.operation, Operation::Incr | Operation::Decr);
        for _ in 0..std::mem::take(&mut pending.unanswered) {
            if let Some(key) = self.asked.pop_front() {
                self.miss(context, key, fill);
            }
        }
    }

    /// An append to a key that is not there is a miss like any other.
    fn miss_growth<S>(&mut self, context: &mut Context<S>, pending: &Pending) {
        if matches!(pending.operation, Operation::Append | Operation::Prepend)
            && let Some(key) = self.asked.front().copied()
        {
            self.miss(context, key, true);
        }
    }

    #[inline]
    fn miss<S>(&mut self, context: &mut Context<S>, key: Key, fill: bool) {
        context.recorder.tally.misses += 1;
        if fill && context.workload.lookaside {
            self.missed.push_back(key);
        }
    }

    fn forget(&mut self, pending: &mut Pending) {
        self.asked.drain(..std::mem::take(&mut pending.unanswered) as usize);
    }
}

#[inline]
fn verify<S>(context: &mut Context<S>, key: Key, data: &[u8]) {
    if let Err(reason) = context.workload.check(&context.values, key, data) {
        let text = context.key_text.write(key).escape_ascii().to_string();
        context.recorder.mismatch(|| format!("{text}: {reason}"));
    }
}
