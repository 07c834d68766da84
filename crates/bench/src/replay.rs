//! Replays a trace, or a workload's stream, request by request for its hit ratio: a read that misses is followed by a write.
//!
//! One connection keeps the order exact: the write that follows a miss leaves together with the next request and before it, so
//! the server sees every write before any later read. With a window of more than one, so many requests are sent together and
//! the writes for those that missed follow after them; a window never holds the same key twice.

use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::address::{Address, Subject};
use crate::affinity::pin_this_thread;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::keys::{Key, KeySpace, KeyText};
use crate::load::Rate;
use crate::operation::Operation;
use crate::process::{Memory, Process};
use crate::progress::Progress;
use crate::recorder::{Recorder, Tally};
use crate::schedule::{Clock, Schedule};
use crate::trace::{self, Format, TraceRequest};
use crate::value::Values;
use crate::wire::{Answer, Command, Expected, Protocol};
use crate::workload::{MixedSource, Request, Source, Workload};

const RECEIVE: usize = 64 * 1024;
/// Waits shorter than this are spent without sleep, in nanoseconds; the kernel's timers are about this late.
const SLEEPLESS: u64 = 200_000;

/// What is replayed.
#[derive(Debug, Clone)]
pub enum Input {
    /// A recorded trace.
    Trace {
        /// Its file.
        path: PathBuf,
        /// How it is written; told by the name if absent.
        format: Option<Format>,
        /// One size in bytes for all values, instead of the trace's own.
        value_size: Option<u32>,
        /// Larger values are cut to this many bytes.
        max_value: u32,
    },
    /// A stream drawn from a workload.
    Workload(Arc<Workload>),
}

/// How it is replayed.
#[derive(Debug, Clone)]
pub struct ReplayPlan {
    /// What.
    pub input: Input,
    /// The protocol spoken.
    pub protocol: Protocol,
    /// Length of every key in bytes.
    pub key_length: usize,
    /// The most requests replayed.
    pub limit: u64,
    /// Requests sent together.
    pub window: usize,
    /// The rate; as fast as the server answers if absent.
    pub rate: Option<Rate>,
    /// Whether values read are checked.
    pub verify: bool,
    /// Fixes the values, and the stream of a workload.
    pub seed: u64,
    /// CPUs the replay is pinned to; none when empty.
    pub cpus: Vec<usize>,
    /// Whether progress is printed.
    pub progress: bool,
}

/// What a replay found.
#[derive(Debug, Clone, Serialize)]
pub struct Replayed {
    /// How long it took, in seconds.
    pub seconds: f64,
    /// Everything that happened; `hits` and `misses` count reads only.
    pub tally: Tally,
    /// Misses of all reads, 0 to 1.
    pub miss_ratio: f64,
    /// The longest a request was sent after it was due, in seconds; above a second the TTLs no longer mean what they should.
    pub latest: f64,
    /// The server's memory afterwards, when its process can be seen.
    pub memory: Option<Memory>,
    /// Wrong values, described: the first few.
    pub mismatches: Vec<String>,
    /// Errors the server answered with: the first few.
    pub failures: Vec<String>,
}

impl Replayed {
    /// Turns wrong values into an error.
    ///
    /// # Errors
    /// [`BenchError::Mismatch`].
    pub fn check(&self) -> Result<()> {
        match self.tally.mismatches {
            0 => Ok(()),
            count => Err(BenchError::Mismatch { count, examples: self.mismatches.clone() }),
        }
    }
}

/// Replays on one server.
///
/// # Errors
/// What goes wrong with the trace or the connection, or [`BenchError::Interrupted`].
pub fn run(plan: &ReplayPlan, address: &Address, server: Option<Process>) -> Result<Replayed> {
    pin_this_thread(&plan.cpus)?;
    let mut replayer = Replayer::new(plan, address)?;
    let mut stream = Stream::open(plan)?;
    let mut progress = Progress::new(plan.progress, "replay");
    let start = Instant::now();
    let mut batch = Vec::with_capacity(plan.window);
    while stream.take_batch(plan.window, &mut batch)? {
        interrupt::check()?;
        replayer.exchange(&batch)?;
        progress.tick(|| replayer.recorder.tally);
    }
    replayer.exchange(&[])?;
    progress.finish();
    let Recorder { tally, mismatches, failures, .. } = replayer.recorder;
    Ok(Replayed {
        seconds: start.elapsed().as_secs_f64(),
        tally,
        miss_ratio: tally.misses as f64 / (tally.hits + tally.misses).max(1) as f64,
        latest: replayer.latest as f64 / 1e9,
        memory: server.map(Process::memory).transpose()?,
        mismatches,
        failures,
    })
}

