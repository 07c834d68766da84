//! A node with an SSD tier, killed again and again under full load: what it serves after each start was written for that
//! key, and is not older than what the node had promised to keep.
//!
//! Each key has one writer, which knows what it wrote and what was acknowledged when. What a start served once is on the
//! device: no later one may serve anything older. `MONETA_SEED` repeats what is written and when the node is killed.

use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use moneta_conformance::book::{Book, Newer, Seen, Shape};
use moneta_conformance::server::Server;
use moneta_conformance::steady::Steady;
use moneta_testkit::process::Signal;

const WRITERS: usize = 3;
/// Few, so that each is overwritten long before its record is the oldest on the device: nothing is evicted.
const KEYS: usize = 700;
/// How long a write may wait in RAM.
const INTERVAL: Duration = Duration::from_millis(100);
/// How much longer it may take to have it written while that is not held up.
const SLACK: Duration = Duration::from_secs(3);
/// How long a request may wait for the device: longer than clients wait. On a loaded machine a read of any program may take
/// longer than the default of 5 s, and these tests are about what is kept, not how fast.
const FLASH_TIMEOUT: &str = "1m";

const SHAPE: Shape = Shape { keys: KEYS, usual: 2500, longest: 2500, may_fail: false };

fn start(folder: &Path, durability: &str) -> Result<Server> {
    let device = format!("{}:256m", folder.display());
    let interval = format!("{}ms", INTERVAL.as_millis());
    Server::start_moneta(|port| {
        let port = port.to_string();
        let line: [&str; 23] = [
            "serve",
            "-p",
            &port,
            "-l",
            "127.0.0.1",
            "--admin",
            "off",
            "-m",
            "64",
            "-t",
            "2",
            "-I",
            "64k",
            "--flash",
            &device,
            "--flash-region-size",
            "1m",
            "--flash-flush-interval",
            &interval,
            "--flash-durability",
            durability,
            "--flash-timeout",
            FLASH_TIMEOUT,
        ];
        line.into_iter().map(OsString::from).collect()
    })
}

/// Kills a node in each of `rounds`. `true`: not before it has written to its device for longer than a write may wait.
fn kill_again_and_again(
    rounds: &[bool],
    durability: &str,
    had_to_be_kept: impl Fn(&Seen, bool, Instant) -> bool,
) -> Result<()> {
    let given = std::env::var("MONETA_SEED").ok().and_then(|text| text.parse().ok());
    let seed = given.unwrap_or_else(|| fastrand::u64(0..1 << 40));
    println!("MONETA_SEED={seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let folder = tempfile::tempdir()?;
    let mut books: Vec<Book> = (0..WRITERS).map(|writer| Book::new(writer, seed, SHAPE)).collect();
    for (round, &is_long) in rounds.iter().enumerate() {
        let mut server = start(folder.path(), durability)?;
        let killed = AtomicBool::new(false);
        let address = server.address().clone();
        let (was_steady, killed_at) = std::thread::scope(|scope| {
            for book in &mut books {
                let (address, killed) = (&address, &killed);
                scope.spawn(move || {
                    let ended =
                        book.load(address, &AtomicBool::new(false)).expect_err("the load goes on until the node ends");
                    assert!(killed.load(Ordering::Acquire), "a connection broke by itself: {ended:#}");
                });
            }
            let pause = Duration::from_millis(rng.u64(100..900));
            let waited = if is_long {
                Steady::new(&address).and_then(|mut node| node.wait(INTERVAL + SLACK + pause, || Ok(())))
            } else {
                sleep(pause);
                Ok(false)
            };
            killed.store(true, Ordering::Release);
            let killed_at = Instant::now();
            // Whatever the wait came to: the load ends with the node.
            server.stop_by_signal(Signal::SIGKILL).and(waited).map(|was_steady| (was_steady, killed_at))
        })?;
        drop(server);
        let server = start(folder.path(), durability)?;
        let mut client = server.connect()?;
        for book in &mut books {
            book.check(&mut client, Newer::Gone, |seen| had_to_be_kept(seen, was_steady, killed_at))
                .with_context(|| format!("round {round}; the node printed:\n{}", server.messages()))?;
        }
        // The next round's start is after another kill, of a node that only read.
    }
    Ok(())
}

#[test]
fn a_node_that_is_killed_keeps_all_but_the_last_interval() -> Result<()> {
    let rounds: [bool; 20] = std::array::from_fn(|round| round % 10 == 5);
    kill_again_and_again(&rounds, "interval", |seen, was_steady, killed_at| match seen {
        Seen::Sent => false,
        Seen::Acknowledged(moment) => was_steady && killed_at.saturating_duration_since(*moment) > INTERVAL + SLACK,
        Seen::Kept => true,
    })
}

#[test]
fn a_node_that_writes_before_it_answers_keeps_everything_it_acknowledged() -> Result<()> {
    kill_again_and_again(&[false; 8], "every-write", |seen, _, _| !matches!(seen, Seen::Sent))
}
