//! Ends at any moment, an old ledger, a full disk.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};

use crate::common::{Signal, moneta, printed, refused, until};
use crate::support::{Control, try_ask};

const TOPOLOGY: &str = "/v1/default/topologies/feed";

fn create(control: &Control) {
    let replicas = json!([{ "name": "a1", "zone": "a", "slots": ["a0", "a1"] }]);
    control.good("POST", TOPOLOGY, &json!({ "change": { "create": { "replicas": replicas } } }));
}

fn weight(weight: u64) -> String {
    json!({ "change": { "weight": { "replica": "a1", "slot": "a0", "weight": weight } } }).to_string()
}

fn document(control: &Control) -> (u64, u64) {
    let document = control.good("GET", TOPOLOGY, &Value::Null);
    let weight = document["replicas"][0]["slots"][0]["weight"].as_u64().unwrap();
    (document["epoch"].as_u64().unwrap(), weight)
}

#[test]
fn what_was_acknowledged_is_there_whenever_the_process_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let mut control = Control::start(folder.path(), &[]);
    create(&control);
    let mut told = 1;
    for turn in 0..12 {
        let acknowledged = AtomicU64::new(0);
        let (address, first) = (control.address, told + 1);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                // Weights and epochs count in step, so that each change is told from the others.
                for number in first.. {
                    match try_ask(address, "POST", TOPOLOGY, "", &weight(number)) {
                        Some((200, _)) => acknowledged.store(number, Ordering::Relaxed),
                        _ => return,
                    }
                }
            });
            until("some are acknowledged", || acknowledged.load(Ordering::Relaxed) > first);
            std::thread::sleep(Duration::from_millis(turn * 3));
            control.kill();
            writing.join().unwrap();
        });
        control = Control::start(folder.path(), &[]);
        let (epoch, weight) = document(&control);
        let acknowledged = acknowledged.load(Ordering::Relaxed);
        assert!(epoch == weight, "a change is whole: {epoch} {weight}");
        assert!((acknowledged..=acknowledged + 1).contains(&epoch), "{epoch} after {acknowledged}");
        // Each has its record, and those that did not happen have none.
        let acts = control.good("GET", "/v1/default/audit?limit=1000", &Value::Null);
        let epochs: Vec<u64> =
            acts["acts"].as_array().unwrap().iter().filter_map(|act| act["after"]["epoch"].as_u64()).collect();
        assert_eq!(epochs.first(), Some(&epoch));
        assert_eq!(epochs.len() as u64, epoch.min(1_000));
        told = epoch;
    }
    control.end();
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn epochs_go_on_above_those_that_instances_have_seen_when_an_old_ledger_comes_back() {
    let folder = tempfile::tempdir().unwrap();
    let (data, old) = (folder.path().join("data"), folder.path().join("old"));
    let control = Control::start(&data, &[]);
    create(&control);
    control.end();
    copy(&data, &old);
    let control = Control::start(&data, &[]);
    let record = json!({ "kind": "other" });
    control.good("PUT", "/v1/default/instances/feed/i", &record);
    for number in 2..10 {
        let (status, _) = try_ask(control.address, "POST", TOPOLOGY, "", &weight(number)).unwrap();
        assert_eq!(status, 200);
    }
    let (_, cursor) = control.feed("").round();
    control.end();
    let control = Control::start(&old, &[]);
    assert_eq!(document(&control), (1, 1));
    // The reader's place is ahead of this ledger: it is told all anew.
    let (events, _) = control.feed(&format!("cursor={cursor}")).round();
    assert!(events[0]["begin"].is_string(), "{events:?}");
    // The instance is not known any more, and says what it has seen when it registers.
    let renewal = json!([{ "app": "feed", "id": "i", "epochs": { "feed": 9 } }]);
    assert_eq!(control.good("POST", "/v1/default/renewals", &renewal)[0]["register"], true);
    control.good("PUT", "/v1/default/instances/feed/i", &json!({ "kind": "other", "epochs": { "feed": 9 } }));
    until("the epoch is above", || document(&control) == (10, 1));
    // Another that is behind changes nothing, and neither does a lie.
    for epoch in [3_u64, u64::MAX, 1 << 50] {
        let renewal = json!([{ "app": "feed", "id": "i", "epochs": { "feed": epoch } }]);
        assert_eq!(control.good("POST", "/v1/default/renewals", &renewal)[0]["ok"], true);
    }
    let (status, _) = try_ask(control.address, "POST", TOPOLOGY, "", &weight(5)).unwrap();
    assert_eq!((status, document(&control)), (200, (11, 5)));
    control.end();
}

