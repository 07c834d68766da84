//! Warm jobs between real processes, beside a client that reads, writes and deletes. What they must not do shows nowhere else: put an
//! older value over a newer one, bring back what was deleted, have a target read that lacks a part, or end because a process did.

#[path = "../common/mod.rs"]
mod common;
mod fills;
mod fleet;
mod repairs;
#[cfg(feature = "stores")]
#[path = "../stores/server.rs"]
mod server;
#[cfg(feature = "stores")]
mod stores;

use std::collections::BTreeMap;
use std::io::BufReader;

use common::plane::Plane;
use common::{Process, Signal, moneta, output, printed, refused, until};
use fleet::{Client, Fleet, ask, state_of};
use serde_json::json;

#[test]
#[ignore = "it waits for leases of workers that are gone, and for changes of a minute: `make test-warm`"]
fn a_replica_is_filled_while_its_workers_and_the_control_plane_are_killed() {
    let mut fleet = Fleet::start(&|plane, slot| plane.node("a", slot, &[]));
    let client = Client::start(&fleet.proxy, BTreeMap::new());
    let id = fleet.warm("direct");
    let mut first = fleet.worker("first");
    until("it is at work", || state_of(&fleet.plane.job(&id), "copy-0") == "running");
    client.goes_on();
    first.kill();
    let (second, third) = (fleet.worker("second"), fleet.worker("third"));
    until("another has its tasks", || {
        let job = fleet.plane.job(&id);
        job["tasks"].as_array().is_some_and(|tasks| tasks[..2].iter().all(|task| task["term"].as_u64() > Some(1)))
    });
    fleet.plane.kill();
    client.goes_on();
    fleet.plane.again();
    // A worker that is stopped for longer than its lease, and back.
    let stopped = fleet.plane.job(&id)["tasks"][0]["worker"].as_str().unwrap_or("").to_owned();
    let (stopped, other) = if stopped.starts_with("second") { (&second, &third) } else { (&third, &second) };
    stopped.signal(Signal::SIGSTOP);
    let job = fleet.until_done(&id, &[other]);
    stopped.signal(Signal::SIGCONT);
    client.goes_on();
    let known = client.end();
    fleet.check(&known);
    assert_eq!(state_of(&job, "compare"), "done");
    let shown = printed(&mut moneta(&["job", "show", &id, "--control", &fleet.plane.url()]));
    assert!(shown.contains("keys compared"), "{shown}");
    assert_eq!(fleet.sources.len(), 2);
}

#[test]
#[ignore = "it waits for leases of workers that are gone, and for changes of a minute: `make test-warm`"]
fn a_replica_is_filled_by_files_and_goes_on_after_a_pause_and_the_end_of_a_source() {
    let tiers = tempfile::tempdir().unwrap();
    let node = |plane: &Plane, slot: &str| {
        let tier = format!("{}:129m", tiers.path().join(slot).display());
        plane.node("a", slot, &["--flash", &tier])
    };
    let mut fleet = Fleet::start(&node);
    let client = Client::start(&fleet.proxy, BTreeMap::new());
    let id = fleet.warm(fleet.volume.path().to_str().unwrap());
    let workers: Vec<Process> = ["first", "second"].map(|name| fleet.worker(name)).into_iter().collect();
    until("it is at work", || state_of(&fleet.plane.job(&id), "fill-0") == "running");
    let job = |order: &str| printed(&mut moneta(&["job", order, &id, "--control", &fleet.plane.url()]));
    assert!(job("pause").contains("is paused"));
    until("its workers give their tasks back", || {
        let job = fleet.plane.job(&id);
        job["tasks"].as_array().is_some_and(|tasks| tasks.iter().all(|task| task["state"] != "running"))
    });
    client.goes_on();
    assert!(job("resume").contains("is running"));
    until("it is at work again", || state_of(&fleet.plane.job(&id), "dump-0") == "running");
    // A source ends in order, so that it has what it has answered, and comes back under its slot. Nothing else has its keys.
    let known = client.end();
    let mut source = fleet.sources.remove(1);
    source.signal(Signal::SIGTERM);
    source.wait();
    let source = node(&fleet.plane, "a1");
    until("the proxy asks it", || {
        let stream = fleet.proxy.connect();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        (0..20).all(|number| ask(&stream, &mut reader, &format!("mg old{number} k\r\n")).starts_with("HD"))
    });
    let client = Client::start(&fleet.proxy, known);
    let job = fleet.until_done(&id, &workers.iter().collect::<Vec<_>>());
    let known = client.end();
    fleet.check(&known);
    assert_eq!(state_of(&job, "tidy"), "done");
    assert_eq!(std::fs::read_dir(fleet.volume.path()).unwrap().count(), 0, "its files are gone");
    drop(source);
}

