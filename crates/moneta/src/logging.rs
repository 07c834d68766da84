//! The log: structured, on standard error, as text or as one JSON object a line; its level can change while running.
//!
//! Whoever logs never waits for who reads: lines go through a bounded queue to a thread that writes them, and what finds the
//! queue full is dropped and counted. Lines that repeat are bounded, too ([`repeats`]).

mod repeats;

use std::io::{IsTerminal, stderr};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::options::settings::LogSettings;
use repeats::Repeats;

/// Lines that wait for their reader at most: a few MiB.
const QUEUE_LINES: usize = 16 * 1024;

/// Changes the level of the log.
#[derive(Clone, Debug)]
pub struct LogLevel(Handle<LevelFilter, Registry>);

impl LogLevel {
    /// Logs `level` and everything graver from now on.
    ///
    /// # Errors
    /// If the log is gone, which it never is while the process runs.
    pub fn set(&self, level: Level) -> anyhow::Result<()> {
        Ok(self.0.reload(LevelFilter::from_level(level))?)
    }
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

/// The log of this process.
#[derive(Debug)]
pub struct Log {
    /// To change its level.
    pub level: LogLevel,
    /// What it did not write.
    pub left_out: LeftOut,
    /// Writes what is queued when dropped, if that is taken within a second.
    _writer: WorkerGuard,
}

/// Starts the log of this process. A panic goes there as well, so that no thread waits for standard error.
///
/// # Errors
/// If it was started before.
pub fn start(settings: LogSettings) -> anyhow::Result<Log> {
    let (level, handle) = reload::Layer::new(LevelFilter::from_level(settings.level));
    let (writer, guard) =
        NonBlockingBuilder::default().lossy(true).buffered_lines_limit(QUEUE_LINES).thread_name("log").finish(stderr());
    let queue = writer.error_counter();
    let repeats = Repeats::start()?;
    let lines = if settings.json {
        fmt::layer().json().flatten_event(true).with_writer(writer).boxed()
    } else {
        fmt::layer().with_target(false).with_ansi(stderr().is_terminal()).with_writer(writer).boxed()
    };
    tracing_subscriber::registry().with(level).with(lines.with_filter(repeats.clone())).try_init()?;
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let backtrace = std::backtrace::Backtrace::capture();
        tracing::error!(thread = thread.name().unwrap_or("unnamed"), "{panic}\n{backtrace}");
    }));
    Ok(Log { level: LogLevel(handle), left_out: LeftOut { queue, repeats }, _writer: guard })
}
