//! Runs a load on one server: connects, starts the threads, times the measured phase, and collects what they recorded.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::address::Address;
use crate::affinity::pin_this_thread;
use crate::alarm::{Alarm, run_first};
use crate::connection::Context;
use crate::driver::{Driver, Finished, Pace, Phase};
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::keys::KeyText;
use crate::operation::Operation;
use crate::process::{Memory, Process};
use crate::progress::Progress;
use crate::recorder::{LatencySummary, Recorder, SharedTally, Tally};
use crate::schedule::{Arrivals, Clock, Schedule};
use crate::value::Values;
use crate::wire::Protocol;
use crate::workload::{FillSource, MixedSource, Passes, Source, Workload};

/// Requests each connection keeps on their way during a fill.
const FILL_PIPELINE: usize = 16;
/// How often the main thread looks whether something ended.
const TICK: Duration = Duration::from_millis(5);

/// When a load ends.
#[derive(Debug, Clone, Copy)]
pub enum Length {
    /// After so many requests, fills after misses not counted; the warm-up is not counted either.
    Requests(u64),
    /// After so long.
    Duration(Duration),
}

/// The rate of an open loop.
#[derive(Debug, Clone, Copy)]
pub struct Rate {
    /// Requests a second over all connections.
    pub per_second: f64,
    /// How they are spaced.
    pub arrivals: Arrivals,
    /// Whether the client sleeps until the time of a request, and runs ahead of other programs where the operating system allows
    /// it, instead of keeping a core busy: for a client that shares its cores.
    pub sleeps: bool,
}

/// How a workload is put on a server.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What is asked for.
    pub workload: Arc<Workload>,
    /// Number of the run: runs of one workload with different numbers ask for different keys, from the same ones.
    pub run: u64,
    /// In which protocol.
    pub protocol: Protocol,
    /// Over how many connections, at least one for each thread.
    pub connections: usize,
    /// From how many threads.
    pub threads: usize,
    /// Requests each connection sends together; in an open loop the most it has on their way.
    pub pipeline: usize,
    /// Whether a closed loop sends the next request after each answer, not after the answers to all sent together.
    pub sliding: bool,
    /// Keys in one get.
    pub multiget: usize,
    /// Load before the timed phase.
    pub warmup: Duration,
    /// Length of the timed phase.
    pub length: Length,
    /// An open loop's rate; without one the loop is closed.
    pub rate: Option<Rate>,
    /// Whether values read are checked.
    pub verify: bool,
    /// CPUs the threads are pinned to; none are when empty.
    pub cpus: Vec<usize>,
    /// Whether a line of progress is printed every second.
    pub progress: bool,
}

/// CPU time a server spent during the timed phase.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct ServerUse {
    /// CPU time in microseconds for each request, user and system together.
    pub cpu_per_request: f64,
    /// CPU seconds over seconds: 1.0 is one core kept busy.
    pub cpu_cores: f64,
    /// The share of `cpu_per_request` spent in the kernel, 0 to 1; coarse.
    pub system_share: f64,
    /// Resident memory after the timed phase.
    pub memory: Memory,
}

/// What a load measured.
#[derive(Debug, Clone, Serialize)]
pub struct Outcome {
    /// Length of the timed phase in seconds.
    pub seconds: f64,
    /// What happened in it.
    pub tally: Tally,
    /// Requests answered a second.
    pub requests_per_second: f64,
    /// Share of the keys read that were there, 0 to 1; none when nothing was read.
    pub hit_ratio: Option<f64>,
    /// Latency over all operations, in microseconds.
    pub latency: LatencySummary,
    /// Latency by operation, in microseconds.
    pub operations: Vec<(Operation, LatencySummary)>,
    /// What the server used, when its process can be seen.
    pub server: Option<ServerUse>,
    /// Wrong values, described: the first few.
    pub mismatches: Vec<String>,
    /// Errors the server answered with: the first few.
    pub failures: Vec<String>,
}

