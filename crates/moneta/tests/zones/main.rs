//! A cluster of three zones in network namespaces, under load, while its parts fail: each node killed in turn, a zone cut off, a
//! node replaced by an empty one. What clients see, second by second, and what the copies hold at rest.
//!
//! `make test-zones` runs it; `MONETA_ZONES=long` with longer pauses, and `MONETA_ZONES_PLOT=FILE` writes a plot by second;
//! docs/zones.md has both. It needs network namespaces: root, or a system that lets users have theirs.

mod clients;
#[path = "../common/mod.rs"]
mod common;
mod fleet;
mod hostile;
mod network;
mod rest;
mod table;

use std::time::{Duration, Instant};

use clients::Clients;
use fleet::Fleet;
use network::Network;
use table::Phases;

/// How long each phase takes.
struct Lengths {
    calm: Duration,
    /// A node is gone.
    gone: Duration,
    /// A node is back.
    back: Duration,
    /// A zone is cut off.
    cut: Duration,
    /// Nodes that are killed.
    kills: usize,
}

impl Lengths {
    fn new(long: bool) -> Self {
        let seconds = |short, of_long| Duration::from_secs(if long { of_long } else { short });
        let kills = if long { 6 } else { 2 };
        Self { calm: seconds(3, 10), gone: seconds(2, 5), back: seconds(4, 10), cut: seconds(5, 30), kills }
    }
}

#[test]
#[ignore = "takes a minute and needs network namespaces: make test-zones"]
fn a_cluster_loses_nodes_and_a_zone_and_is_whole_again() {
    if !network::is_possible() {
        network::in_own_namespace();
        return;
    }
    let long = std::env::var("MONETA_ZONES").is_ok_and(|value| value == "long");
    let lengths = Lengths::new(long);
    let network = Network::new(&fleet::ZONES);
    network.enter_hub();
    let mut fleet = Fleet::start(&network);
    let clients = Clients::start(&network, &fleet.proxies());
    let mut phases = Phases::new();
    phases.run("calm", lengths.calm);
    for node in (0..lengths.kills).map(|number| if long { number } else { number * 3 }) {
        let name = fleet.name(node);
        fleet.kill(node);
        phases.run(&format!("{name} is killed"), lengths.gone);
        fleet.bring_back(node);
        phases.run(&format!("{name} is back"), lengths.back);
    }
    network.cut("c", true);
    phases.run("zone c is cut off", lengths.cut);
    network.cut("c", false);
    phases.run("zone c is back", lengths.back);
    network.cut("a", true);
    phases.run("zone a, with clients, is cut off", lengths.cut);
    network.cut("a", false);
    phases.run("zone a is back", lengths.back);
    fleet.replace(2);
    phases.run("b0 is replaced by an empty node", lengths.back);
    phases.run("calm again", lengths.calm);

    let seen = clients.stop();
    table::print(&phases, &seen);
    fleet.settle();
    let missing = rest::compare(&fleet, &seen);
    for row in phases.rows(&seen) {
        assert_eq!(row.old, 0, "{}: clients were shown old values: {:?}", row.phase, seen.told);
    }
    assert!(
        missing.is_empty(),
        "{} acknowledged writes are not in all zones: {:?}",
        missing.len(),
        &missing[..missing.len().min(5)]
    );
    let last = phases.rows(&seen).pop().expect("a phase");
    assert!(last.errors == 0 && last.hits > 0.99, "calm again: {last:?}");
    fleet.verify();
}

/// Waits until something holds.
fn until(what: &str, holds: impl Fn() -> bool) {
    let from = Instant::now();
    while !holds() {
        assert!(from.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}