#[test]
fn a_backup_that_is_taken_while_it_serves_makes_another_ledger() {
    let folder = tempfile::tempdir().unwrap();
    let (data, other, file) =
        (folder.path().join("data"), folder.path().join("other"), folder.path().join("fleet.jsonl"));
    let (file, other_text) = (file.display().to_string(), other.display().to_string());
    let control = Control::start(&data, &[]);
    create(&control);
    control.good("PUT", "/v1/default/instances/feed/i", &json!({ "kind": "other", "renew_every_s": 300 }));
    let (_, cursor) = control.feed("").round();
    let url = format!("http://{}", control.address);
    let said = printed(&mut moneta(&["control", "backup", &file, "--control", &url]));
    assert!(said.ends_with(&format!(" keys in {file}\n")), "{said}");
    // The fleet as people see it.
    let status = printed(&mut moneta(&["status", "--control", &url, "--app", "feed"]));
    assert!(status.contains("1 of 1 instances renew") && status.contains("\nfeed "), "{status}");
    let status = printed(&mut moneta(&["status", "--control", &url, "--json"]));
    let status: Value = serde_json::from_str(&status).unwrap();
    assert_eq!(status["apps"][0]["epoch"], 1);
    control.end();
    printed(&mut moneta(&["control", "restore", &file, "--data", &other_text]));
    let said = refused(&mut moneta(&["control", "restore", &file, "--data", &other_text]), 1);
    assert!(said.contains(&other_text), "it has keys: {said}");
    let control = Control::start(&other, &[]);
    assert_eq!(document(&control), (1, 1));
    let (events, at) = control.feed(&format!("cursor={cursor}")).round();
    assert_eq!((events.len(), events[0]["begin"].is_string()), (3, true), "{events:?}");
    assert_ne!(at.split_once(':').unwrap().0, cursor.split_once(':').unwrap().0);
    let acts = control.good("GET", "/v1/default/audit", &Value::Null);
    assert_eq!(acts["acts"].as_array().unwrap().len(), 2);
    control.end();
}

/// A control plane on a folder in which no file may grow by more than so many KiB, as on a disk that is almost full.
pub fn limited(folder: &Path, room: u64) -> Control {
    let longest = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().metadata().unwrap().len()).max().unwrap();
    // A signal that would end the process is ignored.
    let limited = format!("trap '' XFSZ; ulimit -f {}; exec \"$@\"", longest.div_ceil(1_024) + room);
    let data = folder.display().to_string();
    let plain = moneta(&["control", "--listen", "127.0.0.1:0", "--renew-every", "1", "--data", &data]);
    let mut command = moneta_testkit::process::clean("bash");
    command.args(["-c", &limited, "bash"]).arg(plain.get_program()).args(plain.get_args());
    let control = Control::run(&mut command);
    control.until_ready();
    control
}

#[test]
fn on_a_full_disk_changes_fail_and_everything_else_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    create(&control);
    control.good("PUT", "/v1/default/instances/feed/i", &json!({ "kind": "other", "renew_every_s": 300 }));
    control.end();
    let control = limited(folder.path(), 64);
    let filler = "x".repeat(15_000);
    let record = |number: u64| {
        json!({ "kind": "other", "renew_every_s": 300, "metadata": { "x": filler, "n": number } }).to_string()
    };
    let mut last = (0, String::new());
    let mut written = 0;
    for number in 0..2_000 {
        let path = format!("/v1/default/instances/filler/i-{number}");
        last = try_ask(control.address, "PUT", &path, "", &record(number)).unwrap();
        if last.0 != 200 {
            break;
        }
        written += 1;
    }
    assert_eq!(last.0, 503, "{}", last.1);
    // What is known is answered, what renews is heard.
    let renewal = json!([{ "app": "feed", "id": "i", "vitals": { "items": 7 } }]);
    let heard = || {
        let (status, answer) = control.ask("POST", "/v1/default/renewals", &renewal);
        status == 200 && answer[0]["ok"] == true
    };
    until("a renewal is answered", heard);
    control.process.signal(Signal::SIGTERM);
    drop(control);
    // With room again all that was acknowledged is there.
    let control = Control::start(folder.path(), &[]);
    let listed = control.good("GET", "/v1/default/instances?app=filler", &Value::Null);
    assert!(listed["instances"].as_array().unwrap().len() as u64 >= written);
    assert_eq!(document(&control).0, 1);
    control.good("PUT", "/v1/default/instances/feed/j", &json!({ "kind": "other" }));
    control.end();
}
