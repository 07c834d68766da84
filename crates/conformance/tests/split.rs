//! Three processes that survive each other: memcached (L1), Moneta on SSD (L2), Moneta in front. Each is killed with -9, or
//! stopped for longer than requests wait, under the load of several clients.
//!
//! Guards against: a value that comes back after a newer one was acknowledged (a copy in L1 that outlived a write, a write
//! that a hung process executes late), one mixed of two, one that is lost with a process that does not have it, a client that
//! waits for ever, and a death that spreads. Each key has one writer, which knows what was acknowledged.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use moneta_conformance::book::{Answer, Book, Newer, REPLY_LIMIT, Seen, Shape, Tally, read_answer, read_request};
use moneta_conformance::client::Client;
use moneta_conformance::seed;
use moneta_conformance::split::{FLUSH_INTERVAL, Part, Split};
use moneta_conformance::steady::Steady;
use moneta_testkit::process::Signal;

const WRITERS: usize = 3;
/// Some values take three pieces in L1.
const SHAPE: Shape = Shape { keys: 150, usual: 2_000, longest: 60_000, may_fail: false };
/// Keys that are read and not written.
const STILL: usize = 20;
/// How much longer than its interval L2 may take to have a write on its device while that is not held up.
const SLACK: Duration = Duration::from_secs(3);
/// How long the front waits for another process where none hangs: more than a busy machine takes, less than a client waits.
const PATIENT: Duration = Duration::from_secs(10);
/// The same where one hangs, and every request that needs it costs so much.
const IMPATIENT: Duration = Duration::from_secs(3);
/// Long enough for every request under way to run out of time, and the peer to be taken for dead.
const STOPPED: Duration = Duration::from_secs(2 * IMPATIENT.as_secs());
/// How often a question is asked again, and the pause between.
const ATTEMPTS: usize = 1200;
const PAUSE: Duration = Duration::from_millis(50);

fn books(may_fail: bool) -> Vec<Book> {
    let seed = seed();
    // Of the moments at which processes are ended, too.
    fastrand::seed(seed);
    (0..WRITERS).map(|writer| Book::new(writer, seed, Shape { may_fail, ..SHAPE })).collect()
}

/// Runs `act` on the processes under the load of all writers, whose connections have to last, and says what was answered
/// meanwhile.
fn under_load(split: &mut Split, books: &mut [Book], act: impl FnOnce(&mut Split) -> Result<()>) -> Result<Tally> {
    let (address, over) = (split.address(Part::Front), AtomicBool::new(false));
    let before = total(books);
    thread::scope(|scope| {
        let load: Vec<_> = books.iter_mut().map(|book| scope.spawn(|| book.load(&address, &over))).collect();
        let acted = act(split);
        over.store(true, Ordering::Relaxed);
        for writer in load {
            writer.join().expect("what was served is right")?;
        }
        acted
    })?;
    let after = total(books);
    println!("{after:?}");
    Ok(Tally {
        acknowledged: after.acknowledged - before.acknowledged,
        read: after.read - before.read,
        refused: after.refused - before.refused,
    })
}

fn total(books: &[Book]) -> Tally {
    books.iter().fold(Tally::default(), |sum, book| Tally {
        acknowledged: sum.acknowledged + book.tally.acknowledged,
        read: sum.read + book.tally.read,
        refused: sum.refused + book.tally.refused,
    })
}

/// Everything that was acknowledged is there, at `part`.
fn everything_is_there(split: &Split, books: &mut [Book], part: Part) -> Result<()> {
    let mut client = split.connect(part)?;
    client.set_read_limit(REPLY_LIMIT);
    books
        .iter_mut()
        .try_for_each(|book| book.check(&mut client, Newer::MayLive, |seen| *seen != Seen::Sent))
        .with_context(|| format!("asked {part:?}"))
}

/// Asks until `is_met` says so.
fn until(what: &str, mut is_met: impl FnMut() -> Result<bool>) -> Result<()> {
    for _ in 0..ATTEMPTS {
        if is_met()? {
            return Ok(());
        }
        sleep(PAUSE);
    }
    bail!("never came about: {what}")
}

fn get(client: &mut Client, key: &str) -> Result<Answer> {
    client.send(&read_request(key))?;
    read_answer(client)
}

