//! A target on SSD that is killed loses what it took last, and goes on as if nothing were missing. The failure to guard against is
//! silent: a job that has ended, or goes on, and says that all is there.

use std::fs;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::common::{Node, PATIENCE, Process, Signal, moneta, steady_port};
use super::{items, node, run, send, sets, text, verify};

const KEYS: u32 = 2000;

/// A node whose last two seconds are in its memory alone.
struct Target {
    node: Option<Node>,
    port: String,
    flash: String,
}

impl Target {
    fn start(folder: &Path) -> Self {
        let flash = format!("{}:200m", folder.display());
        let mut target = Self { node: None, port: steady_port().to_string(), flash };
        target.start_again();
        target
    }

    fn start_again(&mut self) {
        let own =
            ["serve", "-p", &self.port, "--admin", "127.0.0.1:0", "--cluster", "--writer-id", "2", "--threads", "1"];
        self.node = None;
        self.node = Some(Node::run(moneta(&own).args(["--flash", &self.flash, "--flash-flush-interval", "2s"])));
    }

    fn kill(&mut self) {
        self.node().signal(Signal::SIGKILL);
        self.start_again();
    }

    fn node(&self) -> &Node {
        self.node.as_ref().expect("it runs")
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

#[test]
fn what_has_ended_is_there_after_a_kill_of_its_target() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let source = node("1", &[]);
    send(source.connect(), &sets(0..KEYS));
    let from = source.address().to_string();
    let (dump, backup, rows, checkpoint) = (at("dump"), at("backup"), at("rows.csv"), at("checkpoint"));
    run(&["dump", &from, "--into", text(&dump)]);
    run(&["backup", &from, "--into", text(&backup)]);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_millis().to_string();
    let lines = (0..KEYS).map(|key| format!("k{key},{key},{key:0100}\n")).collect::<String>();
    fs::write(&rows, format!("key,flags,value\n{lines}")).expect("there is room");
    for (name, job) in [
        ("copied", &["copy", "--from", &from][..]),
        ("listed", &["copy", "--walk", "--from", &from]),
        ("populated", &["populate", "--from", text(&dump)]),
        ("shared", &["populate", "--from", text(&dump), "--share", "all"]),
        ("restored", &["restore", "--from", text(&backup), "--at", &now, "--fill"]),
        (
            "loaded",
            &[
                "load",
                text(&rows),
                "--key",
                "key",
                "--value",
                "value",
                "--flags",
                "flags",
                "--checkpoint",
                text(&checkpoint),
            ],
        ),
    ] {
        let mut target = Target::start(&at(name));
        run(&[job, &["--to", &target.address()]].concat());
        target.kill();
        assert_eq!(items(target.node()), u64::from(KEYS), "{name}");
        verify(&from, &target.address());
    }
}

/// Waits until both hold the same.
fn alike(source: &Node, target: &Node, job: &Process) {
    let content = |node: &Node| node.exchange(&(0..KEYS).map(|key| format!("mg k{key} v f\r\n")).collect::<String>());
    let begun = Instant::now();
    while content(source) != content(target) {
        assert!(begun.elapsed() < PATIENCE, "they differ: {}", job.stderr());
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_target_that_is_killed_while_nothing_changes_is_given_again_what_it_lost() {
    let folder = tempfile::tempdir().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let source = node("1", &[]);
    send(source.connect(), &sets(0..KEYS / 2));
    let from = source.address().to_string();
    let (archive, cursor) = (at("archive"), at("cursor"));
    let _dump = Process::start(&mut moneta(&["dump", &from, "--into", text(&archive), "--follow"]));
    let mut keys = KEYS / 2;
    let mut change = || {
        send(source.connect(), &sets(keys..keys + 100));
        keys += 100;
    };
    for name in ["copied", "populated"] {
        let mut target = Target::start(&at(name));
        let to = target.address();
        let start = || match name {
            "copied" => Process::start(&mut moneta(&["copy", "--from", &from, "--to", &to, "--follow"])),
            _ => Process::start(&mut moneta(&[
                "populate",
                "--from",
                text(&archive),
                "--to",
                &to,
                "--follow",
                "--cursor-file",
                text(&cursor),
            ])),
        };
        let mut job = start();
        alike(&source, target.node(), &job);
        change();
        alike(&source, target.node(), &job);
        target.kill();
        alike(&source, target.node(), &job);
        if name == "populated" {
            change();
            alike(&source, target.node(), &job);
            drop(job);
            target.kill();
            job = start();
            alike(&source, target.node(), &job);
        }
    }
}