/// A request with the length and time to live of what it stores, or of the write after its miss.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    /// What is asked for.
    pub operation: Operation,
    /// Of which key.
    pub key: Key,
    version: u32,
    /// Bytes of the value.
    pub length: usize,
    /// Seconds to live; 0: for ever.
    pub ttl: u32,
}

/// The requests of a plan, in order.
///
/// # Errors
/// As [`run`], of the trace; the iterator has those of its records.
pub fn requests(plan: &ReplayPlan) -> Result<impl Iterator<Item = Result<Step>>> {
    let mut stream = Stream::open(plan)?;
    Ok(std::iter::from_fn(move || stream.next().transpose()))
}

/// The requests of a plan, in order.
struct Stream {
    requests: Box<dyn Iterator<Item = Result<Step>>>,
    left: u64,
    /// A request that did not fit into the last batch.
    held: Option<Step>,
}

impl Stream {
    fn open(plan: &ReplayPlan) -> Result<Self> {
        let requests: Box<dyn Iterator<Item = Result<Step>>> = match &plan.input {
            Input::Trace { path, format, value_size, max_value } => {
                let (value_size, max_value) = (*value_size, *max_value);
                let step = move |request: TraceRequest| Step {
                    operation: Operation::Get,
                    key: Key { space: KeySpace::Trace, number: request.object },
                    version: 0,
                    length: value_size.unwrap_or(request.size).min(max_value) as usize,
                    ttl: 0,
                };
                Box::new(trace::open(path, *format)?.map(move |request| request.map(step)))
            }
            Input::Workload(workload) => {
                let mut source = MixedSource::new(Arc::clone(workload), 0, 0, 1)?;
                let workload = Arc::clone(workload);
                Box::new(std::iter::from_fn(move || source.next()).map(move |Request { operation, key, version }| {
                    let length = workload.value_length(operation, key, version);
                    Ok(Step { operation, key, version, length, ttl: workload.ttl(key, version) })
                }))
            }
        };
        Ok(Self { requests, left: plan.limit, held: None })
    }

    /// Fills `batch` with up to `window` requests of different keys; false when there are none left.
    fn take_batch(&mut self, window: usize, batch: &mut Vec<Step>) -> Result<bool> {
        batch.clear();
        while batch.len() < window {
            let Some(step) = self.next()? else { break };
            if batch.iter().any(|earlier| earlier.key == step.key) {
                self.held = Some(step);
                break;
            }
            batch.push(step);
        }
        Ok(!batch.is_empty())
    }

    fn next(&mut self) -> Result<Option<Step>> {
        if let Some(step) = self.held.take() {
            return Ok(Some(step));
        }
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.requests.next().transpose()
    }
}

/// The connection and what is on its way.
struct Replayer<'a> {
    plan: &'a ReplayPlan,
    address: &'a Address,
    stream: moneta_net::Stream,
    values: Values,
    key_text: KeyText,
    send: Vec<u8>,
    receive: Vec<u8>,
    /// Requests sent, in order, and whether each is a write after a miss.
    pending: Vec<(Step, bool)>,
    fills: Vec<Step>,
    schedule: Option<Schedule>,
    clock: Clock,
    latest: u64,
    recorder: Recorder,
}

impl<'a> Replayer<'a> {
    fn new(plan: &'a ReplayPlan, address: &'a Address) -> Result<Self> {
        let clock = Clock::start();
        Ok(Self {
            plan,
            address,
            stream: address.connect()?,
            values: Values::new(plan.seed),
            key_text: KeyText::new(plan.key_length),
            send: Vec::with_capacity(RECEIVE),
            receive: Vec::with_capacity(RECEIVE),
            pending: Vec::with_capacity(2 * plan.window),
            fills: Vec::with_capacity(plan.window),
            schedule: plan.rate.map(|rate| Schedule::new(rate.per_second, rate.arrivals, 0, plan.seed, 0)),
            clock,
            latest: 0,
            recorder: Recorder::default(),
        })
    }