impl Outcome {
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

/// Sets every key of the workload once, and waits until the server has answered.
///
/// # Errors
/// What goes wrong on a connection, or [`BenchError::Fill`] when the server refuses a set.
pub fn fill(plan: &Plan, address: &Address) -> Result<()> {
    let plan = Plan { length: Length::Duration(Duration::MAX), ..plan.clone() };
    let filled = write_all(&plan, address, None, Passes { first: 0, count: Some(1) })?;
    match filled.tally.failed {
        0 => Ok(()),
        failed => {
            let example = filled.failures.first().cloned().unwrap_or_default();
            Err(BenchError::Fill { failed, sets: filled.tally.requests, example })
        }
    }
}

/// Sets every key of the workload once in each pass, as fast as the server takes it, until the passes are done or the plan's
/// length is over. Sets that are refused are counted in the outcome.
///
/// # Errors
/// What goes wrong on a connection, or [`BenchError::Interrupted`].
pub fn write_all(plan: &Plan, address: &Address, server: Option<Process>, passes: Passes) -> Result<Outcome> {
    let sets = Plan {
        warmup: Duration::ZERO,
        rate: None,
        pipeline: FILL_PIPELINE,
        sliding: true,
        multiget: 1,
        verify: false,
        ..plan.clone()
    };
    let source = |stream, streams| Ok(FillSource::new(&plan.workload, passes, stream, streams));
    run_sources(&sets, address, server, "fill", source)
}

/// Runs the load; `server` is watched if given.
///
/// # Errors
/// What goes wrong on a connection, or [`BenchError::Interrupted`]. Wrong values are in the outcome, see [`Outcome::check`].
pub fn run(plan: &Plan, address: &Address, server: Option<Process>) -> Result<Outcome> {
    run_sources(plan, address, server, "load", |stream, streams| {
        MixedSource::new(Arc::clone(&plan.workload), plan.run, stream, streams)
    })
}

fn run_sources<S: Source + Send + 'static>(
    plan: &Plan,
    address: &Address,
    server: Option<Process>,
    label: &str,
    source: impl Fn(u64, u64) -> Result<S>,
) -> Result<Outcome> {
    let clock = Clock::start();
    let phase = Arc::new(Phase::default());
    let threads = plan.threads.min(plan.connections) as u64;
    let mut drivers = Vec::new();
    for stream in 0..threads {
        drivers.push(driver(plan, address, clock, (stream, threads), source(stream, threads)?)?);
    }
    let tallies = drivers.iter().map(Driver::tally).collect();
    let mut running = Running { tallies, phase: Arc::clone(&phase), clock, handles: Vec::new(), server };
    // Without a warm-up the timed phase must begin before the first request.
    let started = if plan.warmup.is_zero() { Some(running.start_measuring()?) } else { None };
    for driver in drivers {
        let (phase, cpus) = (Arc::clone(&phase), plan.cpus.clone());
        let first = plan.rate.is_some_and(|rate| rate.sleeps);
        running.handles.push(thread::spawn(move || {
            if first {
                run_first();
            }
            let finished = pin_this_thread(&cpus).and_then(|()| driver.run(&phase));
            if finished.is_err() {
                phase.stop();
            }
            finished
        }));
    }
    running.measure(plan, started, Progress::new(plan.progress, label))
}

fn driver<S: Source>(
    plan: &Plan,
    address: &Address,
    clock: Clock,
    (stream, streams): (u64, u64),
    source: S,
) -> Result<Driver<S>> {
    let share = |whole: u64| whole / streams + u64::from(stream < whole % streams);
    let context = Context {
        source,
        workload: Arc::clone(&plan.workload),
        values: Values::new(plan.workload.seed),
        protocol: plan.protocol,
        multiget: plan.multiget,
        verify: plan.verify,
        quota: match plan.length {
            Length::Requests(requests) => Some(share(requests)),
            Length::Duration(_) => None,
        },
        recorder: Recorder::default(),
        clock,
        key_text: KeyText::new(plan.workload.key_length),
    };
    let pace = match plan.rate {
        None => Pace::Closed { sliding: plan.sliding },
        Some(rate) => {
            let own = rate.per_second / streams as f64;
            // Threads take turns: their schedules start a fraction of an interval apart.
            let start = clock.now() + (1e9 / rate.per_second * stream as f64) as u64;
            let schedule = Schedule::new(own, rate.arrivals, start, plan.workload.seed, stream);
            let alarm = rate.sleeps.then(Alarm::new).transpose()?;
            Pace::Open { schedule, alarm }
        }
    };
    Driver::connect(address, share(plan.connections as u64) as usize, context, pace, plan.pipeline)
}