#[test]
fn a_front_that_is_killed_again_and_again_loses_nothing() -> Result<()> {
    let mut split = Split::start(PATIENT)?;
    let mut books = books(false);
    for round in 0..6 {
        let (address, killed) = (split.address(Part::Front), AtomicBool::new(false));
        thread::scope(|scope| {
            for book in &mut books {
                scope.spawn(|| {
                    let ended =
                        book.load(&address, &AtomicBool::new(false)).expect_err("it goes on until the front ends");
                    assert!(killed.load(Ordering::Acquire), "a connection broke by itself: {ended:#}");
                });
            }
            sleep(Duration::from_millis(fastrand::u64(200..900)));
            killed.store(true, Ordering::Release);
            split.end(Part::Front, Signal::SIGKILL)
        })?;
        split.start_again(Part::Front)?;
        everything_is_there(&split, &mut books, Part::Front).with_context(|| format!("round {round}"))?;
    }
    let tally = total(&books);
    println!("{tally:?}");
    ensure!(tally.acknowledged > 0 && tally.read > 0, "{tally:?}");
    everything_is_there(&split, &mut books, Part::L2)
}

#[test]
fn without_l1_every_key_answers_from_l2_and_becomes_hot_again() -> Result<()> {
    let mut split = Split::start(PATIENT)?;
    let mut books = books(false);
    for _ in 0..4 {
        // No request is refused: that fails the load.
        let tally = under_load(&mut split, &mut books, |split| {
            sleep(Duration::from_millis(fastrand::u64(100..500)));
            split.end(Part::L1, Signal::SIGKILL)?;
            sleep(Duration::from_millis(fastrand::u64(100..800)));
            split.start_again(Part::L1)?;
            sleep(Duration::from_millis(fastrand::u64(100..500)));
            Ok(())
        })?;
        ensure!(tally.acknowledged > 0 && tally.read > 0, "{tally:?}");
        everything_is_there(&split, &mut books, Part::Front)?;
    }
    split.end(Part::L1, Signal::SIGKILL)?;
    everything_is_there(&split, &mut books, Part::Front)?;
    split.start_again(Part::L1)?;
    let mut l1 = split.connect(Part::L1)?;
    ensure!(l1.stat("curr_items")? == 0, "it starts empty");
    let mut front = split.connect(Part::Front)?;
    ensure!(front.set("hot", b"1")? == "STORED");
    until("keys are hot again", || {
        everything_is_there(&split, &mut books, Part::Front)?;
        Ok(l1.stat("curr_items")? > 100 && l1.stat("get_hits")? > 100)
    })
}

#[test]
fn without_l2_hot_keys_are_served_and_at_most_its_last_interval_is_lost() -> Result<()> {
    let mut split = Split::start(PATIENT)?;
    let mut books = books(true);
    store_still_keys(&mut split)?;
    for round in 0..3 {
        let (mut killed_at, mut was_steady) = (Instant::now(), false);
        under_load(&mut split, &mut books, |split| {
            // Longer than what may be lost, so that something may not.
            let long = FLUSH_INTERVAL + SLACK + Duration::from_millis(fastrand::u64(300..900));
            let mut l2 = Steady::new(&split.address(Part::L2))?;
            was_steady = l2.wait(long, || read_hot_keys(&mut split.connect(Part::Front)?))?;
            killed_at = Instant::now();
            split.end(Part::L2, Signal::SIGKILL)?;
            still_keys_are_served(split)?;
            sleep(Duration::from_millis(300));
            Ok(())
        })?;
        split.start_again(Part::L2)?;
        let mut l2 = split.connect(Part::L2)?;
        for book in &mut books {
            let had_to_be_kept = |seen: &Seen| match seen {
                Seen::Sent => false,
                Seen::Acknowledged(moment) => {
                    was_steady && killed_at.saturating_duration_since(*moment) > FLUSH_INTERVAL + SLACK
                }
                Seen::Kept => true,
            };
            // L1 may have what L2 had not written yet.
            book.check(&mut l2, Newer::MayLive, had_to_be_kept).with_context(|| format!("round {round}"))?;
        }
        split.wait_until_in_use()?;
        let mut front = split.connect(Part::Front)?;
        for number in 0..STILL {
            let found = get(&mut front, &format!("cold{number}"))?;
            ensure!(found == Answer::Found(Some(still(number))), "cold{number}, round {round}: {found:?}");
        }
        // They shall be cold once more.
        ensure!(split.connect(Part::L1)?.ask("flush_all\r\n")? == "OK");
        store_hot_keys(&split)?;
    }
    let tally = total(&books);
    ensure!(tally.acknowledged > 0 && tally.read > 0 && tally.refused > 0, "{tally:?}");
    Ok(())
}

