//! The suite of all stores on this one: random operations on it and on the model, side by side.

mod common;

use common::{Node, tier};
use moneta_store::suite::{self, Options};

/// Reads wait for threads here; the ring needs an event loop.
#[test]
fn does_what_the_model_does() {
    suite::run(|config, clock| tier(config, clock, |_| {}), options(Options::exact()));
}

#[test]
fn keeps_its_promises_among_threads() {
    suite::concurrent(|config, clock| tier(config, clock, |_| {}), 4, fastrand::u64(..));
}

/// Which of its reads were last is not written down.
fn options(options: Options) -> Options {
    options.last_access_slack(u32::MAX)
}

const _: fn(&Node) = |_| {};