#[test]
#[ignore = "tasks that fail rest for a while: `make test-warm`"]
fn a_target_whose_ring_changes_meanwhile_is_not_read_by_the_old_one() {
    let fleet = Fleet::start(&|plane, slot| plane.node("a", slot, &[]));
    let url = fleet.plane.url();
    for (to, via) in [("c", "direct"), ("d", fleet.volume.path().to_str().unwrap())] {
        let slots = [format!("{to}0"), format!("{to}1")];
        fleet.plane.change(&json!({ "add_replica": { "name": to, "zone": to, "slots": slots } }));
        let nodes = slots.each_ref().map(|slot| fleet.plane.node(to, slot, &[]));
        let warm = ["warm", "--app", "app", "--from", "a", "--to", to, "--via", via, "--rate", "150k", "--detach"];
        let told = printed(&mut moneta(&[&warm[..], &["--control", &url]].concat()));
        let id = told.split([' ', ':']).nth(1).unwrap().to_owned();
        let workers = ["first", "second"].map(|name| fleet.worker(name));
        workers[0].until("all is being read", || {
            let job = fleet.plane.job(&id);
            let reads = |task: &serde_json::Value| task["progress"]["bytes"].as_u64() > Some(0);
            job["tasks"].as_array().is_some_and(|tasks| tasks.iter().filter(|task| reads(task)).count() >= 2)
        });
        fleet.plane.change(&json!({ "weight": { "replica": to, "slot": slots[0], "weight": 3 } }));
        fleet.until_ended(&id, &workers.each_ref());
        let told: String = workers.iter().map(|worker| worker.stderr()).collect();
        assert!(told.contains(&format!("the ring of {to} has changed: begun anew")), "{told}");
        // Each key is where the ring of now has it.
        for key in (0..50).map(|number| format!("old{number}")) {
            let page = printed(&mut moneta(&["route", "--control", &url, "control:app", &key]));
            let node = nodes.iter().find(|node| page.contains(&node.address().to_string())).expect("it is routed");
            assert!(node.exchange(&format!("mg {key} k\r\n")).starts_with("HD"), "{key} by {via}: {page}");
        }
    }
}

#[test]
#[ignore = "a dump is made twice, and changes are waited for: `make test-warm`"]
fn files_that_are_damaged_are_dumped_anew_and_only_those_of_their_source() {
    let fleet = Fleet::start(&|plane, slot| plane.node("a", slot, &[]));
    let client = Client::start(&fleet.proxy, BTreeMap::new());
    let volume = fleet.volume.path().to_str().unwrap().to_owned();
    let id = fleet.warm(&volume);
    // A worker without the volume, or with another, is given none of the tasks.
    let other = tempfile::tempdir().unwrap();
    let stranger = fleet::worker(&fleet.plane, "stranger", other.path().to_str().unwrap(), &[]);
    let worker = |name: &str, tasks: &str| {
        let control = fleet.plane.url();
        let arguments = ["worker", "--control", &control, "--name", name, "--tasks", tasks, "--volume", &volume];
        Process::start(&mut moneta(&arguments))
    };
    // It has the first task alone, a dump.
    let first = worker("first", "1");
    let base = fleet.volume.path().join(&id).join("0/base");
    first.until("its base is there", || base.join("DONE").exists());
    let segment = std::fs::read_dir(&base).unwrap().map(|entry| entry.unwrap().path());
    let segment = segment.into_iter().find(|path| path.extension().is_some_and(|end| end == "segment")).unwrap();
    let mut bytes = std::fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    std::fs::write(&segment, bytes).unwrap();
    let second = worker("second", "3");
    let job = fleet.until_done(&id, &[&first, &second, &stranger]);
    fleet.check(&client.end());
    let dump = |number: usize| job["tasks"][2 * number]["checkpoint"]["anew"].clone();
    assert_eq!((dump(0), dump(1)), (json!(1), json!(0)), "{job:#}");
    let failures = job["tasks"].as_array().unwrap().iter().map(|task| task["failures"].as_u64().unwrap()).sum::<u64>();
    assert_eq!(failures, 0, "{job:#}");
    assert!(first.stderr().contains("files are damaged: dumped anew"), "{}", first.stderr());
    let strangers = job["tasks"].as_array().unwrap().iter().filter(|task| {
        task["worker"].as_str().is_some_and(|worker| worker.starts_with("stranger")) && task["name"] != "compare"
    });
    assert_eq!(strangers.count(), 0, "{job:#}");
}

#[test]
fn a_job_that_is_cancelled_leaves_no_files_and_a_target_that_is_not_read() {
    let fleet = Fleet::start(&|plane, slot| plane.node("a", slot, &[]));
    let id = fleet.warm(fleet.volume.path().to_str().unwrap());
    let worker = fleet.worker("first");
    until("there are files", || std::fs::read_dir(fleet.volume.path().join(&id)).is_ok_and(|files| files.count() > 0));
    let url = fleet.plane.url();
    let warm = ["warm", "--app", "app", "--from", "a", "--to", "b", "--via", "/nowhere", "--control", &url];
    let said = refused(&mut moneta(&warm), 1);
    assert!(said.contains(&id), "a second job that fills the replica is refused: {said}");
    printed(&mut moneta(&["job", "cancel", &id, "--control", &url]));
    worker.until("it has ended", || fleet.plane.job(&id)["state"] == "cancelled");
    assert_eq!(std::fs::read_dir(fleet.volume.path()).unwrap().count(), 0, "its files are gone");
    let begun = Process::start(&mut moneta(&warm));
    begun.until("it says what it waits for", || {
        begun.stdout().contains("no worker has taken a task yet: is there one of the app app with --volume /nowhere?")
    });
    drop(begun);
    assert_eq!(fleet.plane.topology()["replicas"][1]["write_only"], true);
    // A replica cannot be filled from itself, nor from or into one that there is not.
    for (from, to) in [("b", "b"), ("c", "b"), ("a", "c")] {
        let ended = output(&mut moneta(&["warm", "--app", "app", "--from", from, "--to", to, "--control", &url]));
        assert!(!ended.status.success(), "{from} into {to}");
    }
}
