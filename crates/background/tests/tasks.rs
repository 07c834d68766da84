//! Guards the list of tasks: one that ended or failed must not pass for one that runs, and one that is told to stop must not
//! sleep on.

use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use moneta_background::{Joined, Listed, list, start, unwell};

/// Against hangs of the test only.
const PATIENCE: Duration = Duration::from_secs(60);

fn listed(name: &str) -> Listed {
    list().into_iter().find(|listed| listed.name == name).expect("it was started")
}

#[test]
fn a_task_is_listed_from_its_start_to_its_end() {
    let (end, ended) = channel::<()>();
    let task = start("test-span-1", move |_| {
        let _ = ended.recv();
    });
    let task = task.expect("a thread");
    let during = listed("test-span");
    assert_eq!((during.running, during.started, during.last_end), (1, 1, None));
    drop(end);
    assert_eq!(task.join(), Joined::Ended);
    let after = listed("test-span");
    assert_eq!((after.running, after.started, after.failures), (0, 1, 0));
    assert!(after.last_end.is_some_and(|seconds| seconds > 1.6e9));
}

#[test]
fn a_panic_is_a_failure_that_makes_the_process_unwell() {
    assert!(!unwell().iter().any(|why| why.contains("test-panic")));
    let task = start("test-panic", |_| panic!("as planned")).expect("a thread");
    assert_eq!(task.join(), Joined::Panicked);
    let after = listed("test-panic");
    assert_eq!((after.running, after.failures, after.panics), (0, 1, 1));
    assert!(unwell().iter().any(|why| why.contains("the task test-panic panicked")));
}

#[test]
fn what_a_task_tells_of_is_counted_while_it_runs() {
    let (told, is_told) = channel();
    let (end, ended) = channel::<()>();
    let task = start("test-failures", move |run| {
        run.failed(&"the disk is full");
        told.send(()).expect("the test waits");
        let _ = ended.recv();
    });
    let task = task.expect("a thread");
    is_told.recv().expect("it tells");
    let during = listed("test-failures");
    assert_eq!((during.running, during.failures, during.panics), (1, 1, 0));
    assert_eq!(during.last_failure.as_deref(), Some("the disk is full"));
    drop(end);
    task.join();
}

#[test]
fn one_that_is_told_to_stop_does_not_sleep_on() {
    let task = start("test-sleeper", |run| while run.sleep(Duration::from_secs(3600)) {}).expect("a thread");
    task.stop();
    assert_eq!(task.join_by(Instant::now() + PATIENCE), Joined::Ended);
}

#[test]
fn one_that_does_not_end_is_not_waited_for_beyond_the_deadline() {
    let (end, ended) = channel::<()>();
    let task = start("test-late", move |_| {
        let _ = ended.recv();
    });
    let task = task.expect("a thread");
    task.stop();
    assert_eq!(task.join_by(Instant::now() + Duration::from_millis(20)), Joined::Late);
    assert_eq!(listed("test-late").running, 1);
    drop(end);
}

#[cfg(feature = "runtime")]
mod on_the_runtime {
    use moneta_background::runtime::{handle, spawn};

    use super::*;

    #[test]
    fn all_tasks_share_one_thread() {
        let name = || async { std::thread::current().id() };
        let here = |handle: tokio::runtime::Handle| handle.block_on(handle.spawn(name())).expect("it ends");
        let first = here(handle().expect("a runtime"));
        assert_eq!(first, here(handle().expect("the same")));
        assert_eq!(listed("runtime").started, 1);
    }

    #[test]
    fn one_there_is_listed_and_stops_when_it_is_asked_to() {
        let task = spawn("test-waits", |run| async move { run.stopped().await }).expect("a runtime");
        assert_eq!(listed("test-waits").running, 1);
        task.stop();
        assert_eq!(task.join_within(PATIENCE), Joined::Ended);
        assert_eq!(listed("test-waits").running, 0);
    }

    #[test]
    fn one_that_panics_there_takes_no_other_along() {
        let broken = spawn("test-breaks", |run| async move {
            let _run = run;
            panic!("as planned");
        });
        broken.expect("a runtime").join_within(PATIENCE);
        assert_eq!(listed("test-breaks").panics, 1);
        let task = spawn("test-goes-on", |run| async move { run.stopped().await }).expect("a runtime");
        task.stop();
        assert_eq!(task.join_within(PATIENCE), Joined::Ended);
    }
}
