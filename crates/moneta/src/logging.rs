//! The log: structured, on standard error, as text or as one JSON object a line; its level can change while running.

use std::io::{IsTerminal, stderr};

use tracing::Level;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt};

use crate::options::settings::LogSettings;

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

/// Starts the log of this process.
///
/// # Errors
/// If it was started before.
pub fn start(settings: LogSettings) -> anyhow::Result<LogLevel> {
    let (level, handle) = reload::Layer::new(LevelFilter::from_level(settings.level));
    let lines = if settings.json {
        fmt::layer().json().flatten_event(true).with_writer(stderr).boxed()
    } else {
        fmt::layer().with_target(false).with_ansi(stderr().is_terminal()).with_writer(stderr).boxed()
    };
    tracing_subscriber::registry().with(level).with(lines).try_init()?;
    Ok(LogLevel(handle))
}
