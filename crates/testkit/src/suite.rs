//! One suite for every store: random operations on it and on the model, side by side, until they differ.
//!
//! A store that is given ample memory must do exactly what the model does ([`Mode::Exact`]); one that is short of it may
//! forget, but never err ([`Mode::Lossy`]). What differs is shrunk to few operations and printed. [`concurrent()`] checks
//! what only several threads at once can break.
//!
//! What is compared, after every operation on a key and again by a peek: the outcome, the value and all of
//! [`moneta_store::ItemMeta`]. Four things are compared by what they promise rather than for equality:
//!
//! - CAS values: a client's own are taken as they are; those a store picks, below 2^63, stay the same for a version and
//!   grow from one version of a key to the next, whatever happened to it in between;
//! - a miss may say `expired` only where the model has an expired item, or had one before a restart, but need not;
//! - a walk shows every live item once that was not changed meanwhile, and no expired one;
//! - the gauge of items lies between what a walk shows and that plus the keys whose item died by time or flush and was not
//!   replaced; that of a store of two tiers, which is of its RAM, is not more than that. `bytes`, and index, logs and ghosts
//!   together, stay within the limit where the store has one.
//!
//! An engine that restarts and runs short of room takes `crates/lmdb/tests/model.rs` as it is and changes the names. It wants
//!
//! 1. [`run_restarting`] with ample room: everything as the model, over clean stops and kills;
//! 2. the same with too little room and [`Options::lossy`]: may forget, never errs, and what it forgot does not come back;
//! 3. [`concurrent()`]: four threads that would notice a lost or torn update;
//! 4. the same under RAM, in two tiers;
//! 5. a process that is really killed (`moneta_embedded::testing::survives_kills`);
//! 6. each of these seen to fail: break the engine on purpose and watch.
//!
//! What goes wrong: an older version lies in a file, page or log that outlives the newer one; a batch that is tried again counts
//! an `incr` twice; a touch carries an item over a flush; CAS values of lost writes were given out too, so a floor is written
//! ahead of them; a full library needs room to free room; after a failed set the old value is still there. `Unavailable` as an
//! error's kind says that the engine keeps note of every key whose change it missed; one that does not says `Device`. A library
//! that only estimates its items sets [`Options::items_estimated`].
//!
//! ```
//! use moneta_testkit::model::ModelStore;
//! use moneta_testkit::suite::{self, Options};
//!
//! suite::run(|config, clock| ModelStore::new(clock, config.value_max), Options::exact().operations(200));
//! ```

mod call;
mod cas_book;
mod compare;
mod concurrent;
mod generate;
mod operation;
mod pair;
mod restarting;
mod runner;
mod shrink;
mod versions;
mod walking;

use std::fmt;
use std::sync::Arc;

pub use concurrent::concurrent;
use moneta_store::{Clock, Store};
pub use operation::{CasChoice, Operation, Payload};
pub use restarting::{Restarting, run_restarting};
pub use versions::versions;

/// The second at which every run begins.
const START: u32 = 1_700_000_000;

/// What a store under test is to be made with.
#[derive(Clone, Copy, Debug)]
pub struct SuiteConfig {
    /// Limit on all memory of the store, in bytes.
    pub memory: u64,
    /// Longest value it takes, in bytes of the value alone; longer ones are [`moneta_store::Written::TooLarge`].
    pub value_max: usize,
}

/// Whether a store may forget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Memory is ample: every answer equals the model's, and a walk shows exactly the live items.
    Exact,
    /// Memory is short: an item may be gone at any time, and then the store answers as if it had never been. What it does
    /// show is the newest version of that key, never one that was overwritten, deleted, flushed or evicted before. Of what
    /// was just stored it must hold at least half.
    Lossy,
}

/// How to run the suite.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    mode: Mode,
    config: SuiteConfig,
    rounds: u32,
    operations: usize,
    keys: usize,
    keys_per_hash: usize,
    last_access_slack: u32,
    fetched_slack: bool,
    counts_parts: bool,
    items_estimated: bool,
    asks: fn(&Operation) -> bool,
    real_time: bool,
    plain_keys: bool,
    expiry_slack: u32,
    bare_numbers: bool,
    bare_items: bool,
    restarts: bool,
    versions_unknown: bool,
    counted: bool,
}

impl Options {
    /// For a store with 256 MiB, which is more than the suite ever stores at once, and values of up to 1 MiB.
    pub fn exact() -> Self {
        Self {
            mode: Mode::Exact,
            config: SuiteConfig { memory: 256 << 20, value_max: 1 << 20 },
            rounds: 20,
            operations: 2000,
            keys: 300,
            keys_per_hash: 1,
            last_access_slack: 0,
            fetched_slack: false,
            counts_parts: false,
            items_estimated: false,
            asks: |_| true,
            real_time: false,
            plain_keys: false,
            expiry_slack: 0,
            bare_numbers: false,
            bare_items: false,
            restarts: false,
            versions_unknown: false,
            counted: false,
        }
    }

