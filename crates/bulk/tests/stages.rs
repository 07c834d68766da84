//! Where a job's time is said to go: a stage that waits unseen would have its user look at the wrong end.

use std::thread::sleep;
use std::time::Duration;

use moneta_bulk::stages::{For, Lap, Meter, Passed, Shares, Stages, Waited, waiting};

#[test]
fn time_is_of_what_was_waited_for_and_the_rest_is_work() {
    let meter = Meter::default();
    let mut lap = Lap::begin();
    waiting(For::Source, || sleep(Duration::from_millis(30)));
    waiting(For::Target, || waiting(For::Source, || sleep(Duration::from_millis(60))));
    meter.lap(&mut lap);
    meter.wrote(10, 1000);
    let before = meter.stages(20, 2000);
    assert_eq!((before.read.items, before.written.bytes), (20, 1000));
    assert!(before.waited.source >= 0.03 && before.waited.target >= 0.06 && before.waited.bound == 0.0);
    assert!(before.thread_seconds >= before.waited.source + before.waited.target);
    waiting(For::Bound, || sleep(Duration::from_millis(20)));
    meter.lap(&mut lap);
    let since = meter.stages(50, 5000).since(&before);
    assert_eq!((since.read.items, since.written.items, since.waited.source), (30, 0, 0.0));
    assert!(since.waited.bound >= 0.02, "a lap is not counted twice: {since:?}");
}

#[test]
fn rates_are_of_the_time_and_shares_make_one() {
    let stages = Stages {
        seconds: 2.0,
        read: Passed { items: 10, bytes: 4_000_000 },
        written: Passed { items: 8, bytes: 3_000_000 },
        thread_seconds: 4.0,
        waited: Waited { source: 0.4, bound: 0.0, target: 1.6 },
    };
    let held = Stages { waited: Waited { bound: 2.5, ..stages.waited }, ..stages };
    assert_eq!(held.rates().limit, "bound");
    let rates = stages.rates();
    assert_eq!(rates.limit, "work");
    assert_eq!(rates.time, Shares { source: 0.1, bound: 0.0, target: 0.4, work: 0.5 });
    assert_eq!(
        rates.to_string(),
        "read 5/s, 2.0 MB/s; written 4/s, 1.5 MB/s; waits for source 10 %, bound 0 %, target 40 %, works 50 %: limited by its \
         own work"
    );
}
