//! The promises of a ledger, on etcd: real members, one alone and three that are killed and stopped.

pub mod cluster;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use moneta_ledger::{Change, Commit, Committed, Compare, Cursor, Etcd, Ledger, LedgerError, Revision, Step};
use moneta_net::{LogIn, LogInSource, PemSource};

use self::cluster::Cluster;
use crate::suite::{done, eventually, now};

/// A member for each test: etcd compacts all of its ledgers together.
fn made() -> (Arc<dyn Ledger>, Cluster) {
    let cluster = Cluster::start(1);
    (Arc::new(cluster.open("/moneta/")), cluster)
}

crate::conformance!(made());

#[test]
fn random_operations_do_what_a_map_does() {
    let cluster = Cluster::start(1);
    crate::suite::model::run(|| (Arc::new(cluster.open(&Cluster::new_root())) as Arc<dyn Ledger>, ()));
}

#[test]
fn two_ledgers_on_one_etcd_do_not_see_each_other_and_two_processes_on_one_do() {
    let (cluster, root) = (Cluster::shared(), Cluster::new_root());
    let open = |root: &str| -> Etcd { cluster.open(root) };
    let (one, same, other) = (open(&root), open(&root), open(&Cluster::new_root()));
    let revision = done(&one, Commit::new().put("key", "1"));
    assert_eq!(now(same.snapshot("")).entries[0].modified, revision);
    assert_eq!(now(same.snapshot("")).incarnation, now(one.snapshot("")).incarnation);
    assert_eq!(now(other.snapshot("")).entries, []);
    assert_ne!(now(other.snapshot("")).incarnation, now(one.snapshot("")).incarnation);
}

#[test]
fn tls_and_a_log_in_protect_a_ledger() {
    let mut cluster = Cluster::start_with(1, true);
    let open = cluster.open("/moneta/");
    done(&open, Commit::new().put("key", "1"));
    for arguments in [&["user", "add", "root:secret"][..], &["user", "grant-role", "root", "root"], &["auth", "enable"]]
    {
        cluster.control(arguments);
    }
    let refused = pollster::block_on(open.commit(Commit::new().put("key", "2")));
    assert!(matches!(refused, Err(LedgerError::Unavailable { .. } | LedgerError::Refused { .. })), "{refused:?}");
    let log_in = |text: &str| {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), text).expect("it is written");
        let source = PemSource::File(file.path().to_owned());
        LogIn::Secret(LogInSource::load(source).expect("a user and a secret"))
    };
    cluster.log_in(log_in("root:secret"));
    let ledger = cluster.open("/moneta/");
    let last = done(&ledger, Commit::new().put("key", "3"));
    assert_eq!(now(ledger.snapshot("")).entries[0].modified, last);
    cluster.log_in(log_in("root:wrong"));
    let refused = pollster::block_on(Etcd::open(cluster.endpoints(), "/moneta/"));
    assert!(matches!(refused, Err(LedgerError::Unavailable { .. })), "{refused:?}");
}

/// What clients of a counter were told.
#[derive(Default)]
struct Told {
    done: BTreeMap<String, usize>,
    unknown: BTreeMap<String, usize>,
    undone: Vec<String>,
}

const DISTURBANCES: usize = 5;
const CLIENTS: usize = 3;

/// Counts up by compare and put, each count with a key of its own that says whose it is.
fn count_up(ledger: &dyn Ledger, client: usize, is_over: &AtomicBool, counted: &AtomicUsize) -> Told {
    let (mut told, mut newest) = (Told::default(), Revision(0));
    for attempt in 0.. {
        if is_over.load(Ordering::SeqCst) {
            break;
        }
        let Ok(snapshot) = pollster::block_on(ledger.snapshot("counter")) else { continue };
        // What was answered before is in what is read after.
        assert!(snapshot.revision >= newest, "{} was read after {newest}", snapshot.revision);
        let (compare, count) = match snapshot.entries.first() {
            None => (Compare::Absent("counter".into()), 1),
            Some(found) => {
                let count: usize = str::from_utf8(&found.value).expect("text").parse().expect("a number");
                (Compare::Modified("counter".into(), found.modified), count + 1)
            }
        };
        let mine = format!("by/{client}/{attempt}");
        let commit =
            Commit::new().only_if(compare).put("counter", count.to_string()).put(mine.clone(), count.to_string());
        match pollster::block_on(ledger.commit(commit)) {
            Ok(Committed::Done(revision)) => {
                newest = revision;
                told.done.insert(mine, count);
                counted.fetch_add(1, Ordering::SeqCst);
            }
            Ok(Committed::Conflict) | Err(LedgerError::Unavailable { .. }) => told.undone.push(mine),
            Err(LedgerError::Unknown { .. }) => _ = told.unknown.insert(mine, count),
            Err(error) => panic!("{error}"),
        }
    }
    told
}

