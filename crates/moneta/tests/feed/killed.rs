//! The node that is read, the one that is written to and the reader between them, killed at random points. The failure to guard
//! against is silent: a change that a cursor passes over, or that the other node lost and is not told again.

use std::thread;
use std::time::Duration;

use fastrand::Rng;

use crate::common::clock::Clocks;
use crate::common::{Node, Process, moneta, steady_port};
use crate::{ends_alike, feed_to, some_writes};

/// Kills of each run.
const KILLS: u32 = 9;

#[test]
fn both_nodes_end_alike_whichever_of_the_three_is_killed() {
    let seed = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let admin = format!("127.0.0.1:{}", steady_port());
    let port = steady_port().to_string();
    let (source_tier, target_tier) = (format!("{}:200m", path("source")), format!("{}:200m", path("target")));
    let socket = path("socket");
    // What its clients were told is there after a kill.
    let start_source = || {
        let is = [
            "serve",
            "-p",
            &port,
            "--admin",
            &admin,
            "--cluster",
            "--writer-id",
            "1",
            "--threads",
            "1",
            "--flash",
            &source_tier,
        ];
        Node::run(&mut moneta(&[&is[..], &["--flash-durability", "every-write"]].concat()))
    };
    // This one loses what it took last.
    let start_target = || {
        let listens = ["serve", "-p", "0", "--listen", "127.0.0.1", "--unix-socket", &socket, "--admin", "off"];
        let is = ["--cluster", "--writer-id", "2", "--threads", "1", "--flash", &target_tier];
        Node::run(&mut moneta(&[&listens[..], &is].concat()))
    };
    let start_reader = || feed_to(&admin, &socket, &folder.path().join("cursor"));
    let (mut source, mut target, mut reader) = (Some(start_source()), Some(start_target()), Some(start_reader()));
    for kill in 0..KILLS {
        for _ in 0..rng.u32(10..60) {
            source.as_ref().expect("it runs").exchange(&some_writes(&mut rng));
        }
        thread::sleep(Duration::from_millis(rng.u64(0..300)));
        // Dropped, they are killed. Each comes first in some order.
        let away = Duration::from_millis(rng.u64(0..300));
        match (kill + rng.u32(0..2)) % 4 {
            0 => drop(source.take()),
            1 => drop(target.take()),
            2 => drop(reader.take()),
            _ => drop((target.take(), reader.take())),
        }
        thread::sleep(away);
        target = Some(target.take().unwrap_or_else(start_target));
        source = Some(source.take().unwrap_or_else(start_source));
        reader = Some(reader.take().unwrap_or_else(start_reader));
    }
    ends_alike(source.as_ref().expect("it runs"), target.as_ref().expect("it runs"));
}

#[test]
fn a_node_that_is_killed_while_nothing_changes_is_told_again_what_it_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (admin, socket, tier) =
        (format!("127.0.0.1:{}", steady_port()), path("socket"), format!("{}:200m", path("target")));
    let source = Node::run(&mut moneta(&["serve", "-p", "0", "--admin", &admin, "--cluster"]));
    let start_target = || {
        let listens = ["serve", "-p", "0", "--listen", "127.0.0.1", "--unix-socket", &socket, "--admin", "off"];
        Node::run(&mut moneta(&[&listens[..], &["--cluster", "--flash", &tier]].concat()))
    };
    let target = start_target();
    let _reader = feed_to(&admin, &socket, &folder.path().join("cursor"));
    source.exchange(&some_writes(&mut Rng::with_seed(1)).repeat(3));
    // At once: what it took is in its memory alone.
    ends_alike(&source, &target);
    drop(target);
    ends_alike(&source, &start_target());
}

/// What a node loses it took in a few seconds of its own, and of the source's time these are hours where a reader catches up.
#[test]
fn a_node_that_is_killed_while_it_catches_up_is_told_again_all_that_it_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name).display().to_string();
    let clocks = Clocks::new(folder.path());
    let (admin, socket, tier) =
        (format!("127.0.0.1:{}", steady_port()), path("socket"), format!("{}:200m", path("target")));
    let source =
        Node::run(clocks.of(&mut moneta(&["serve", "-p", "0", "--admin", &admin, "--cluster", "--writer-id", "1"]), 0));
    let mut rng = Rng::with_seed(2);
    for _ in 0..6 {
        source.exchange(&some_writes(&mut rng));
        clocks.pass(300);
    }
    source.exchange(&some_writes(&mut rng));
    let start_target = || {
        let listens = ["serve", "-p", "0", "--listen", "127.0.0.1", "--unix-socket", &socket, "--admin", "off"];
        let is = ["--cluster", "--writer-id", "2", "--flash", &tier, "--flash-flush-interval", "60s"];
        Node::run(clocks.of(&mut moneta(&[&listens[..], &is].concat()), 0))
    };
    let target = start_target();
    let cursor = folder.path().join("cursor");
    let into = ["feed", &admin, "--into", &socket, "--from", "1h", "--cursor-file", cursor.to_str().expect("plain")];
    let start = || Process::start(clocks.of(&mut moneta(&into), 0));
    let reader = start();
    ends_alike(&source, &target);
    drop(target);
    let target = start_target();
    ends_alike(&source, &target);
    // Nor is it in the cursor file as done.
    drop((target, reader));
    let _reader = start();
    ends_alike(&source, &start_target());
}
