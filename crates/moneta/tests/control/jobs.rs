//! Jobs on real processes: a task has one worker at a time, whoever claims, falls silent, comes back or is told to stop; a job is
//! there as it was after the control plane was killed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};

use crate::common::{moneta, output, printed, until};
use crate::support::{Control, try_ask};

const NONE: Value = Value::Null;

/// Begins a job of these tasks, whose workers may be silent for a minute.
fn begin(control: &Control, id: &str, tasks: &Value) -> (u16, Value) {
    let job = json!({ "kind": "k", "app": "feed", "lease_s": 60, "tries": 2, "tasks": tasks });
    control.ask("PUT", &format!("/v1/default/jobs/{id}"), &job)
}

fn claim(control: &Control, worker: &str) -> Value {
    control.good("POST", "/v1/default/claims", &json!({ "worker": worker, "kinds": ["k"] }))
}

/// What a worker says of a task that it was given, with more; the status and the answer.
fn say(control: &Control, worker: &str, given: &Value, more: &Value) -> (u16, Value) {
    let path = format!("/v1/default/jobs/{}/tasks/{}", text(&given["job"]), text(&given["task"]));
    let mut said = more.clone();
    (said["worker"], said["term"]) = (json!(worker), given["term"].clone());
    control.ask("POST", &path, &said)
}

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

fn show(control: &Control, id: &str) -> Value {
    control.good("GET", &format!("/v1/default/jobs/{id}"), &NONE)
}

fn order(control: &Control, id: &str, order: &str) -> (u16, Value) {
    control.ask("POST", &format!("/v1/default/jobs/{id}"), &json!({ "order": order, "why": "a test" }))
}

#[test]
fn a_job_goes_through_its_tasks_in_order_and_ends() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let tasks = json!([{ "name": "one" }, { "name": "two", "after": ["one"] }]);
    assert_eq!(begin(&control, "j", &tasks).0, 200);
    assert_eq!(begin(&control, "j", &tasks).0, 200, "asked for again it is the same one");
    assert_eq!(begin(&control, "j", &json!([{ "name": "other" }])).0, 409);
    let one = claim(&control, "w");
    assert_eq!((&one["task"], &one["term"]), (&json!("one"), &json!(1)));
    assert_eq!(claim(&control, "v")["task"], NONE, "the second comes after the first");
    let progress = json!({ "progress": { "items": 7 }, "checkpoint": { "at": 3 } });
    assert_eq!(say(&control, "w", &one, &progress), (200, json!({ "word": "go" })));
    let shown = show(&control, "j");
    assert_eq!((&shown["tasks"][0]["progress"]["items"], &shown["tasks"][0]["live"]), (&json!(7), &json!(true)));
    // One that failed is given again, with its checkpoint, and then no more.
    assert_eq!(say(&control, "w", &one, &json!({ "end": "failed", "why": "no luck" })).0, 200);
    until("it has rested", || {
        let again = claim(&control, "w");
        again["task"] == "one"
            && again["checkpoint"]["at"] == 3
            && say(&control, "w", &again, &json!({ "end": "failed", "why": "none at all" })).0 == 200
    });
    let failed = show(&control, "j");
    assert_eq!((&failed["state"], &failed["why"]), (&json!("failed"), &json!("one: none at all")));
    assert_eq!(claim(&control, "w")["task"], NONE);
    assert_eq!(order(&control, "j", "resume").1["state"], "running");
    for name in ["one", "two"] {
        let given = claim(&control, "w");
        assert_eq!(given["task"], name);
        assert_eq!(say(&control, "w", &given, &json!({ "end": "done" })).0, 200);
    }
    assert_eq!(show(&control, "j")["state"], "done");
    for what in ["pause", "resume", "cancel"] {
        assert_eq!(order(&control, "j", what).0, 409, "it is over");
    }
    let acts = control.good("GET", "/v1/default/audit", &NONE);
    let acts: Vec<&str> = acts["acts"].as_array().unwrap().iter().rev().map(|act| text(&act["what"])).collect();
    assert_eq!(acts[..4], ["begin_job", "claim", "checkpoint", "task_failed"], "{acts:?}");
    control.end();
}

