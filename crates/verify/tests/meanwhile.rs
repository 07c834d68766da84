//! What happens during a run: clients write, servers die, the operator has seen enough.

mod support;

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use moneta_verify::{Conclusion, Counts, Kind, Observer, Phase, Progress, Report, Unwatched, Verify, VerifyConfig};
use support::{Planted, Server, config, found, item, key, verify};

const KEYS: usize = 20_000;

fn equal(a: &Server, b: &Server, keys: usize) {
    for server in [a, b] {
        server.client().plant((0..keys).map(|number| item(key(number), format!("value {number}"), 0)));
    }
}

/// Does something once, as soon as a condition holds.
struct Once<'a> {
    when: fn(Progress) -> bool,
    act: Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

impl<'a> Once<'a> {
    fn new(when: fn(Progress) -> bool, act: impl FnOnce() + Send + 'a) -> Self {
        Self { when, act: Mutex::new(Some(Box::new(act))) }
    }

    fn is_done(&self) -> bool {
        self.act.lock().expect("no panic").is_none()
    }
}

impl Observer for Once<'_> {
    fn progress(&self, progress: Progress) {
        if (self.when)(progress)
            && let Some(act) = self.act.lock().expect("no panic").take()
        {
            act();
        }
    }
}

#[test]
fn what_is_evened_out_while_it_is_suspected_is_no_difference() {
    let (a, b) = (Server::memcached(), Server::moneta());
    equal(&a, &b, 100);
    b.client().delete([key(1)]);
    b.client().set(key(2), "late");
    b.client().set("extra", "value");
    let evened = Once::new(
        |progress| progress.suspects >= 2,
        || {
            b.client().set(key(1), "value 1");
            a.client().set(key(2), "late");
            b.client().delete(["extra"]);
        },
    );
    // Long enough that the looks after the change are not the first ones.
    let patient = VerifyConfig { settle: Duration::from_secs(2), connections: 1, ..config(&a, &b) };
    let report = Verify::new(patient).run(&evened).expect("both are there");
    assert!(evened.is_done());
    assert_eq!(found(&report), Counts { compared: 100, equal: 100, ..Counts::default() });
}

#[test]
fn what_expires_while_it_is_suspected_is_no_difference() {
    let (a, b) = (Server::moneta(), Server::memcached());
    a.client().plant([Planted { ttl: 3, ..item("brief", "a", 0) }, item("lasting", "a", 0)]);
    b.client().plant([Planted { ttl: 3, ..item("brief", "b", 0) }, item("lasting", "a", 0)]);
    let report = verify(VerifyConfig { settle: Duration::from_secs(6), ..config(&a, &b) });
    assert_eq!((report.counts.different, report.conclusion), (0, Conclusion::Equal), "{report}");
    assert_eq!(report.counts.equal, 1);
}

/// Writers put the same value on A and then on B, all the time; a run in the middle of it finds what was planted among the
/// keys that no client writes, and nothing else.
#[test]
fn keys_that_are_written_are_no_differences() {
    const SETTLE: Duration = Duration::from_secs(4);
    let (a, b) = (Server::memcached(), Server::moneta());
    equal(&a, &b, KEYS);
    let planted = 25;
    b.client().plant((0..planted).map(|number| item(key(number * 2), "planted", 0)));
    // A writer that a busy machine holds up between its two writes leaves a true difference: such a run proves nothing.
    let report = (0..10).find_map(|_| {
        let (report, held_up) = verified_while_written(&a, &b, SETTLE);
        (held_up < SETTLE / 2).then_some(report)
    });
    let report = report.expect("in one of ten runs the writers get on");
    let examples = &report.examples[&Kind::Value];
    assert!(examples.iter().all(|example| example.b.is_some_and(|item| item.size == "planted".len())), "{examples:?}");
    assert_eq!((report.counts.different, report.counts.value), (planted as u64, planted as u64), "{report}");
}

