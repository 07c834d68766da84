//! A process that writes as fast as it can, killed again and again.
//!
//! Guards against what a crash played within a process cannot show: writes of several threads cut off at any instruction.
//! The process says on its standard output what it is about to store, and when what it stored is known to be on the device.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use moneta_flash::{DeviceConfig, Durability, Flash, FlashConfig};
use moneta_store::Clock;
use moneta_testkit::process::Process;

use super::drive::{config, delete, get, set, wait};
use super::history::{History, name, value};

/// This test; the process to be killed runs it too.
const SELF: &str = "kill::a_process_that_is_killed_keeps_what_it_knew_to_be_durable";
/// Tells a process that it is the one to be killed: folder, first version, and how it makes things durable.
const ROLE: &str = "MONETA_TEST_KILLED";
const KEYS: usize = 100;
const THREADS: usize = 2;
const ROUNDS: u32 = 20;
/// Versions of a round begin at the round's number times this.
const VERSIONS: u32 = 1_000_000;

fn tier(folder: &Path, every_write: bool) -> Flash {
    let config = FlashConfig {
        devices: vec![DeviceConfig { path: folder.into(), bytes: 65 << 20 }],
        region_bytes: 1 << 20,
        flush_interval: Duration::from_millis(20),
        durability: if every_write { Durability::EveryWrite } else { Durability::Interval },
        ..config()
    };
    Flash::open(&config, Arc::new(Clock::system())).expect("the tier opens")
}

fn say(line: &str) {
    // Past the capturing of output, and in one piece.
    std::io::stdout().write_all(line.as_bytes()).expect("the parent listens");
}

/// Stores and deletes until it is killed. Each key is one thread's.
fn write_for_ever(folder: &Path, first: u32, every_write: bool) {
    let flash = tier(folder, every_write);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let flash = flash.clone();
            scope.spawn(move || {
                for version in first.. {
                    let key = fastrand::usize(0..KEYS / THREADS) * THREADS + thread;
                    if fastrand::u8(0..8) == 0 {
                        say(&format!("\n@delete {key}\n"));
                        delete(&flash, &name(key)).expect("a delete");
                    } else {
                        say(&format!("\n@set {key} {version}\n"));
                        set(&flash, &name(key), &value(key, version), 0).expect("a set");
                    }
                    if every_write {
                        say(&format!("\n@durable {thread}\n"));
                    } else if version % 64 == 0 {
                        wait(flash.sync()).expect("a sync");
                        say(&format!("\n@durable {thread}\n"));
                    }
                }
            });
        }
    });
}

/// Lets a process write, kills it, and takes down what it had said.
fn kill_one(folder: &Path, round: u32, history: &mut History) -> [usize; THREADS] {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command
        .args(["--exact", SELF, "--nocapture", "--test-threads=1"])
        .env(ROLE, format!("{round}"))
        .current_dir(folder);
    let (mut victim, pipes) = Process::start_raw(command.stdout(Stdio::piped()));
    let mut durable = [history.operations(); THREADS];
    let said = BufReader::new(pipes.stdout.expect("it is piped"));
    let most = fastrand::usize(500..15_000);
    for (number, line) in said.lines().map_while(Result::ok).filter(|line| line.starts_with('@')).enumerate() {
        if number == most {
            victim.kill();
        }
        let words: Vec<&str> = line.split(' ').collect();
        let of = |word: usize| words[word].parse::<u32>().expect("a number");
        match words[0] {
            "@set" if words.len() == 3 => history.note(of(1) as usize, Some(of(2)), u32::MAX),
            "@delete" => history.note(of(1) as usize, None, u32::MAX),
            "@durable" => durable[of(1) as usize] = history.operations(),
            other => panic!("the process said {other:?}"),
        }
    }
    assert!(history.operations() > KEYS, "the process has written nothing");
    durable
}

#[test]
fn a_process_that_is_killed_keeps_what_it_knew_to_be_durable() {
    if let Ok(round) = std::env::var(ROLE) {
        let round: u32 = round.parse().expect("a number");
        return write_for_ever(Path::new("."), round * VERSIONS, round % 2 == 1);
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut versions: Vec<Option<u32>> = vec![None; KEYS];
    for round in 1..=ROUNDS {
        let mut history = History::new(KEYS);
        versions.iter().enumerate().for_each(|(key, version)| history.note(key, *version, u32::MAX));
        let durable = kill_one(folder.path(), round, &mut history);
        let flash = tier(folder.path(), false);
        for (key, version) in versions.iter_mut().enumerate() {
            let shown = get(&flash, &name(key)).expect("a get");
            let known = durable[key % THREADS];
            *version = history
                .check(key, shown.as_deref(), known, 1, false)
                .unwrap_or_else(|wrong| panic!("round {round}: {wrong}"));
        }
        // Sometimes in good order, so that there is a snapshot to be taken for a newer one than it is.
        if fastrand::bool() {
            flash.crash();
        }
    }
}
