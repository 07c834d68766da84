//! What the file promises: one process, all or nothing, on disks that fail, fill and stand still.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tempfile::TempDir;

use super::disk::{Disk, FileDisk, Opener};
use super::{DEADLINE, Embedded, FILE};
use crate::commit::{Commit, Committed, Compare};
use crate::entry::{Revision, Snapshot};
use crate::error::LedgerError;
use crate::ledger::{Ledger, Step};

fn now<T>(answer: impl Future<Output = T>) -> T {
    pollster::block_on(answer)
}

fn put(ledger: &Embedded, key: &str, value: &str) -> Result<Committed, LedgerError> {
    now(ledger.commit(Commit::new().put(key, value.to_owned()).put(format!("{key}/pair"), value.to_owned())))
}

fn all(ledger: &Embedded) -> Snapshot {
    now(ledger.snapshot("")).expect("it can be read")
}

fn eventually<T>(what: &str, mut found: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(found) = found() {
            return found;
        }
        assert!(Instant::now() < until, "never happened: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What a test does to disks.
#[derive(Debug, Default)]
struct Faults {
    /// Changes of the file that succeed before all fail; below 0: none fails.
    left: AtomicI64,
    syncs: AtomicU64,
    is_stuck: Mutex<bool>,
    /// Changes that have met it so.
    met: AtomicU64,
    freed: Condvar,
}

impl Faults {
    fn none() -> Arc<Self> {
        Arc::new(Self { left: AtomicI64::new(-1), ..Self::default() })
    }

    fn opener(self: &Arc<Self>) -> Opener {
        let faults = Arc::clone(self);
        Arc::new(move |path: &Path| {
            let disk = FileDisk::open(path)?;
            Ok(Box::new(Faulty { disk, faults: Arc::clone(&faults) }) as Box<dyn Disk>)
        })
    }

    fn stick(&self, is_stuck: bool) {
        *self.is_stuck.lock() = is_stuck;
        self.freed.notify_all();
    }

    fn change(&self) -> io::Result<()> {
        let mut is_stuck = self.is_stuck.lock();
        while *is_stuck {
            self.met.fetch_add(1, Ordering::SeqCst);
            self.freed.wait(&mut is_stuck);
        }
        let left = self.left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| (left > 0).then(|| left - 1));
        match left {
            Err(0) => Err(io::ErrorKind::StorageFull.into()),
            _ => Ok(()),
        }
    }
}

#[derive(Debug)]
struct Faulty {
    disk: Box<dyn Disk>,
    faults: Arc<Faults>,
}

impl Disk for Faulty {
    fn len(&self) -> io::Result<u64> {
        self.disk.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.disk.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.faults.change().and_then(|()| self.disk.set_len(len))
    }

    fn sync(&self) -> io::Result<()> {
        self.faults.syncs.fetch_add(1, Ordering::SeqCst);
        self.faults.change().and_then(|()| self.disk.sync())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.faults.change().and_then(|()| self.disk.write(offset, data))
    }
}

#[test]
fn what_was_committed_is_there_after_a_restart_and_can_be_followed() {
    let directory = TempDir::new().expect("a temporary folder");
    let first = Embedded::open(directory.path()).expect("it opens");
    let from = all(&first).cursor();
    put(&first, "one", "1").expect("it is committed");
    put(&first, "two", "2").expect("it is committed");
    now(first.commit(Commit::new().delete("one"))).expect("it is committed");
    let before = all(&first);
    drop(first);

    let second = Embedded::open(directory.path()).expect("it opens again");
    assert_eq!(all(&second), before);
    let mut follower = now(second.follow("", from)).expect("it can be followed");
    let revisions: Vec<Revision> = std::iter::from_fn(|| match now(follower.step()).expect("it is told") {
        Step::Changes { revision, .. } => Some(revision),
        Step::At(_) => None,
    })
    .collect();
    assert_eq!(revisions, [Revision(1), Revision(2), Revision(3)]);
    assert_eq!(put(&second, "three", "3"), Ok(Committed::Done(Revision(4))));
}

#[test]
fn a_second_opening_is_refused_with_the_process_that_has_it() {
    let directory = TempDir::new().expect("a temporary folder");
    let first = Embedded::open(directory.path()).expect("it opens");
    let refused = Embedded::open(directory.path()).expect_err("it is in use");
    let words = format!("{} is in use by process {}", directory.path().display(), std::process::id());
    assert_eq!(refused, LedgerError::Unavailable { reason: words });
    // A follower that lives longer than its ledger keeps nobody out, and ends.
    let mut follower = now(first.follow("", all(&first).cursor())).expect("it can be followed");
    drop(first);
    let second = Embedded::open(directory.path()).expect("it is free");
    assert!(matches!(now(follower.step()), Err(LedgerError::Unavailable { .. })));
    put(&second, "key", "1").expect("it is committed");
}

#[test]
fn a_hold_outlives_a_restart_for_a_full_period() {
    let directory = TempDir::new().expect("a temporary folder");
    let first = Embedded::open(directory.path()).expect("it opens");
    let (long, short) = (now(first.hold(Duration::from_secs(600))), now(first.hold(Duration::from_secs(2))));
    let (long, short) = (long.expect("a hold"), short.expect("a hold"));
    now(first.commit(Commit::new().put_held("long", "1", long).put_held("short", "1", short)))
        .expect("it is committed");
    drop(first);
    // Longer than the short one lives: a time in which nobody could renew.
    std::thread::sleep(Duration::from_millis(2_100));
    let second = Embedded::open(directory.path()).expect("it opens again");
    assert_eq!(now(second.renew(short)), Ok(()));
    assert_eq!(all(&second).entries.len(), 2);
    eventually("the hold that nobody renews ends", || (all(&second).entries.len() == 1).then_some(()));
    assert_eq!(now(second.renew(short)), Err(LedgerError::HoldEnded));
    assert_eq!(now(second.renew(long)), Ok(()));
}

/// The disk fails at each of its steps in turn. What was answered is there, what was refused is not, and no commit is there by half,
/// in the process that goes on and in the next one.
#[test]
fn a_disk_that_fills_at_any_moment_leaves_whole_commits() {
    let mut failures = 0;
    for steps in 0.. {
        let directory = TempDir::new().expect("a temporary folder");
        let faults = Faults::none();
        let ledger = Embedded::open_on(directory.path(), faults.opener(), DEADLINE).expect("it opens");
        put(&ledger, "first", "1").expect("it is committed");
        faults.left.store(steps, Ordering::SeqCst);
        let second = put(&ledger, "second", "2");
        // Reads go on, or fail with words; they never show less.
        if let Ok(snapshot) = now(ledger.snapshot("first")) {
            assert_eq!(snapshot.entries.len(), 2);
        }
        faults.left.store(-1, Ordering::SeqCst);
        let third = eventually("the disk has room again", || put(&ledger, "third", "3").ok());
        assert!(matches!(third, Committed::Done(_)));
        let live = all(&ledger);
        drop(ledger);
        let again = Embedded::open(directory.path()).expect("it opens again");
        assert_eq!(all(&again), live, "after {steps} steps");
        let of = |key: &str| live.entries.iter().filter(|entry| entry.key.starts_with(key)).count();
        assert_eq!((of("first"), of("third")), (2, 2));
        match second {
            Ok(_) => assert_eq!(of("second"), 2, "after {steps} steps"),
            Err(LedgerError::Unknown { .. }) => assert!([0, 2].contains(&of("second")), "after {steps} steps"),
            Err(LedgerError::Unavailable { .. }) => assert_eq!(of("second"), 0, "after {steps} steps"),
            Err(error) => panic!("after {steps} steps: {error}"),
        }
        // The history tells the same as the entries.
        let mut follower =
            now(again.follow("", crate::Cursor { revision: Revision(0), ..live.cursor() })).expect("from the begin");
        let mut told = 0;
        while let Step::Changes { changes, .. } = now(follower.step()).expect("it is told") {
            told += changes.len();
        }
        assert_eq!(told, live.entries.len());
        match second {
            Ok(_) => break,
            Err(_) => failures += 1,
        }
    }
    assert!(failures > 2, "a commit has several steps, and only {failures} failed");
}

#[test]
fn a_disk_that_stands_still_is_told_and_costs_nothing_after() {
    let directory = TempDir::new().expect("a temporary folder");
    let faults = Faults::none();
    let ledger = Embedded::open_on(directory.path(), faults.opener(), Duration::from_millis(500)).expect("it opens");
    put(&ledger, "before", "1").expect("it is committed");
    let hold = now(ledger.hold(Duration::from_secs(600))).expect("a hold");
    let from = all(&ledger).cursor();
    let mut follower = now(ledger.follow("", from)).expect("it can be followed");
    faults.stick(true);
    // The writer has the first, and nobody knows how it will end; the next one waits, and is surely withdrawn.
    assert!(matches!(put(&ledger, "taken", "2"), Err(LedgerError::Unknown { .. })));
    assert!(matches!(put(&ledger, "waits", "3"), Err(LedgerError::Unavailable { .. })));
    assert_eq!(now(ledger.renew(hold)), Ok(()));
    assert_eq!(now(follower.step()), Ok(Step::At(from.revision)));
    faults.stick(false);
    eventually("commits go on", || put(&ledger, "after", "4").ok());
    let keys: Vec<String> = all(&ledger).entries.into_iter().map(|entry| entry.key).collect();
    assert_eq!(keys, ["after", "after/pair", "before", "before/pair", "taken", "taken/pair"]);
}

/// Each byte of the file that is altered, a part of it that is gone, and files that never were one: the ledger opens as it was, or is
/// refused with words.
#[test]
fn a_damaged_file_is_refused_or_is_as_it_was() {
    let directory = TempDir::new().expect("a temporary folder");
    let ledger = Embedded::open(directory.path()).expect("it opens");
    for n in 0..40 {
        put(&ledger, &format!("key/{n}"), &"x".repeat(200)).expect("it is committed");
    }
    let before = all(&ledger);
    drop(ledger);
    let path = directory.path().join(FILE);
    let whole = fs::read(&path).expect("the file");
    let mut damaged =
        vec![Vec::new(), b"this is no ledger".to_vec(), vec![0; whole.len()], whole[..whole.len() / 2].to_vec()];
    let mut place = 3;
    while place < whole.len() {
        let mut altered = whole.clone();
        altered[place] ^= 0x55;
        damaged.push(altered);
        place += 1 + whole.len() / 150;
    }
    let mut refused = 0;
    for (n, content) in damaged.into_iter().enumerate() {
        fs::write(&path, content).expect("it is written");
        match Embedded::open(directory.path()) {
            Ok(ledger) => assert_eq!(all(&ledger), before, "damage {n}"),
            Err(LedgerError::Damaged { reason }) => {
                assert!(reason.starts_with(&path.display().to_string()), "{reason}");
                refused += 1;
            }
            Err(error) => panic!("damage {n}: {error}"),
        }
    }
    assert!(refused > 10, "only {refused} were refused");
    fs::write(&path, whole).expect("it is written");
    assert_eq!(all(&Embedded::open(directory.path()).expect("it opens")), before);
}

#[test]
fn commits_that_wait_share_a_sync_and_are_revisions_each() {
    let directory = TempDir::new().expect("a temporary folder");
    let faults = Faults::none();
    let ledger = Embedded::open_on(directory.path(), faults.opener(), DEADLINE).expect("it opens");
    put(&ledger, "key", "0").expect("it is committed");
    let syncs = faults.syncs.load(Ordering::SeqCst);
    put(&ledger, "key", "1").expect("it is committed");
    let each = faults.syncs.load(Ordering::SeqCst) - syncs;
    faults.stick(true);
    let revisions: Vec<Revision> = std::thread::scope(|scope| {
        let commit = |n: usize| {
            let commit = Commit::new().only_if(Compare::Present("key".into())).put(n.to_string(), "x");
            match now(ledger.commit(commit)) {
                Ok(Committed::Done(revision)) => revision,
                other => panic!("{other:?}"),
            }
        };
        let first = scope.spawn(move || commit(0));
        eventually("the writer has the first", || (faults.met.load(Ordering::SeqCst) > 0).then_some(()));
        let others: Vec<_> = (1..20).map(|n| scope.spawn(move || commit(n))).collect();
        eventually("the others wait", || (ledger.shared.queue.waiting() == 19).then_some(()));
        faults.stick(false);
        others.into_iter().chain([first]).map(|commit| commit.join().expect("no panic")).collect()
    });
    let mut sorted: Vec<u64> = revisions.iter().map(|revision| revision.0).collect();
    sorted.sort_unstable();
    assert_eq!(sorted, (3..23).collect::<Vec<_>>());
    let all = faults.syncs.load(Ordering::SeqCst) - syncs - each;
    assert!(all <= each * 2, "{all} syncs for 20 commits, and one alone takes {each}");
}
