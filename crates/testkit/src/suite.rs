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
mod options;
mod pair;
mod restarting;
mod runner;
mod running;
mod shrink;
mod versions;
mod walking;

pub use concurrent::concurrent;
pub use operation::{CasChoice, Operation, Payload};
pub use options::{Mode, Options, SuiteConfig};
pub use restarting::{Restarting, run_restarting};
pub use running::{Failure, find_failure, run, run_polled, seed};
pub use versions::versions;

/// The tests that every store with ample memory passes, as two test functions: what it does is what the model does, and four
/// threads at once lose and tear nothing. `$make` makes a store from a [`SuiteConfig`] and an `Arc` of a
/// [`Clock`](moneta_store::Clock); it may be a closure that captures nothing. Stores that are short of memory, restart, or make
/// progress only in an event loop call [`run`], [`run_restarting`] and [`run_polled`] beside it.
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
