//! The suite of all stores over a Moneta in the same process, which goes by the suite's clock: every answer is exact.

mod common;

use std::sync::Arc;

use common::config;
use common::flash::flash;
use common::moneta::{Servers, memory};
use moneta_layers::{Promotion, Tiered, TieredConfig};
use moneta_memory::Memory;
use moneta_remote::{Remote, RemoteConfig};
use moneta_store::Clock;
use moneta_testkit::suite::{self, Options, SuiteConfig};

fn remote(path: &std::path::Path, item_max: usize, clock: Arc<Clock>) -> Remote {
    Remote::new(RemoteConfig { item_max, ..config(path) }, clock).expect("the configuration makes sense")
}

/// Numbers come without all of the item they are in.
fn options() -> Options {
    Options::exact().bare_numbers().versions_unknown()
}

#[test]
fn a_server_in_ram_does_what_the_model_does() {
    let servers = Servers::default();
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let path = servers.serve(memory(config, Arc::clone(&clock)), config, Arc::clone(&clock));
        remote(&path, config.value_max, clock)
    };
    suite::run(make, options().rounds(6));
}

/// Values that are too large get as far as the server here.
#[test]
fn a_server_on_an_ssd_does_what_the_model_does() {
    let servers = Servers::default();
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let path = servers.serve(flash(Arc::clone(&clock)), config, Arc::clone(&clock));
        remote(&path, 2 * config.value_max, clock)
    };
    suite::run(make, options().last_access_slack(u32::MAX).rounds(4));
}

/// Far too little RAM over a server that loses nothing.
fn tiered(config: SuiteConfig, path: &std::path::Path, clock: Arc<Clock>) -> Tiered<Memory, Remote> {
    let upper = memory(config, Arc::clone(&clock));
    let lower = remote(path, config.value_max, Arc::clone(&clock));
    let between =
        TieredConfig { promotion: Promotion::Always, write_budget: None, item_max: config.value_max, cluster: false };
    Tiered::new(upper, lower, between, clock)
}

#[test]
fn nothing_shows_of_ram_over_a_server_on_an_ssd() {
    let servers = Servers::default();
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let path = servers.serve(flash(Arc::clone(&clock)), config, Arc::clone(&clock));
        tiered(config, &path, clock)
    };
    let small = SuiteConfig { memory: 4 << 20, value_max: 64 << 10 };
    let options =
        Options::exact().config(small).versions_unknown().keys(1000).last_access_slack(u32::MAX).fetched_slack();
    suite::run(make, options.rounds(4));
}

#[test]
fn threads_neither_lose_nor_tear() {
    let servers = Servers::default();
    let make = |config: SuiteConfig, clock: Arc<Clock>| {
        let path = servers.serve(memory(config, Arc::clone(&clock)), config, Arc::clone(&clock));
        remote(&path, config.value_max, clock)
    };
    suite::concurrent(make, 4, suite::seed());
}
