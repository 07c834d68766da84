//! A part of a process as its runner sees it.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use crate::supervisor::Pulse;

/// Why a part has ended.
pub type Failure = Box<dyn Error + Send + Sync>;

/// What returns when a part has ended.
pub type Ending = Box<dyn FnOnce() -> Result<(), Failure> + Send>;

/// A part that runs: a server, a store, what reads a feed. It was given what it works with when it was made.
pub trait Part: Send {
    /// Its name, a word.
    fn name(&self) -> &'static str;

    /// What waits for its end, where it ends by itself: when the phases of the process say so, or as it failed. Asked once.
    fn ending(&mut self) -> Option<Ending> {
        None
    }

    /// Whether it is alive, beyond having threads.
    fn pulse(&self) -> Option<Arc<dyn Pulse>> {
        None
    }

    /// Brings it to rest: what was accepted is to be there at the next start. Those that stand on it were closed before.
    fn close(self: Box<Self>);

    /// How long that may take; then the process ends without it.
    fn close_within(&self) -> Duration {
        Duration::from_secs(10)
    }
}

/// A part that only has an end.
pub(crate) struct Closing<F> {
    pub(crate) name: &'static str,
    pub(crate) within: Duration,
    pub(crate) close: F,
}

impl<F: FnOnce() + Send> Part for Closing<F> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn close(self: Box<Self>) {
        (self.close)();
    }

    fn close_within(&self) -> Duration {
        self.within
    }
}