#[test]
fn jobs_are_told_by_the_feed_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let mut feed = control.feed("kinds=jobs");
    assert_eq!(feed.round().0.len(), 1, "there is none");
    let mut of_another = control.feed("kinds=jobs&app=other");
    of_another.round();
    let tasks = json!([{ "name": "t" }, { "name": "u" }]);
    assert_eq!(begin(&control, "j", &tasks).0, 200);
    let told = feed.until(|event| event["put"]["key"] == "j");
    let value = &told["put"]["value"];
    assert_eq!((&value["state"], &value["app"], &value["waiting"]), (&json!("running"), &json!("feed"), &json!(2)));
    assert!(value["tasks"] == 2 && told["put"]["kind"] == "jobs", "{told}");
    let given = claim(&control, "w");
    feed.until(|event| event["put"]["value"]["running"] == 1);
    let metric = |name: &str| {
        let (_, text) = try_ask(control.address, "GET", "/metrics", "", "").unwrap();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("moneta_fleet_{name} ")).map(str::to_owned));
        line.unwrap_or_else(|| panic!("{name}: {text}")).trim().to_owned()
    };
    assert_eq!(say(&control, "w", &given, &json!({})).0, 200);
    assert_eq!(say(&control, "v", &given, &json!({})).0, 409);
    for (name, value) in [
        ("jobs{state=\"running\"}", "1"),
        ("tasks{state=\"running\"}", "1"),
        ("tasks{state=\"waiting\"}", "1"),
        ("tasks{state=\"silent\"}", "0"),
        ("task_renewals_total", "1"),
        ("task_renewals_late_total", "0"),
        ("task_refusals_total", "1"),
        ("tasks_taken_over_total", "0"),
    ] {
        assert_eq!(metric(name), value, "{name}");
    }
    assert_eq!(order(&control, "j", "pause").0, 200);
    feed.until(|event| event["put"]["value"]["state"] == "paused" && event["put"]["value"]["why"] == "a test");
    assert_eq!(metric("jobs{state=\"paused\"}"), "1");
    // Whose app it is not is told where it is, and of no job.
    let (events, _) = of_another.round();
    assert_eq!(events, Vec::<Value>::new());
    control.end();
}

#[test]
fn of_workers_that_claim_at_once_one_has_the_task() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let tasks: Vec<Value> = (0..5).map(|number| json!({ "name": format!("t{number}") })).collect();
    let job = json!({ "kind": "k", "app": "feed", "lease_s": 600, "tasks": tasks });
    control.good("PUT", "/v1/default/jobs/j", &job);
    let given = AtomicUsize::new(0);
    thread::scope(|scope| {
        for number in 0..20 {
            let (control, given) = (&control, &given);
            scope.spawn(move || {
                let answer = claim(control, &format!("w{number}"));
                given.fetch_add(usize::from(answer["task"].is_string()), Ordering::Relaxed);
            });
        }
    });
    assert_eq!(given.into_inner(), 5);
    let shown = show(&control, "j");
    let mut workers: Vec<&str> = shown["tasks"].as_array().unwrap().iter().map(|task| text(&task["worker"])).collect();
    workers.sort_unstable();
    workers.dedup();
    assert_eq!(workers.len(), 5, "{workers:?}");
    assert!(shown["tasks"].as_array().unwrap().iter().all(|task| task["term"] == 1), "{shown}");
    control.end();
}

#[test]
fn what_a_silent_worker_says_late_counts_for_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let job = json!({ "kind": "k", "app": "feed", "lease_s": 1, "tasks": [{ "name": "t" }] });
    control.good("PUT", "/v1/default/jobs/j", &job);
    let late = claim(&control, "silent");
    assert_eq!(say(&control, "silent", &late, &json!({ "checkpoint": 1 })).0, 200);
    let mut given = NONE;
    until("its task is given to another", || {
        given = claim(&control, "other");
        given["task"] == "t"
    });
    assert_eq!((&given["term"], &given["checkpoint"]), (&json!(2), &json!(1)));
    let (_, metrics) = try_ask(control.address, "GET", "/metrics", "", "").unwrap();
    assert!(metrics.contains("moneta_fleet_tasks_taken_over_total 1\n"), "{metrics}");
    for more in [json!({}), json!({ "checkpoint": 9 }), json!({ "end": "done" }), json!({ "progress": 9 })] {
        assert_eq!(say(&control, "silent", &late, &more).0, 409, "{more}");
    }
    // Nor under a term that it was not given.
    assert_eq!(say(&control, "silent", &given, &json!({ "checkpoint": 9 })).0, 409);
    assert_eq!(show(&control, "j")["tasks"][0]["checkpoint"], 1);
    assert_eq!(say(&control, "other", &given, &json!({ "end": "done" })).0, 200);
    control.end();
}