fn still(number: usize) -> Vec<u8> {
    format!("still {number} {}", "s".repeat(number * 100)).into_bytes()
}

/// `cold` keys that L2 alone has, on its device, and `hot` ones that L1 has, too.
fn store_still_keys(split: &mut Split) -> Result<()> {
    let mut l2 = split.connect(Part::L2)?;
    for number in 0..STILL {
        ensure!(l2.set(&format!("cold{number}"), &still(number))? == "STORED");
    }
    drop(l2);
    split.end(Part::L2, Signal::SIGTERM)?;
    split.start_again(Part::L2)?;
    split.wait_until_in_use()?;
    store_hot_keys(split)
}

fn store_hot_keys(split: &Split) -> Result<()> {
    let (mut front, mut l1) = (split.connect(Part::Front)?, split.connect(Part::L1)?);
    for number in 0..STILL {
        ensure!(front.set(&format!("hot{number}"), &still(number))? == "STORED");
    }
    until("L1 has all hot keys", || {
        let hits = l1.stat("get_hits")?;
        read_hot_keys(&mut front)?;
        Ok(l1.stat("get_hits")? >= hits + STILL as u64)
    })
}

/// What is hot is read all the time.
fn read_hot_keys(front: &mut Client) -> Result<()> {
    for number in 0..STILL {
        let found = get(front, &format!("hot{number}"))?;
        ensure!(found == Answer::Found(Some(still(number))), "hot{number}: {found:?}");
    }
    Ok(())
}

/// With L2 gone: what L1 has is served, what it does not have is an error and not a miss, and nothing can be written.
fn still_keys_are_served(split: &Split) -> Result<()> {
    let mut front = split.connect(Part::Front)?;
    front.set_read_limit(REPLY_LIMIT);
    read_hot_keys(&mut front)?;
    for number in 0..STILL {
        let found = get(&mut front, &format!("cold{number}"))?;
        ensure!(matches!(&found, Answer::Refused(why) if why.starts_with("SERVER_ERROR")), "cold{number}: {found:?}");
        let written = front.set(&format!("new{number}"), b"1")?;
        ensure!(written.starts_with("SERVER_ERROR"), "new{number}: {written}");
    }
    Ok(())
}

#[test]
fn a_process_that_hangs_costs_time_and_brings_nothing_old_back() -> Result<()> {
    let mut split = Split::start(IMPATIENT)?;
    let mut books = books(true);
    store_still_keys(&mut split)?;
    for _ in 0..2 {
        for part in [Part::L1, Part::L2, Part::Front] {
            // The load fails when a reply takes longer than its limit, wherever it comes from.
            let tally = under_load(&mut split, &mut books, |split| {
                sleep(Duration::from_millis(fastrand::u64(100..400)));
                split.signal(part, Signal::SIGSTOP)?;
                sleep(STOPPED);
                if part == Part::L2 {
                    still_keys_are_served(split)?;
                }
                split.signal(part, Signal::SIGCONT)?;
                sleep(Duration::from_millis(fastrand::u64(200..900)));
                Ok(())
            })
            .with_context(|| format!("{part:?} was stopped"))?;
            println!("{part:?}: {tally:?}");
            ensure!(part == Part::L2 || tally.refused == 0, "without {part:?} nothing is refused: {tally:?}");
            split.wait_until_in_use()?;
            everything_is_there(&split, &mut books, Part::Front).with_context(|| format!("{part:?} was stopped"))?;
            everything_is_there(&split, &mut books, Part::L2).with_context(|| format!("{part:?} was stopped"))?;
            store_hot_keys(&split)?;
        }
    }
    Ok(())
}
