//! A process with an engine in it, killed at any instruction: what was promised is there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use moneta_embedded::testing::survives_kills;
use moneta_rocks::{Log, Rocks, RocksConfig};
use moneta_store::Clock;

fn open(folder: &Path, log: Log) -> Rocks {
    let config = RocksConfig {
        shards: 2,
        log,
        flush_interval: Duration::from_millis(50),
        read_threads: 2,
        ..RocksConfig::new(folder, 256 << 20)
    };
    Rocks::open(&config, Arc::new(Clock::system())).expect("the folder opens")
}

#[test]
fn without_a_log_what_was_flushed_is_kept() {
    let test = "without_a_log_what_was_flushed_is_kept";
    survives_kills(test, |folder| open(folder, Log::Off), 5, Some(64));
}

#[test]
fn with_a_log_every_answer_is_kept() {
    let test = "with_a_log_every_answer_is_kept";
    survives_kills(test, |folder| open(folder, Log::On), 5, None);
}