#[test]
fn what_a_worker_says_under_a_term_that_is_over_counts_for_nothing_though_the_task_is_its_own_again() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    assert_eq!(begin(&control, "j", &json!([{ "name": "t" }])).0, 200);
    let before = claim(&control, "w");
    assert_eq!(say(&control, "w", &before, &json!({ "checkpoint": 1, "end": "released" })).0, 200);
    let now = claim(&control, "w");
    assert_eq!((&now["task"], &now["term"]), (&json!("t"), &json!(2)));
    for more in [json!({}), json!({ "checkpoint": 9 }), json!({ "end": "done" })] {
        assert_eq!(say(&control, "w", &before, &more).0, 409, "{more}");
    }
    assert_eq!(show(&control, "j")["tasks"][0]["checkpoint"], 1);
    assert_eq!(say(&control, "w", &now, &json!({ "end": "done" })).0, 200);
    control.end();
}

#[test]
fn a_job_is_as_it_was_when_the_control_plane_is_killed_at_each_step() {
    let folder = tempfile::tempdir().unwrap();
    let mut control = Control::start(folder.path(), &[]);
    let again = |control: &mut Control| {
        let before = control.good("GET", "/v1/default/jobs", &NONE);
        control.kill();
        *control = Control::start(folder.path(), &[]);
        let mut after = control.good("GET", "/v1/default/jobs", &NONE);
        // Whom it has not heard of for a full lease it grants one.
        after["jobs"][0]["live"] = before["jobs"][0]["live"].clone();
        assert_eq!(before, after);
    };
    let job = json!({ "kind": "k", "app": "feed", "lease_s": 60, "tasks": [{ "name": "t" }, { "name": "u" }] });
    control.good("PUT", "/v1/default/jobs/j", &job);
    again(&mut control);
    let given = claim(&control, "w");
    again(&mut control);
    assert_eq!(claim(&control, "v")["task"], "u", "the first is granted to its worker");
    assert_eq!(say(&control, "w", &given, &json!({ "checkpoint": { "at": 7 } })).0, 200);
    again(&mut control);
    assert_eq!(show(&control, "j")["tasks"][0]["checkpoint"]["at"], 7);
    assert_eq!(order(&control, "j", "pause").0, 200);
    again(&mut control);
    assert_eq!(say(&control, "w", &given, &json!({})).1["word"], "stop");
    assert_eq!(order(&control, "j", "resume").0, 200);
    again(&mut control);
    let anew = claim(&control, "w");
    assert_eq!((&anew["task"], &anew["term"], &anew["checkpoint"]["at"]), (&json!("t"), &json!(2), &json!(7)));
    assert_eq!(say(&control, "w", &anew, &json!({ "end": "done" })).0, 200);
    again(&mut control);
    assert_eq!(order(&control, "j", "cancel").1["state"], "cancelled");
    again(&mut control);
    control.end();
}

