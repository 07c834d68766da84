//! `campaigns fleet` on a small fleet: every part runs, each renewal and change is answered, and each reader is told of each change.

use std::time::Duration;

use moneta_campaigns::fleet::{Plan, run};
use moneta_testkit::process::moneta_program;

#[test]
fn a_small_fleet_is_registered_renews_and_is_told_of_changes() {
    let plan = Plan {
        moneta: moneta_program().expect("it is built"),
        options: Vec::new(),
        server_cpus: Vec::new(),
        instances: 60,
        period: Duration::from_secs(2),
        apps: 3,
        feeds: 20,
        changes: 10,
        rest: Duration::from_secs(3),
        seconds: Duration::from_secs(3),
    };
    let measured = run(&plan).expect("it is measured");
    assert_eq!((measured.registered.count, measured.reached.refused), (60, 0));
    assert!(measured.reached.changes >= 20, "{measured:?}");
    assert!(measured.renewals >= 60, "{measured:?}");
    // Of at least one change all readers of its app were told.
    assert!(measured.reached.measured > 0, "{measured:?}");
    assert!(measured.rest.resident > 1 << 20, "{measured:?}");
}
