//! Guards the signals of a node. Alone in its file: signals belong to the whole process.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use moneta_process::signals::Signals;
use moneta_server::Server;
use moneta_server::auth::Authenticator;
use moneta_server::node::{Node, NodeSettings};
use moneta_store::Clock;
use moneta_testkit::model::ModelStore;
use rustix::process::{Signal, getpid, kill_process};
use support::{config, eventually};

#[test]
fn a_hangup_reloads_and_a_termination_drains() {
    let clock = Arc::new(Clock::system());
    let store = ModelStore::new(Arc::clone(&clock), 1024);
    let node = Arc::new(Node::new(NodeSettings::default(), clock, Authenticator::off()));
    let reloads = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&reloads);
    let reload = move || {
        counted.fetch_add(1, Ordering::Relaxed);
    };
    let _signals = Signals::start(Arc::clone(&node.phases), reload).unwrap();
    let running = Server::start(&config(), Arc::new(store), node).unwrap();
    kill_process(getpid(), Signal::HUP).unwrap();
    eventually("it has reloaded", || reloads.load(Ordering::Relaxed) == 1);
    kill_process(getpid(), Signal::TERM).unwrap();
    running.join().unwrap();
}