    /// For a store with 4 MiB, which a few hundred keys overflow, and values of up to 64 KiB.
    pub fn lossy() -> Self {
        Self {
            mode: Mode::Lossy,
            config: SuiteConfig { memory: 4 << 20, value_max: 64 << 10 },
            keys: 1000,
            operations: 6000,
            ..Self::exact()
        }
    }

    /// Gives the store other limits.
    #[must_use]
    pub fn config(self, config: SuiteConfig) -> Self {
        Self { config, ..self }
    }

    /// How many sequences to try, each on a new store; 20 by default.
    #[must_use]
    pub fn rounds(self, rounds: u32) -> Self {
        Self { rounds, ..self }
    }

    /// How many operations a sequence has; 2000 unless told, 6000 in lossy mode: enough to overflow its 4 MiB.
    #[must_use]
    pub fn operations(self, operations: usize) -> Self {
        Self { operations, ..self }
    }

    /// The most keys a sequence uses, at least 1; many sequences use far fewer. 300 unless told, 1000 in lossy mode.
    #[must_use]
    pub fn keys(self, keys: usize) -> Self {
        Self { keys, ..self }
    }

    /// How many keys share each 64-bit hash, at least 1, which is the default and means their true hashes. For a store
    /// that takes [`moneta_store::Key::hash`] as it comes, 3 shows that it tells keys apart by their bytes.
    #[must_use]
    pub fn keys_per_hash(self, keys_per_hash: usize) -> Self {
        Self { keys_per_hash, ..self }
    }

    /// By how many seconds a store's last access may differ from the true one; 0 unless told. For engines that write it
    /// down only now and then, or take the time of a write for it.
    #[must_use]
    pub fn last_access_slack(self, seconds: u32) -> Self {
        Self { last_access_slack: seconds, ..self }
    }

    /// Lets a store say of an item that was read that it was not. For tiers that do not hear of every read.
    #[must_use]
    pub fn fetched_slack(self) -> Self {
        Self { fetched_slack: true, ..self }
    }

    /// Leaves out operations that `asks` does not hold for. For stores that cannot do everything.
    #[must_use]
    pub fn asks(self, asks: fn(&Operation) -> bool) -> Self {
        Self { asks, ..self }
    }

    /// Runs by the system's clock: time passes by itself, nothing expires but what is dead at once, and flushes are not
    /// delayed. For stores whose clock is beyond the suite's reach; they need slack in what they say of times.
    #[must_use]
    pub fn real_time(self) -> Self {
        Self { real_time: true, ..self }
    }

    /// Uses keys of printable ASCII only.
    #[must_use]
    pub fn plain_keys(self) -> Self {
        Self { plain_keys: true, ..self }
    }

    /// By how many seconds a store's expiration times may differ from the true ones; 0 unless told. For stores that go by
    /// another clock.
    #[must_use]
    pub fn expiry_slack(self, seconds: u32) -> Self {
        Self { expiry_slack: seconds, ..self }
    }

    /// Compares of the item that a number is in nothing but CAS value and expiration times. For stores behind protocols that
    /// tell no more.
    #[must_use]
    pub fn bare_numbers(self) -> Self {
        Self { bare_numbers: true, ..self }
    }

    /// Compares of items nothing but value, flags and CAS value, and lets writes leave their CAS value at 0. For stores behind
    /// protocols that tell no more.
    #[must_use]
    pub fn bare_items(self) -> Self {
        Self { bare_items: true, bare_numbers: true, ..self }
    }

    /// Lets a store take CAS values that clients chose for versions. For stores behind protocols that do not tell.
    #[must_use]
    pub fn versions_unknown(self) -> Self {
        Self { versions_unknown: true, ..self }
    }

    /// Has a store count its CAS values, near to 0.
    #[must_use]
    pub fn counted(self) -> Self {
        Self { counted: true, versions_unknown: true, ..self }
    }

    /// Takes any gauge of items. For engines on libraries that count versions and not keys.
    #[must_use]
    pub fn items_estimated(self) -> Self {
        Self { items_estimated: true, ..self }
    }

    /// Lets a store's gauge of items be larger than there are items. For those that count an item's parts.
    #[must_use]
    pub fn counts_parts(self) -> Self {
        Self { counts_parts: true, ..self }
    }
}

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

/// The tests that every store with ample memory passes, as two test functions: what it does is what the model does, and four
/// threads at once lose and tear nothing. `$make` makes a store from a [`SuiteConfig`] and an `Arc` of a [`Clock`]; it may be
/// a closure that captures nothing. Stores that are short of memory, restart, or make progress only in an event loop call
/// [`run`], [`run_restarting`] and [`run_polled`] beside it.
#[macro_export]
macro_rules! store_conformance {
    ($make:expr) => {
        #[test]
        fn does_what_the_model_does() {
            $crate::suite::run($make, $crate::suite::Options::exact());
        }

        #[test]
        fn threads_at_once_lose_and_tear_nothing() {
            $crate::suite::concurrent($make, 4, $crate::suite::seed());
        }
    };
}

/// What restarts a store in a sequence without restarts.
fn never_restarts<S>(_: &S, _: bool) {
    unreachable!("restarts are not among the operations");
}

fn run_with<S: Store>(
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