#[test]
fn a_job_is_paused_resumed_and_cancelled_by_the_command() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let url = format!("http://{}", control.address);
    let job = |arguments: &[&str]| moneta(&[&["job"], arguments, &["--control", &url]].concat());
    let tasks = json!([{ "name": "t" }, { "name": "tidy", "cleans": true, "after": ["t"] }]);
    assert_eq!(begin(&control, "j", &tasks).0, 200);
    let given = claim(&control, "w");
    assert_eq!(say(&control, "w", &given, &json!({ "progress": { "text": "half of it" } })).1["word"], "go");
    let shown = printed(&mut job(&["show", "j"]));
    assert!(shown.contains("t ") && shown.contains("by w half of it"), "{shown}");
    assert_eq!(printed(&mut job(&["pause", "j"])).trim(), "j is paused");
    // Its worker is told, may write down how far it is, and gives it back.
    assert_eq!(say(&control, "w", &given, &json!({ "checkpoint": 5 })).1["word"], "stop");
    assert_eq!(say(&control, "w", &given, &json!({ "end": "released" })).0, 200);
    assert_eq!(claim(&control, "w")["task"], NONE);
    assert_eq!(printed(&mut job(&["resume", "j"])).trim(), "j is running");
    let given = claim(&control, "w");
    assert_eq!((&given["task"], &given["checkpoint"]), (&json!("t"), &json!(5)));
    assert_eq!(printed(&mut job(&["cancel", "j", "--why", "enough"])).trim(), "j is cancelling");
    assert_eq!(claim(&control, "v")["task"], NONE, "what cleans waits for those that run");
    assert_eq!(say(&control, "w", &given, &json!({ "end": "done" })).1["word"], "stop");
    let tidy = claim(&control, "v");
    assert_eq!(tidy["task"], "tidy");
    assert_eq!(say(&control, "v", &tidy, &json!({ "end": "done" })).0, 200);
    let list = printed(&mut job(&["list"]));
    assert!(list.contains("cancelled") && list.contains("enough"), "{list}");
    assert_eq!(output(&mut job(&["watch", "j"])).status.code(), Some(1));
    let none = output(&mut job(&["show", "none"]));
    assert!(!none.status.success() && String::from_utf8_lossy(&none.stderr).contains("there is no job"));
    control.end();
}

#[test]
fn jobs_are_bounded_and_the_oldest_that_is_over_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let put = |number: usize| begin(&control, &format!("j{number}"), &json!([{ "name": "t" }])).0;
    assert!((0..100).all(|number| put(number) == 200));
    assert_eq!(put(100), 409, "so many are open");
    assert!((0..100).all(|number| order(&control, &format!("j{number}"), "cancel").0 == 200));
    assert!((100..200).all(|number| put(number) == 200));
    assert_eq!(order(&control, "j150", "cancel").0, 200);
    assert_eq!(put(200), 200);
    let list = control.good("GET", "/v1/default/jobs", &NONE);
    assert_eq!(list["jobs"].as_array().unwrap().len(), 200);
    assert_eq!(control.ask("GET", "/v1/default/jobs/j0", &NONE).0, 404);
    // What a worker says is bounded, too.
    let given = claim(&control, "w");
    let long = json!({ "checkpoint": "x".repeat(5_000) });
    assert_eq!(say(&control, "w", &given, &long).0, 413);
    assert_eq!(say(&control, "w", &given, &json!({ "checkpoint": "x".repeat(20_000) })).0, 413);
    let (status, _) = try_ask(control.address, "PUT", "/v1/default/jobs/large", "", &"x".repeat(1 << 20)).unwrap();
    assert_eq!(status, 413);
    for job in [json!({ "kind": "k", "app": "a/b", "tasks": [{ "name": "t" }] }), json!([]), json!("x")] {
        assert_eq!(control.ask("PUT", "/v1/default/jobs/bad", &job).0, 400, "{job}");
    }
    control.end();
}

#[test]
fn a_job_changes_the_topology_with_its_begin_and_its_end_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let replicas =
        json!([{ "name": "a", "zone": "a", "slots": ["a0"] }, { "name": "b", "zone": "b", "slots": ["b0"] }]);
    control.good("POST", "/v1/default/topologies/feed", &json!({ "change": { "create": { "replicas": replicas } } }));
    let write_only = |on: bool| json!([{ "write_only": { "replica": "b", "on": on } }]);
    let job = json!({ "kind": "k", "app": "feed", "tasks": [{ "name": "t" }], "at_begin": write_only(true), "when_done": write_only(false) });
    let is_written_only = || {
        let page = control.good("GET", "/v1/default/topologies/feed", &NONE);
        (page["epoch"].as_u64().unwrap(), page["replicas"][1]["write_only"] == true)
    };
    control.good("PUT", "/v1/default/jobs/j", &job);
    assert_eq!(is_written_only(), (2, true));
    let given = claim(&control, "w");
    assert_eq!(say(&control, "w", &given, &json!({ "end": "done" })).0, 200);
    assert_eq!((show(&control, "j")["state"].clone(), is_written_only()), (json!("done"), (3, false)));
    // Where the replica is gone by then, the job has failed, and says why.
    control.good("PUT", "/v1/default/jobs/k", &job);
    control.good("POST", "/v1/default/topologies/feed", &json!({ "change": { "remove_replica": { "name": "b" } } }));
    let given = claim(&control, "w");
    assert_eq!(say(&control, "w", &given, &json!({ "end": "done" })).0, 200);
    let failed = show(&control, "k");
    assert!(failed["state"] == "failed" && text(&failed["why"]).contains("no replica `b`"), "{failed}");
    // It may be resumed, so no other one begins with the same change until it is cancelled.
    let refused = control.ask("PUT", "/v1/default/jobs/l", &job);
    assert!(refused.0 == 409 && refused.1["error"].as_str().unwrap().contains("the job k"), "{refused:?}");
    assert_eq!(order(&control, "k", "cancel").1["state"], "cancelled");
    // And one whose begin cannot be had does not begin.
    assert_eq!(control.ask("PUT", "/v1/default/jobs/l", &job).0, 404);
    assert_eq!(control.ask("GET", "/v1/default/jobs/l", &NONE).0, 404);
    control.end();
}

