//! A real memcached as the upper of two tiers, items cut into entries: whatever protocol it speaks, however small its memory,
//! and even if it is killed in the middle, nothing shows that it is there.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::flash::flash;
use common::{Memcached, config};
use moneta_client::wire::Protocol;
use moneta_flash::Flash;
use moneta_layers::{Chunked, ChunkedConfig, Promotion, Tiered, TieredConfig};
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::{Clock, Store};
use moneta_testkit::suite::{self, Options, SuiteConfig};

const CUT: ChunkedConfig = ChunkedConfig { piece_bytes: 3000, whole_max: 2000, item_max: 100 << 10 };

/// An upper tier in a memcached over an SSD that has everything.
fn tiered(remote: RemoteConfig, limits: SuiteConfig, clock: &Arc<Clock>) -> Tiered<Chunked<Remote>, Flash> {
    let lower = flash(Arc::clone(clock));
    let remote = RemoteConfig { item_max: 4 << 10, seed: lower.seed(), ..remote };
    let upper = Remote::new(remote, Arc::clone(clock)).expect("the configuration makes sense");
    let upper = Chunked::new(upper, ChunkedConfig { item_max: limits.value_max, ..CUT }, Arc::clone(clock));
    let config =
        TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: limits.value_max, cluster: false };
    Tiered::new(upper, lower, config, Arc::clone(clock))
}

#[test]
fn nothing_shows_of_it_over_any_protocol() {
    let options =
        Options::exact().config(SuiteConfig { memory: 256 << 20, value_max: 100 << 10 }).versions_unknown().real_time();
    let options = options.last_access_slack(u32::MAX).fetched_slack().counts_parts().items_estimated().expiry_slack(60);
    for protocol in [Protocol::Meta, Protocol::Binary, Protocol::Text] {
        // Little memory: pieces are evicted at any time.
        let memcached = Memcached::start(&["-m", "2"]);
        let options = if protocol == Protocol::Text { options.plain_keys() } else { options };
        let remote = RemoteConfig { protocol: Some(protocol), ..config(memcached.path()) };
        suite::run(|limits, clock| tiered(remote.clone(), limits, &clock), options.rounds(2).operations(1000));
    }
}

#[test]
fn nothing_is_lost_when_it_is_killed_and_comes_back_empty() {
    let mut memcached = Memcached::start(&[]);
    let path = memcached.path().to_owned();
    let over_it = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over_it.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(200));
                memcached.kill();
                std::thread::sleep(Duration::from_millis(50));
                memcached.run();
            }
        });
        let make = |limits: SuiteConfig, clock: Arc<Clock>| {
            let remote = RemoteConfig {
                backoff_min: Duration::from_millis(1),
                backoff_max: Duration::from_millis(10),
                ..config(&path)
            };
            tiered(remote, limits, &clock)
        };
        let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| suite::concurrent(make, 4, 1)));
        over_it.store(true, Ordering::Relaxed);
        ran.unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}
