//! The log: structured, on standard error, as text or as one JSON object a line; its level can change while running.
//!
//! Logging never blocks on the log's reader: lines go through a bounded queue to a thread that writes them, and what finds the
//! queue full is dropped and counted. Lines that repeat are bounded, too ([`repeats`]).

mod repeats;

use std::io::{IsTerminal, stderr};
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use repeats::Repeats;

/// Lines that wait for their reader at most: a few MiB.
const QUEUE_LINES: usize = 16 * 1024;

/// Changes the level of the log.
#[derive(Clone, Debug)]
pub struct LogLevel {
    handle: Handle<LevelFilter, Registry>,
    settings: Arc<Mutex<InForce>>,
    repeats: Repeats,
}

/// What is logged now.
#[derive(Clone, Copy, Debug)]
struct InForce {
    /// As the operator wants it.
    own: LogSettings,
    /// The verbosity in force, which clients may change.
    verbosity: u32,
}

/// What is logged, and how.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogSettings {
    /// How a line is written.
    pub format: LogFormat,
    /// Least level that is logged whatever the verbosity.
    pub base: Level,
    /// memcached's count of `-v`.
    pub verbosity: u32,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

impl LogLevel {
    /// Logs `base` and what is more important, whatever the verbosity, from now on.
    pub fn set_base(&self, base: Level) {
        self.change(|settings| settings.own.base = base);
    }

    /// Logs with the operator's verbosity from now on, instead of the one before.
    pub fn set_own_verbosity(&self, verbosity: u32) {
        self.change(|settings| (settings.own.verbosity, settings.verbosity) = (verbosity, verbosity));
    }

    /// Logs with another verbosity from now on, as a client asks; the level of the options stays the least. What this logs beyond
    /// the operator's own wish is bounded.
    pub fn set_verbosity(&self, verbosity: u32) {
        self.change(|settings| settings.verbosity = verbosity);
    }

    fn change(&self, change: impl FnOnce(&mut InForce)) {
        let mut settings = self.settings.lock();
        change(&mut settings);
        self.repeats.set_own(settings.own.level());
        if let Err(error) = self.handle.reload(settings.filter()) {
            // The log is gone, which it never is while the process runs.
            tracing::error!(%error, "the level of the log cannot change");
        }
    }
}

impl LogSettings {
    fn level(self) -> Level {
        level(self.base, self.verbosity)
    }
}

impl InForce {
    fn filter(self) -> LevelFilter {
        LevelFilter::from_level(level(self.own.base, self.verbosity))
    }
}

/// What is logged with a verbosity: 0 the base, 1 debug, 2 and more trace.
fn level(base: Level, verbosity: u32) -> Level {
    let by_verbosity = match verbosity {
        0 => base,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    // More verbose levels are greater.
    base.max(by_verbosity)
}

/// Counts lines that were left out.
#[derive(Clone, Debug)]
pub struct LeftOut {
    queue: ErrorCounter,
    repeats: Repeats,
}

impl LeftOut {
    /// Lines dropped because the queue was full, and lines left out because their like had been written often.
    pub fn now(&self) -> (u64, u64) {
        (self.queue.dropped_lines() as u64, self.repeats.left_out())
    }
}

/// The log as parts of the process see it: they change its level and tell what it left out.
#[derive(Clone, Debug)]
pub struct LogHandle {
    /// To change its level.
    pub level: LogLevel,
    /// What it did not write.
    pub left_out: LeftOut,
}

/// The log of this process.
#[derive(Debug)]
pub struct Log {
    /// For parts of the process.
    pub handle: LogHandle,
    /// Writes what is queued when dropped, if that is taken within a second.
    _writer: WorkerGuard,
}

/// Starts the log of this process. A panic goes there as well, so that no thread waits for standard error.
///
/// # Errors
/// If it was started before.
pub fn start(settings: LogSettings) -> anyhow::Result<Log> {
    let in_force = InForce { own: settings, verbosity: settings.verbosity };
    let (level, handle) = reload::Layer::new(in_force.filter());
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE_LINES).thread_name("log").finish(stderr());
    let queue = writer.error_counter();
    let repeats = Repeats::start()?;
    repeats.set_own(settings.level());
    let lines = match settings.format {
        LogFormat::Json => fmt::layer().json().flatten_event(true).with_writer(writer).boxed(),
        LogFormat::Text => {
            fmt::layer().with_target(false).with_ansi(stderr().is_terminal()).with_writer(writer).boxed()
        }
    };
    tracing_subscriber::registry().with(level).with(lines.with_filter(repeats.clone())).try_init()?;
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(thread = thread.name().unwrap_or("unnamed"), "{panic}\n{backtrace}");
    }));
    let level = LogLevel { handle, settings: Arc::new(Mutex::new(in_force)), repeats: repeats.clone() };
    Ok(Log { handle: LogHandle { level, left_out: LeftOut { queue, repeats } }, _writer: guard })
}