#[test]
fn of_each_slot_one_fill_is_open_and_a_node_that_comes_empty_again_begins_anew() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let replicas = json!([
        { "name": "a", "zone": "a", "slots": ["a0", "a1"] },
        { "name": "b", "zone": "b", "slots": ["b0", "b1"] }
    ]);
    control.good("POST", "/v1/default/topologies/feed", &json!({ "change": { "create": { "replicas": replicas } } }));
    let wish =
        |slot: &str, from: &str| json!({ "app": "feed", "replica": "b", "slot": slot, "from": from, "rate": 1000 });
    let fill = |id: &str, wish: &Value| control.ask("PUT", &format!("/v1/default/fills/{id}"), wish);
    let running = |id: &str| (200, json!({ "job": id, "state": "running" }));
    assert_eq!(fill("f1", &wish("b0", "a")), running("f1"));
    assert_eq!(fill("f1", &wish("b0", "a")), running("f1"), "asked for again it is the same one");
    assert_eq!(fill("f1", &wish("b1", "a")).0, 409);
    assert_eq!(fill("f2", &wish("b1", "a")), running("f2"));
    let shown = show(&control, "f1");
    assert_eq!(
        (&shown["kind"], shown["tasks"].as_array().map(Vec::len)),
        (&json!("fill"), Some(3)),
        "two sources, then the comparison: {shown}"
    );
    assert_eq!(fill("f3", &wish("b0", "a")), running("f3"));
    assert_eq!(show(&control, "f1")["state"], "cancelled");
    assert_eq!(show(&control, "f2")["state"], "running");
    for (wrong, status) in [(wish("b2", "a"), 404), (wish("b0", "b"), 400), (wish("b0", "c"), 404)] {
        assert_eq!(fill("f4", &wrong).0, status, "{wrong}");
    }
    let mut wrong = wish("b0", "a");
    wrong["rate"] = json!(0);
    assert_eq!(fill("f4", &wrong).0, 400);
}

#[test]
fn a_task_that_needs_a_volume_is_given_to_a_worker_that_has_it() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let tasks = json!([{ "name": "files", "volume": "/mnt/a" }, { "name": "direct" }]);
    assert_eq!(begin(&control, "j", &tasks).0, 200);
    let ask = |worker: &str, volumes: &Value| {
        let ask = json!({ "worker": worker, "kinds": ["k"], "volumes": volumes });
        control.good("POST", "/v1/default/claims", &ask)["task"].clone()
    };
    assert_eq!(ask("u", &json!(["/mnt/b", "/mnt"])), "direct", "the first task needs another volume");
    assert_eq!(ask("v", &json!([])), NONE);
    assert_eq!(claim(&control, "v")["task"], NONE);
    assert_eq!(ask("w", &json!(["/mnt/b", "/mnt/a"])), "files");
    assert_eq!(show(&control, "j")["tasks"][0]["volume"], "/mnt/a");
    let many = json!(vec!["/v"; 65]);
    let ask = json!({ "worker": "w", "kinds": ["k"], "volumes": many });
    assert_eq!(control.ask("POST", "/v1/default/claims", &ask).0, 413);
}