/// The threads of a load while they run.
struct Running {
    tallies: Vec<Arc<SharedTally>>,
    phase: Arc<Phase>,
    clock: Clock,
    handles: Vec<JoinHandle<Result<Finished>>>,
    server: Option<Process>,
}

/// What is known about server and load at one moment.
struct Sample {
    at: u64,
    tally: Tally,
    cpu: Option<(Duration, crate::process::Split)>,
}

impl Running {
    fn start_measuring(&self) -> Result<Sample> {
        let sample = self.sample()?;
        self.phase.measure();
        Ok(sample)
    }

    fn measure(mut self, plan: &Plan, started: Option<Sample>, mut progress: Progress) -> Result<Outcome> {
        let before = match started {
            Some(sample) => sample,
            None => {
                self.wait(plan.warmup, &mut progress)?;
                self.start_measuring()?
            }
        };
        let longest = match plan.length {
            Length::Duration(duration) => duration,
            Length::Requests(_) => Duration::MAX,
        };
        self.wait(longest, &mut progress)?;
        let mut after = self.sample()?;
        let ended = self.ended();
        self.phase.stop();
        progress.finish();
        let mut recorder = Recorder::default();
        let mut last = 0;
        for handle in std::mem::take(&mut self.handles) {
            let finished = handle.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
            last = last.max(finished.at);
            recorder.add(finished.recorder);
        }
        if ended {
            // The threads ended by themselves: they know the moment better than the clock of this loop does.
            after.at = last;
            after.tally = recorder.tally;
        }
        let memory = self.server.map(Process::memory).transpose()?;
        Ok(outcome(&before, &after, recorder, memory))
    }

    /// Waits until `longest` is over, the threads have ended, or the user interrupts.
    fn wait(&self, longest: Duration, progress: &mut Progress) -> Result<()> {
        let start = Instant::now();
        loop {
            let left = longest.saturating_sub(start.elapsed());
            if left.is_zero() || self.ended() {
                return Ok(());
            }
            if interrupt::requested() {
                self.phase.stop();
                return Err(BenchError::Interrupted);
            }
            thread::sleep(left.min(TICK));
            progress.tick(|| self.tally());
        }
    }

    fn ended(&self) -> bool {
        self.handles.iter().all(JoinHandle::is_finished)
    }

    fn tally(&self) -> Tally {
        self.tallies.iter().fold(Tally::default(), |sum, tally| sum.plus(tally.read()))
    }

    fn sample(&self) -> Result<Sample> {
        let cpu = self.server.map(|server| Ok::<_, BenchError>((server.cpu_time()?, server.split()?))).transpose()?;
        Ok(Sample { at: self.clock.now(), tally: self.tally(), cpu })
    }
}

fn outcome(before: &Sample, after: &Sample, recorder: Recorder, memory: Option<Memory>) -> Outcome {
    let seconds = after.at.saturating_sub(before.at) as f64 / 1e9;
    let mut tally = after.tally.since(before.tally);
    // A wrong value is one too many in whatever phase it was read.
    tally.mismatches = recorder.tally.mismatches;
    let reads = tally.hits + tally.misses;
    let server = match (before.cpu, after.cpu, memory) {
        (Some((cpu_before, split_before)), Some((cpu_after, split_after)), Some(memory)) => {
            let cpu = (cpu_after - cpu_before).as_secs_f64();
            let user = (split_after.user - split_before.user).as_secs_f64();
            let system = (split_after.system - split_before.system).as_secs_f64();
            Some(ServerUse {
                cpu_per_request: cpu * 1e6 / tally.requests.max(1) as f64,
                cpu_cores: cpu / seconds,
                system_share: if user + system > 0.0 { system / (user + system) } else { 0.0 },
                memory,
            })
        }
        _ => None,
    };
    Outcome {
        seconds,
        tally,
        requests_per_second: tally.requests as f64 / seconds,
        hit_ratio: (reads > 0).then(|| tally.hits as f64 / reads as f64),
        latency: recorder.latencies.total(),
        operations: recorder.latencies.summaries(),
        server,
        mismatches: recorder.mismatches,
        failures: recorder.failures,
    }
}
