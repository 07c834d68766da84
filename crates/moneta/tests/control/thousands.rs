//! Ten thousand instances that restart at once, beside a small fleet whose clients go on.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::clients::{Fleet, clients_see_nothing};
use crate::common::{moneta, until};
use crate::support::{Answering, Control, Over, try_ask};

const INSTANCES: usize = 10_000;
const CONNECTIONS: usize = 32;
/// Seconds between two renewals.
const PERIOD: u64 = 1;
/// How long a restart takes: more than three renewals.
const SILENCE: Duration = Duration::from_secs(6);
/// Renewals in a request.
const BATCH: usize = 500;

/// Each of them is registered, from several connections at once.
fn register(control: SocketAddr, cache: &str, version: u32) {
    let next = AtomicUsize::new(0);
    let record = json!({
        "kind": "node", "zone": "a", "status": "UP", "version": version.to_string(), "renew_every_s": PERIOD,
        "addresses": { "cache": cache },
    });
    let record = record.to_string();
    std::thread::scope(|scope| {
        for _ in 0..CONNECTIONS {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= INSTANCES {
                        return;
                    }
                    let path = format!("/v1/default/instances/many/i-{number}");
                    let (status, said) = try_ask(control, "PUT", &path, "", &record).expect("it answers");
                    assert_eq!(status, 200, "{said}");
                }
            });
        }
    });
}

/// All renew, again and again; how often that was done.
fn renew(control: SocketAddr, is_over: &AtomicBool, rounds: &AtomicUsize) {
    while !is_over.load(Ordering::Relaxed) {
        for first in (0..INSTANCES).step_by(BATCH) {
            let renewals: Vec<Value> =
                (first..first + BATCH).map(|number| json!({ "app": "many", "id": format!("i-{number}") })).collect();
            let body = Value::from(renewals).to_string();
            let (status, said) = try_ask(control, "POST", "/v1/default/renewals", "", &body).expect("it answers");
            assert_eq!(status, 200, "{said}");
        }
        rounds.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(Duration::from_millis(300));
    }
}

/// How many are away, of all apps.
fn away(control: &Control) -> usize {
    let page = control.good("GET", "/v1/default/instances", &Value::Null);
    page["instances"].as_array().unwrap().iter().filter(|one| one["state"] == "away").count()
}

#[test]
#[ignore = "ten thousand instances register twice: make test-control"]
fn ten_thousand_instances_restart_at_once_and_none_is_away() {
    let folder = tempfile::tempdir().unwrap();
    let (data, answering) = (folder.path().display().to_string(), Answering::start());
    let control =
        Control::run(&mut moneta(&["control", "--listen", "127.0.0.1:0", "--renew-every", "1", "--data", &data]));
    control.until_ready();
    let fleet = Fleet::start(&control, &format!("http://{}", control.address));
    let (address, cache) = (control.address, &*answering.address);
    clients_see_nothing(&fleet.proxy, |more| {
        register(address, cache, 1);
        let (is_over, rounds) = (AtomicBool::new(false), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            scope.spawn(|| renew(address, &is_over, &rounds));
            until("all renew", || rounds.load(Ordering::Relaxed) >= 2);
        });
        // Now none of them renews until it has registered again: all are missed.
        std::thread::sleep(SILENCE);
        assert_eq!(away(&control), 0);
        let begun = Instant::now();
        register(address, cache, 2);
        println!("{INSTANCES} instances registered again within {:.1} s", begun.elapsed().as_secs_f64());
        std::thread::scope(|scope| {
            let _over = Over(&is_over);
            is_over.store(false, Ordering::Relaxed);
            let before = rounds.load(Ordering::Relaxed);
            scope.spawn(|| renew(address, &is_over, &rounds));
            until("all renew again", || rounds.load(Ordering::Relaxed) >= before + 3);
        });
        fleet.hears_of(&control, 7);
        more(100);
    });
    let page = control.good("GET", "/v1/default/instances?app=many", &Value::Null);
    let all = page["instances"].as_array().unwrap();
    assert_eq!(all.len(), INSTANCES);
    assert_eq!(all.iter().find(|one| one["value"]["version"] != "2"), None);
    assert_eq!(away(&control), 0);
    assert!(fleet.is_up());
    control.end();
}