/// What a run finds while two writers are at work, and the longest that one took for both sides of a key.
fn verified_while_written(a: &Server, b: &Server, settle: Duration) -> (Report, Duration) {
    let (done, held_up) = (AtomicBool::new(false), AtomicU64::new(0));
    let report = thread::scope(|scope| {
        for writer in 0..2 {
            let (done, held_up) = (&done, &held_up);
            scope.spawn(move || {
                let (mut a, mut b) = (a.client(), b.client());
                let mut round = 0;
                while !done.load(Ordering::Relaxed) {
                    // Odd keys, half of them each writer's own; a few of them very often.
                    let turn = if round % 2 == 0 { round / 2 % 10 } else { round % (KEYS / 4) };
                    let number = turn * 4 + 2 * writer + 1;
                    let begun = Instant::now();
                    a.set(key(number), format!("writer {writer} round {round}"));
                    b.set(key(number), format!("writer {writer} round {round}"));
                    held_up.fetch_max(begun.elapsed().as_millis() as u64, Ordering::Relaxed);
                    round += 1;
                }
            });
        }
        let report = Verify::new(VerifyConfig { settle, ..config(a, b) }).run(&Unwatched);
        done.store(true, Ordering::Relaxed);
        report
    });
    (report.expect("both servers are there"), Duration::from_millis(held_up.into_inner()))
}

#[test]
fn a_server_that_dies_ends_the_run_with_what_was_found() {
    let (a, b) = (Server::moneta(), Server::memcached());
    equal(&a, &b, KEYS);
    b.client().plant((0..KEYS).map(|number| item(key(number), "other", 0)));
    let b = Mutex::new(b);
    let configuration = VerifyConfig { timeout: Duration::from_secs(5), ..config(&a, &b.lock().expect("no panic")) };
    // Not before some differences are certain; those of the walk's end are not by then.
    let killer = Once::new(|progress| progress.different > 0, || b.lock().expect("no panic").kill());
    // So slow that the run would go on for long if the killer were held up.
    let slow = VerifyConfig { rate: Some(5_000.0), batch: 50, ..configuration };
    let report = Verify::new(slow).run(&killer).expect("a beginning");
    assert!(killer.is_done());
    let counts = report.counts;
    assert_eq!(report.conclusion, Conclusion::Incomplete);
    assert!(report.incomplete.as_deref().is_some_and(|why| why.starts_with("B (")), "{:?}", report.incomplete);
    assert!(counts.different > 0 && counts.different < KEYS as u64 && counts.undecided > 0, "{counts:?}");
    assert_eq!((counts.value, counts.equal), (counts.different, 0));
}

/// Stops after some keys.
#[derive(Default)]
struct Impatient {
    seen: AtomicUsize,
    phases: Mutex<Vec<Phase>>,
}

impl Observer for Impatient {
    fn phase(&self, phase: Phase) {
        self.phases.lock().expect("no panic").push(phase);
    }

    fn progress(&self, progress: Progress) {
        if matches!(self.phases.lock().expect("no panic").last(), Some(Phase::Comparing(_))) {
            self.seen.store(progress.keys as usize, Ordering::Relaxed);
        }
    }

    fn should_stop(&self) -> bool {
        self.seen.load(Ordering::Relaxed) >= 500
    }
}

#[test]
fn a_run_can_be_stopped() {
    let (a, b) = (Server::moneta(), Server::memcached());
    equal(&a, &b, KEYS);
    let impatient = Impatient::default();
    let report = Verify::new(VerifyConfig { batch: 10, ..config(&a, &b) }).run(&impatient).expect("a beginning");
    assert_eq!(report.incomplete.as_deref(), Some("interrupted"));
    assert_eq!(report.conclusion, Conclusion::Incomplete);
    let compared = report.counts.compared;
    assert!((500..KEYS as u64).contains(&compared) && report.counts.equal == compared, "{compared}");
    let phases = impatient.phases.into_inner().expect("no panic");
    assert_eq!(phases.last(), Some(&Phase::Comparing(Some(KEYS as u64))), "{phases:?}");
}

/// Servers list their keys to one client at a time.
#[test]
fn a_server_that_lists_its_keys_to_another_client_is_waited_for() {
    let (a, b) = (Server::memcached(), Server::moneta());
    equal(&a, &b, KEYS);
    for server in [&a, &b] {
        // It reads no further, so the list is under way for as long as it is there.
        let mut other = server.client();
        other.ask("lru_crawler metadump all\r\n", "");
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(500));
                drop(other);
            });
            let report = verify(config(&a, &b));
            assert_eq!(found(&report), Counts { compared: 20_000, equal: 20_000, ..Counts::default() });
        });
    }
}
