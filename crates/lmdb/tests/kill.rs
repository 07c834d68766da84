//! A process with an engine in it, killed at any instruction: what was answered is there.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use moneta_embedded::testing::survives_kills;
use moneta_lmdb::{Lmdb, LmdbConfig};
use moneta_store::Clock;

#[test]
fn every_answer_is_kept() {
    let open = |folder: &Path| {
        let config = LmdbConfig {
            flush_interval: Duration::from_millis(50),
            read_threads: 2,
            ..LmdbConfig::new(folder, 64 << 20)
        };
        Lmdb::open(&config, Arc::new(Clock::system())).expect("the folder opens")
    };
    survives_kills("every_answer_is_kept", open, 6, None);
}
