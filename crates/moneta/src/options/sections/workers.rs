//! Worker threads.

use std::time::Duration;

use moneta_options::declaration::Opt;
use moneta_options::kinds::numbers::Number;
use moneta_options::section;
use moneta_options::values::Values;
use moneta_server::config::ServerConfig;
use moneta_server::node::NodeSettings;

section! {
    "Workers";

    /// Worker threads.
    THREADS: Number<usize> = Opt::new("threads", Number { min: 1, max: 512 }, || 4)
        .short('t')
        .when("To the cores that the process may use.");

    /// Requests of one connection executed in a row before others get their turn.
    REQUESTS_PER_EVENT: Number<u32> = Opt::new("requests_per_event", Number { min: 1, max: 1_000_000 }, || 20)
        .short('R')
        .alias("max-reqs-per-event")
        .when("Lower if heavy pipelining delays others.");

    /// Microseconds for which an idle worker looks for requests before it sleeps.
    BUSY_POLL: Number<u32> = Opt::new("busy_poll", Number { min: 0, max: 10_000 }, || 0)
        .when(
            "On cores that have nothing else to do: somewhat more than the time between two requests of a worker. Its \
             core is then busy.",
        );
}

/// Tells the server how many workers it has, and how they share their time.
pub fn configure(options: &Values, server: &mut ServerConfig, node: &mut NodeSettings) {
    server.workers = options.get(&THREADS);
    node.threads = options.get(&THREADS);
    node.requests_per_event = options.get(&REQUESTS_PER_EVENT);
    server.busy_poll = Duration::from_micros(options.get(&BUSY_POLL).into());
}
