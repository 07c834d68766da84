//! Bad days: each who takes part in moving a node's items by files is killed at random, again and again, while the source changes. At the
//! end the target holds what the source does: nothing older, nothing deleted, every key.
//!
//! What is killed loses what it has in RAM alone, so the source has an SSD tier that syncs each write. The target's does not: what it
//! loses it has to be given again.

use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use fastrand::Rng;

use super::common::{Node, PATIENCE, Process, Signal, moneta};
use super::{send, text};

const KEYS: u32 = 800;

/// A node that is started again on its port, with its items.
struct Place {
    node: Option<Node>,
    port: u16,
    flash: String,
    writer: &'static str,
    durability: &'static str,
}

impl Place {
    fn new(folder: &Path, writer: &'static str, durability: &'static str) -> Self {
        let flash = format!("{}:200m", folder.join(format!("tier{writer}")).display());
        let mut place = Self { node: None, port: moneta_testkit::process::steady_port(), flash, writer, durability };
        place.start();
        place
    }

    fn start(&mut self) {
        let port = self.port.to_string();
        let own =
            ["serve", "-p", &port, "--admin", "127.0.0.1:0", "--cluster", "--writer-id", self.writer, "--threads", "1"];
        let tier = ["--flash", &self.flash, "--flash-durability", self.durability, "--max-clock-skew", "5s"];
        self.node = None;
        self.node = Some(Node::run(moneta(&own).args(tier)));
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Killed at once, and started again.
    fn kill(&mut self) {
        self.node().signal(Signal::SIGKILL);
        self.start();
    }
}

/// What a node holds of each key.
fn content(node: &Node) -> String {
    let asked: String = (0..KEYS).map(|key| format!("mg k{key} v f\r\n")).collect();
    node.exchange(&asked)
        .lines()
        .map(|line| line.trim_end_matches(" Z").trim_end_matches(" W").to_owned() + "\n")
        .collect()
}

fn some_writes(rng: &mut Rng) -> String {
    let write = |_| {
        let key = rng.u32(0..KEYS);
        match rng.u8(0..10) {
            0..6 => format!("set k{key} {} 0 5 noreply\r\n{:05}\r\n", rng.u16(..), rng.u16(..)),
            6..8 => format!("delete k{key} noreply\r\n"),
            8 => format!("set k{key} 0 1 1 noreply\r\nt\r\n"),
            _ => format!("append k{key} 0 0 1 noreply\r\n+\r\n"),
        }
    };
    (0..40).map(write).collect()
}

fn days(rounds: u32) {
    let seed =
        std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| fastrand::u64(..));
    println!("MONETA_SEED={seed}");
    let mut rng = Rng::with_seed(seed);
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let (mut source, mut target) =
        (Place::new(folder.path(), "1", "every-write"), Place::new(folder.path(), "2", "interval"));
    send(source.node().connect(), &super::sets(0..KEYS));
    let (from, to, archive, cursor) = (source.address(), target.address(), at("archive"), at("cursor"));
    std::fs::create_dir(&archive).expect("there is room");
    let dump = || {
        let pace = ["--rate", "2m", "--segment-size", "50k"];
        Process::start(moneta(&["dump", &from, "--into", text(&archive), "--follow"]).args(pace))
    };
    let populate = || {
        let is = ["populate", "--from", text(&archive), "--to", &to, "--follow", "--cursor-file", text(&cursor)];
        Process::start(&mut moneta(&is))
    };
    let (mut dumping, mut populating) = (dump(), populate());
    for _ in 0..rounds {
        send(source.node().connect(), some_writes(&mut rng).as_bytes());
        sleep(Duration::from_millis(rng.u64(0..600)));
        match rng.u8(0..4) {
            0 => source.kill(),
            1 => target.kill(),
            2 => {
                drop(dumping);
                dumping = dump();
            }
            _ => {
                drop(populating);
                populating = populate();
            }
        }
        // One that gave up while its server was away is started again, as its operator would.
        if dumping.has_ended() {
            dumping = dump();
        }
        if populating.has_ended() {
            populating = populate();
        }
    }
    send(source.node().connect(), some_writes(&mut rng).as_bytes());
    let begun = std::time::Instant::now();
    while content(source.node()) != content(target.node()) {
        assert!(
            begun.elapsed() < PATIENCE,
            "they differ; dump: {}; populate: {}",
            dumping.stderr(),
            populating.stderr()
        );
        for (process, again) in [(&mut dumping, &dump as &dyn Fn() -> Process), (&mut populating, &populate)] {
            if process.has_ended() {
                *process = again();
            }
        }
        sleep(Duration::from_millis(300));
    }
    assert!(content(source.node()).matches("VA ").count() > 100, "all is gone");
}

#[test]
fn source_target_dump_and_populate_are_killed_in_turns_and_the_target_ends_as_the_source() {
    days(8);
}

#[test]
#[ignore = "five minutes: make bulk-days"]
fn the_same_for_long() {
    days(300);
}