    /// Sends the writes that are due and a batch of requests, and waits for all answers.
    fn exchange(&mut self, batch: &[Step]) -> Result<()> {
        self.wait_until_due(batch.len());
        self.send.clear();
        self.pending.clear();
        let mut fills = std::mem::take(&mut self.fills);
        for mut step in fills.drain(..) {
            step.operation = Operation::Set;
            self.queue(step, true);
        }
        self.fills = fills;
        for step in batch {
            self.queue(*step, false);
        }
        if self.pending.is_empty() {
            return Ok(());
        }
        self.stream.write_all(&self.send).map_err(|error| self.address.failed(error))?;
        self.receive_all()
    }

    fn wait_until_due(&mut self, requests: usize) {
        let Some(schedule) = &mut self.schedule else { return };
        for _ in 0..requests {
            loop {
                let now = self.clock.now();
                if let Some(intended) = schedule.due(now) {
                    self.latest = self.latest.max(now - intended);
                    break;
                }
                let left = schedule.next().saturating_sub(now);
                if left > SLEEPLESS {
                    std::thread::sleep(Duration::from_nanos(left - SLEEPLESS));
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    }

    fn queue(&mut self, step: Step, fill: bool) {
        let Step { operation, key, version, length, ttl } = step;
        let text = self.key_text.write(key);
        self.plan.protocol.begin(&mut self.send, Command { operation, key: text, ttl, value_length: length });
        if operation.stores() {
            match &self.plan.input {
                Input::Trace { .. } => self.values.append(&mut self.send, key, version, length),
                Input::Workload(workload) => {
                    workload.append_value(&self.values, &mut self.send, operation, key, version)
                }
            }
            self.plan.protocol.end_value(&mut self.send);
        }
        self.pending.push((step, fill));
    }

    fn receive_all(&mut self) -> Result<()> {
        let mut receive = std::mem::take(&mut self.receive);
        receive.clear();
        let (mut start, mut answered, mut hit) = (0, 0, false);
        while answered < self.pending.len() {
            let (step, fill) = self.pending[answered];
            let expected = if step.operation.reads() { Expected::Value } else { Expected::Status };
            let parsed = self.plan.protocol.parse(&receive[start..], expected);
            match parsed.map_err(|reason| self.address.violated(reason))? {
                Some(reply) => {
                    // The text protocol ends a hit with END too: only an END without a value is a miss.
                    if reply.answer != Answer::End || !hit {
                        self.account(step, fill, reply.answer);
                    }
                    start += reply.length;
                    answered += usize::from(reply.last);
                    self.recorder.tally.requests += u64::from(reply.last);
                    hit = !reply.last && matches!(reply.answer, Answer::Hit { .. });
                }
                None => read_more(&mut self.stream, &mut receive).map_err(|error| self.address.failed(error))?,
            }
        }
        self.receive = receive;
        Ok(())
    }

    fn account(&mut self, step: Step, fill: bool, answer: Answer<'_>) {
        let tally = &mut self.recorder.tally;
        match answer {
            Answer::Hit { data, .. } => {
                tally.hits += 1;
                if self.plan.verify {
                    self.verify(step.key, data);
                }
            }
            Answer::End => {
                tally.misses += 1;
                self.fills.push(step);
            }
            Answer::Missing if matches!(step.operation, Operation::Incr | Operation::Decr) => self.fills.push(step),
            Answer::Done => tally.fills += u64::from(fill),
            Answer::NotStored => tally.not_stored += 1,
            Answer::Missing => {}
            Answer::Failed(message) => {
                let name = step.operation.name();
                self.recorder.failure(|| format!("{name}: {}", message.escape_ascii()));
            }
        }
    }

    fn verify(&mut self, key: Key, data: &[u8]) {
        let checked = match &self.plan.input {
            Input::Trace { .. } => self.values.check(key, data),
            Input::Workload(workload) => workload.check(&self.values, key, data),
        };
        if let Err(reason) = checked {
            let text = self.key_text.write(key).escape_ascii().to_string();
            self.recorder.mismatch(|| format!("{text}: {reason}"));
        }
    }
}

/// Appends what has arrived to `buffer`.
fn read_more(stream: &mut moneta_net::Stream, buffer: &mut Vec<u8>) -> std::io::Result<()> {
    let filled = buffer.len();
    buffer.resize(filled + RECEIVE, 0);
    let count = stream.read(&mut buffer[filled..])?;
    buffer.truncate(filled + count);
    if count == 0 { Err(std::io::ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
}
