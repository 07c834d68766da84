//! What is run, and what is counted of it.

use std::path::PathBuf;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// How many registrations are measured.
pub(super) const REGISTRATIONS: usize = 10_000;

/// What is run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The program.
    pub moneta: PathBuf,
    /// Further options of `moneta control`; none: its ledger is in a new folder.
    pub options: Vec<String>,
    /// The CPUs of the control plane; none: any.
    pub server_cpus: Vec<usize>,
    /// Instances.
    pub instances: usize,
    /// How often each renews.
    pub period: Duration,
    /// Apps.
    pub apps: usize,
    /// Readers of feeds; half of them are measured.
    pub feeds: usize,
    /// Changes a second.
    pub changes: u64,
    /// How long it is looked at at rest.
    pub rest: Duration,
    /// How long changes are made.
    pub seconds: Duration,
}

/// What was spent in a time.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// CPU of the control plane.
    pub cpu: Duration,
    /// By the wall.
    pub time: Duration,
    /// Resident memory at its end, in bytes.
    pub resident: u64,
    /// The most until then, in bytes.
    pub peak: u64,
}

impl Spent {
    /// The share of one core.
    pub fn share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.time.as_secs_f64()
    }
}

/// Requests that are made at a pace.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Answered.
    pub(super) answered: AtomicU64,
    /// Of these, after more than a second.
    pub(super) late: AtomicU64,
    /// Not answered, or refused.
    pub(super) failures: AtomicU64,
}

/// How long something took.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    /// How much of it.
    pub count: usize,
    /// By the wall.
    pub took: Duration,
    /// CPU of the control plane.
    pub cpu: Duration,
}
