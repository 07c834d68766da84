//! Runs sequences on a store and on the model, and shrinks what differs.

use std::fmt;
use std::sync::Arc;

use moneta_store::{Clock, Store};

use super::operation::Operation;
use super::options::{Options, START, SuiteConfig};
use super::{generate, runner, shrink};

/// The seed of this run, for tests that leave something to chance: from the environment's `MONETA_SEED`, else from the system.
/// Prints it, in the form in which it is taken.
pub fn seed() -> u64 {
    let given = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    seed
}

/// How a store differs from the model.
#[derive(Debug)]
pub struct Failure {
    /// Seed of the sequence.
    pub seed: u64,
    /// The operations that lead to the difference, shrunk; the last one shows it.
    pub operations: Vec<Operation>,
    /// The difference, in words.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(out, "the store differs from the model (MONETA_SEED={} runs it again):", self.seed)?;
        for (number, operation) in self.operations.iter().enumerate() {
            writeln!(out, "{:4}. {operation}", number + 1)?;
        }
        write!(out, "      {}", self.reason)
    }
}

/// Runs the suite on stores that `make` makes, one for each sequence.
///
/// The seed comes from the environment's `MONETA_SEED`, else from the system; it is printed.
///
/// # Panics
/// If a store differs from the model; the message holds the shrunk sequence and its seed.
pub fn run<S: Store>(make: impl Fn(SuiteConfig, Arc<Clock>) -> S, options: Options) {
    run_polled(make, |_| std::thread::park(), options);
}

/// As [`run`], for a store that makes progress only when its event loop is turned: `idle` is called each time a
/// future is pending, and returns when it is worth polling again.
///
/// # Panics
/// As [`run`].
pub fn run_polled<S: Store>(make: impl Fn(SuiteConfig, Arc<Clock>) -> S, idle: impl Fn(&S), options: Options) {
    run_with(make, idle, never_restarts, options);
}

/// What restarts a store in a sequence without restarts.
fn never_restarts<S>(_: &S, _: bool) {
    unreachable!("restarts are not among the operations");
}

pub(super) fn run_with<S: Store>(
    make: impl Fn(SuiteConfig, Arc<Clock>) -> S,
    idle: impl Fn(&S),
    restart: impl Fn(&S, bool),
    options: Options,
) {
    let first = seed();
    for round in 0..u64::from(options.rounds) {
        let seed = first.wrapping_add(round);
        if let Some(failure) = find_with(&make, &idle, &restart, options, seed) {
            panic!("{failure}");
        }
    }
}

/// Runs one sequence, and shrinks it if it shows a difference.
pub fn find_failure<S: Store>(
    make: impl Fn(SuiteConfig, Arc<Clock>) -> S,
    idle: impl Fn(&S),
    options: Options,
    seed: u64,
) -> Option<Failure> {
    find_with(make, idle, never_restarts, options, seed)
}

fn find_with<S: Store>(
    make: impl Fn(SuiteConfig, Arc<Clock>) -> S,
    idle: impl Fn(&S),
    restart: impl Fn(&S, bool),
    options: Options,
    seed: u64,
) -> Option<Failure> {
    let sequence = generate::sequence(options, seed);
    let attempt = |operations: &[Operation]| {
        let clock = Arc::new(if options.real_time { Clock::system() } else { Clock::manual(START) });
        let store = make(options.config, Arc::clone(&clock));
        runner::run(&store, &idle, &restart, clock, &sequence.keys, operations, options)
    };
    let difference = attempt(&sequence.operations)?;
    println!("after {} operations: {}; looking for a shorter way there", difference.index + 1, difference.reason);
    let (operations, reason) = shrink::shrink(sequence.operations.clone(), difference, attempt);
    Some(Failure { seed, operations, reason })
}
