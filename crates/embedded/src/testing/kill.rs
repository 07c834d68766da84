//! A process that writes as fast as it can, killed again and again.
//!
//! Guards against what a crash played within a process cannot show: a library cut off at any instruction. The process says on
//! its standard output what it is about to do, and when what it did is promised to be kept.

use std::io::{BufRead, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};

use moneta_testkit::process::Process;
use parking_lot::RwLock;

use super::requests::{delete, get, set, wait};
use crate::database::Database;
use crate::engine::Embedded;

/// Tells a process that it is the one to be killed, and which round this is.
const ROLE: &str = "MONETA_TEST_KILLED";
const KEYS: usize = 60;
const THREADS: usize = 2;
/// Versions of a round begin at the round's number times this.
const VERSIONS: u32 = 1_000_000;
/// Longest value, in copies of its version's text.
const COPIES_MAX: u32 = 400;

/// Held for reading by a test that has a store open, and for writing while a process is started: until that runs a program of its
/// own it holds whatever this one has open, and with it the locks of other tests' folders, beyond their stores' end.
static OPEN: RwLock<()> = RwLock::new(());

/// What has been done to a key: the version that it was said to be given, `None` for a delete, in order.
struct Key {
    said: Vec<Option<u32>>,
    /// How many of these are to be kept, whatever happens.
    kept: usize,
}

fn name(key: usize) -> String {
    format!("key {key}")
}

/// A value that tells its key and version, and whether it is whole.
fn value(key: usize, version: u32) -> Vec<u8> {
    format!("{key}:{version};").repeat((version % COPIES_MAX + 1) as usize).into_bytes()
}

/// Which version a value is of.
fn version(key: usize, shown: &[u8]) -> u32 {
    let text = String::from_utf8_lossy(shown);
    let first = text.split(';').next().and_then(|first| first.split_once(':'));
    let version = first.and_then(|(_, version)| version.parse().ok()).unwrap_or_else(|| panic!("key {key} is torn"));
    assert!(shown == value(key, version), "key {key} holds another key's value or a torn one");
    version
}

fn say(line: &str) {
    // Past the capturing of output, and in one piece.
    std::io::stdout().write_all(line.as_bytes()).expect("the parent listens");
}

/// Stores and deletes until it is killed. Each key is one thread's. `sync_every`: after how many changes it asks for a sync, if
/// it takes that for something to be kept.
fn write_for_ever<D: Database>(store: &Embedded<D>, first: u32, sync_every: Option<u32>) {
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                for version in first.. {
                    let key = fastrand::usize(0..KEYS / THREADS) * THREADS + thread;
                    if fastrand::u8(0..8) == 0 {
                        say(&format!("\n@delete {key}\n"));
                        delete(store, &name(key));
                    } else {
                        say(&format!("\n@set {key} {version}\n"));
                        set(store, &name(key), &value(key, version), 0).expect("a set");
                    }
                    match sync_every {
                        Some(changes) if version % changes != 0 => (),
                        Some(_) => {
                            wait(store.sync()).expect("a sync");
                            say(&format!("\n@kept {thread}\n"));
                        }
                        None => say(&format!("\n@kept {thread}\n")),
                    }
                }
            });
        }
    });
}

/// Lets a process write in `folder`, kills it, and takes down what it had said.
fn kill_one(test: &str, folder: &Path, round: u32, keys: &mut [Key]) {
    let program = std::env::current_exe().expect("this program");
    let mut command = Command::new(program);
    command.args(["--exact", test, "--nocapture", "--test-threads=1"]).env(ROLE, round.to_string());
    let none_open = OPEN.write();
    let (mut victim, pipes) = Process::start_raw(command.current_dir(folder).stdout(Stdio::piped()));
    drop(none_open);
    let said = BufReader::new(pipes.stdout.expect("it is piped"));
    let most = fastrand::usize(200..4000);
    let mut changes = 0;
    for (number, line) in said.lines().map_while(Result::ok).filter(|line| line.starts_with('@')).enumerate() {
        if number == most {
            victim.kill();
        }
        let words: Vec<&str> = line.split(' ').collect();
        // The last line may be cut off.
        let number_of = |word: usize| words.get(word).and_then(|text| text.parse::<u32>().ok());
        match (words[0], number_of(1), number_of(2)) {
            ("@set", Some(key), Some(version)) => keys[key as usize].said.push(Some(version)),
            ("@delete", Some(key), None) => keys[key as usize].said.push(None),
            ("@kept", Some(thread), None) => {
                let of_thread = keys.iter_mut().skip(thread as usize).step_by(THREADS);
                of_thread.for_each(|key| key.kept = key.said.len());
            }
            _ => (),
        }
        changes += 1;
    }
    assert!(changes >= most, "the process ended by itself");
}

/// Opens the store in a process that writes until it is killed with signal 9, `rounds` times on the same folder, and checks
/// after each that every key has what it was last promised to have, or something it was said to be given since.
///
/// `test` is the calling test's own name, which the process runs. With `sync_every` the promise is a sync after so many
/// changes, else every answer is one.
///
/// # Panics
/// If a promise is broken.
pub fn survives_kills<D: Database>(
    test: &str,
    open: impl Fn(&Path) -> Embedded<D>,
    rounds: u32,
    sync_every: Option<u32>,
) {
    if let Ok(round) = std::env::var(ROLE) {
        let round: u32 = round.parse().expect("a number");
        return write_for_ever(&open(Path::new(".")), round * VERSIONS, sync_every);
    }
    let folder = std::env::temp_dir().join(format!("moneta-killed-{}-{:x}", std::process::id(), fastrand::u64(..)));
    let folder = Removed(folder);
    std::fs::create_dir(&folder.0).expect("a folder");
    let mut keys: Vec<Key> = (0..KEYS).map(|_| Key { said: vec![None], kept: 1 }).collect();
    for round in 1..=rounds {
        kill_one(test, &folder.0, round, &mut keys);
        let _open = OPEN.read();
        let store = open(&folder.0);
        for (number, key) in keys.iter_mut().enumerate() {
            let shown = get(&store, &name(number)).map(|shown| version(number, &shown));
            let allowed = &key.said[key.kept - 1..];
            assert!(
                allowed.contains(&shown),
                "round {round}, key {number}: it has {shown:?}, but was given {allowed:?}"
            );
            *key = Key { said: vec![shown], kept: 1 };
        }
        // Sometimes in good order.
        if fastrand::bool() {
            store.crash();
        }
    }
}

/// A folder that goes with its test.
struct Removed(std::path::PathBuf);

impl Drop for Removed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
