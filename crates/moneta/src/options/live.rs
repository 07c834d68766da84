//! Options that change at run time: their declarations name a subscriber, which SIGHUP calls.
//!
//! A reload prepares all effects before it applies the first, so that what is refused changes nothing.

use std::sync::Arc;

use moneta_server::node::Node;

use crate::logging::LogLevel;

/// When a changed value takes effect.
pub enum Reload<T> {
    /// After a restart.
    Restart,
    /// On SIGHUP, by this function.
    Live(Subscriber<T>),
}

/// Prepares a change of an option: reads and checks what it needs, and changes nothing yet. Each reload calls it, also where the
/// value is the same, since a file that the value names may have changed.
///
/// # Errors
/// If the value cannot be had; the whole reload is refused.
pub type Subscriber<T> = fn(Change<T>) -> anyhow::Result<Effect>;

/// The value of an option in force, and the one that is wanted.
pub struct Change<T> {
    /// In force.
    pub from: T,
    /// Wanted; it may be the same.
    pub to: T,
}

/// What comes of a prepared change.
pub enum Effect {
    /// Puts the value into effect.
    Now(Apply),
    /// This change takes a restart.
    AfterRestart,
}

/// Puts a value into effect.
pub type Apply = Box<dyn FnOnce(&Running) -> anyhow::Result<()>>;

impl Effect {
    /// The effect that `apply` has.
    pub fn now(apply: impl FnOnce(&Running) -> anyhow::Result<()> + 'static) -> anyhow::Result<Self> {
        Ok(Self::Now(Box::new(apply)))
    }
}

/// The parts of a running node that subscribers change.
pub struct Running {
    /// What sessions share.
    pub node: Arc<Node>,
    /// The level of the log.
    pub log_level: LogLevel,
    /// Gives the store another limit on memory, bytes; false if it cannot take it.
    pub resize: Box<dyn Fn(u64) -> bool + Send + Sync>,
}