/// Follows the counter until it is told of `last`, from where it was after each failure.
fn follow_counter(ledger: &dyn Ledger, from: Cursor, last: &AtomicUsize) -> Vec<usize> {
    let (mut counts, mut at) = (Vec::new(), from);
    loop {
        let Ok(mut follower) = pollster::block_on(ledger.follow("counter", at)) else { continue };
        loop {
            match pollster::block_on(follower.step()) {
                Ok(Step::Changes { revision, changes }) => {
                    at.revision = revision;
                    let [Change::Put(entry)] = &changes[..] else { panic!("{changes:?}") };
                    counts.push(str::from_utf8(&entry.value).expect("text").parse().expect("a number"));
                }
                Ok(Step::At(revision)) => at.revision = at.revision.max(revision),
                Err(LedgerError::Unavailable { .. }) => break,
                Err(error) => panic!("{error}"),
            }
            if counts.last().copied() == Some(last.load(Ordering::SeqCst)) {
                return counts;
            }
        }
    }
}

/// The leader is killed or stopped again and again while clients count: every count is given out once, an answer is true, and no
/// follower misses one.
#[test]
fn clients_count_right_while_leaders_are_killed_and_stopped() {
    let mut cluster = Cluster::start(3);
    let begin = cluster.open("/moneta/");
    let from = now(begin.snapshot("")).cursor();
    let ledgers: Vec<Arc<Etcd>> = (0..CLIENTS)
        .map(|number| {
            // Each prefers another member.
            let mut endpoints = cluster.endpoints();
            endpoints.rotate_left(number);
            Arc::new(pollster::block_on(Etcd::open(endpoints, "/moneta/")).expect("it opens"))
        })
        .collect();
    let (is_over, counted, last) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let (is_over, counted, last) = (&is_over, &counted, &last);
        let clients: Vec<_> = ledgers
            .iter()
            .enumerate()
            .map(|(client, ledger)| scope.spawn(move || count_up(&**ledger, client, is_over, counted)))
            .collect();
        let followers: Vec<_> =
            ledgers.iter().map(|ledger| scope.spawn(move || follow_counter(&**ledger, from, last))).collect();
        let mut slowest = Duration::ZERO;
        for disturbance in 0..DISTURBANCES {
            let mut leader = None;
            eventually("somebody leads", || {
                leader = cluster.leader();
                leader.is_some()
            });
            let leader = leader.expect("somebody leads");
            let (before, begun) = (counted.load(Ordering::SeqCst), Instant::now());
            if disturbance % 2 == 0 {
                cluster.kill(leader);
            } else {
                cluster.process(leader).stop();
            }
            eventually("clients count on without it", || counted.load(Ordering::SeqCst) > before + 5);
            slowest = slowest.max(begun.elapsed());
            if disturbance % 2 == 0 {
                cluster.begin(leader);
            } else {
                cluster.process(leader).cont();
            }
            let before = counted.load(Ordering::SeqCst);
            eventually("clients count on with it", || counted.load(Ordering::SeqCst) > before + 5);
        }
        is_over.store(true, Ordering::SeqCst);
        let told: Vec<Told> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        let mut snapshot = None;
        eventually("the cluster answers", || {
            snapshot = pollster::block_on(begin.snapshot("")).ok();
            snapshot.is_some()
        });
        let snapshot = snapshot.expect("it answers");
        let number = |value: &[u8]| -> usize { str::from_utf8(value).expect("text").parse().expect("a number") };
        let by: BTreeMap<&str, usize> = snapshot
            .entries
            .iter()
            .filter(|entry| entry.key.starts_with("by/"))
            .map(|entry| (entry.key.as_str(), number(&entry.value)))
            .collect();
        let total = by.len();
        last.store(total, Ordering::SeqCst);
        let mut counts: Vec<usize> = by.values().copied().collect();
        counts.sort_unstable();
        assert_eq!(counts, (1..=total).collect::<Vec<_>>(), "each count is given out once");
        let mut unknown = 0;
        for told in told {
            assert!(
                told.done.iter().all(|(mine, count)| by.get(mine.as_str()) == Some(count)),
                "what was done is there"
            );
            assert!(told.undone.iter().all(|mine| !by.contains_key(mine.as_str())), "what was not done is not there");
            assert!(told.unknown.iter().all(|(mine, count)| by.get(mine.as_str()).is_none_or(|found| found == count)));
            unknown += told.unknown.len();
        }
        println!(
            "{total} counts, {unknown} unknown outcomes, at most {slowest:?} from a leader's end to six more counts"
        );
        for follower in followers {
            assert_eq!(
                follower.join().expect("no panic"),
                (1..=total).collect::<Vec<_>>(),
                "a follower is told each count"
            );
        }
    });
}
