//! How fast it is on this machine: `cargo test -p moneta-ledger --features etcd --test ledger figures -- --ignored --nocapture
//! --test-threads 1`. Prints, and asserts nothing about time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use moneta_ledger::{Change, Commit, Embedded, Ledger, Step};
use tempfile::TempDir;

use crate::suite::{cursor, done, follow, now};

const APPS: usize = 50;
const SECONDS: u64 = 10;

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

/// So many commits are under way at a time, each of an app and its audit record, each waiting for its answer.
fn measure(name: &str, ledger: &Arc<dyn Ledger>, writers: usize) {
    let from = cursor(&**ledger);
    let (begun, count) = (Instant::now(), AtomicU64::new(0));
    let until = begun + Duration::from_secs(SECONDS);
    let told_all = std::sync::atomic::AtomicBool::new(false);
    let (mut answers, mut tells) = std::thread::scope(|scope| {
        let (count, told_all) = (&count, &told_all);
        let follower = scope.spawn(move || {
            let (mut follower, mut tells) = (follow(&**ledger, "", from), Vec::new());
            loop {
                match now(follower.step()) {
                    Step::Changes { changes, .. } => {
                        if let Change::Put(entry) = &changes[0] {
                            let sent = u64::from_le_bytes(entry.value[..8].try_into().expect("eight bytes"));
                            tells.push(begun.elapsed().saturating_sub(Duration::from_nanos(sent)));
                        }
                    }
                    Step::At(_) if told_all.load(Ordering::SeqCst) => return tells,
                    Step::At(_) => {}
                }
            }
        });
        let writers: Vec<_> = (0..writers)
            .map(|writer| {
                scope.spawn(move || {
                    let mut answers = Vec::new();
                    while Instant::now() < until {
                        let number = count.fetch_add(1, Ordering::Relaxed) as usize;
                        let sent = begun.elapsed();
                        let mut value = u64::try_from(sent.as_nanos()).expect("short").to_le_bytes().to_vec();
                        value.resize(600, b'x');
                        let commit = Commit::new().put(format!("apps/{}/{writer}", number % APPS), value.clone());
                        done(&**ledger, commit.put(format!("audit/{number}"), value));
                        answers.push(begun.elapsed() - sent);
                    }
                    answers
                })
            })
            .collect();
        let answers: Vec<Duration> = writers.into_iter().flat_map(|writer| writer.join().expect("no panic")).collect();
        told_all.store(true, Ordering::SeqCst);
        (answers, follower.join().expect("no panic"))
    });
    answers.sort_unstable();
    tells.sort_unstable();
    let rate = answers.len() as f64 / SECONDS as f64;
    println!(
        "{name}, {writers} at a time: {rate:.0} commits a second; answered p50 {:?} p99 {:?}; told p50 {:?} p99 {:?}",
        percentile(&answers, 50),
        percentile(&answers, 99),
        percentile(&tells, 50),
        percentile(&tells, 99)
    );
    assert_eq!(answers.len(), tells.len());
}

#[test]
#[ignore = "measures: docs/decisions/26-ledger.md has the command"]
fn figures_of_a_file() {
    for writers in [1, 8, 50] {
        let directory = TempDir::new().expect("a temporary folder");
        let ledger: Arc<dyn Ledger> = Arc::new(Embedded::open(directory.path()).expect("it opens"));
        measure("a file", &ledger, writers);
    }
}

#[cfg(feature = "etcd")]
#[test]
#[ignore = "measures: docs/decisions/26-ledger.md has the command"]
fn figures_of_etcd() {
    let cluster = crate::etcd::cluster::Cluster::start(3);
    for writers in [1, 8, 50] {
        let ledger: Arc<dyn Ledger> = Arc::new(cluster.open(&crate::etcd::cluster::Cluster::new_root()));
        measure("three members of etcd", &ledger, writers);
    }
}
