//! Topologies: changes one after the other, epochs, slots and those who claim them.

use serde_json::{Value, json};

use crate::common::{file, moneta, printed, refused, until};
use crate::support::{Answering, Control};

const TOPOLOGY: &str = "/v1/default/topologies/feed";

fn create(control: &Control) {
    let replicas = json!([{ "name": "a1", "zone": "a", "slots": ["a0", "a1"] },
                          { "name": "b1", "zone": "b", "slots": ["b0"] }]);
    control.good("POST", TOPOLOGY, &json!({ "change": { "create": { "replicas": replicas } } }));
}

fn claimant(address: &str, slot: &str) -> Value {
    json!({ "kind": "node", "addresses": { "cache": address }, "replica": "a1", "slot": slot, "status": "UP" })
}

fn put(control: &Control, id: &str, address: &str, slot: &str) -> Value {
    control.good("PUT", &format!("/v1/default/instances/feed/{id}"), &claimant(address, slot))
}

fn renew(control: &Control, id: &str) -> Value {
    control.good("POST", "/v1/default/renewals", &json!([{ "app": "feed", "id": id, "status": "UP" }]))[0].clone()
}

fn slot(control: &Control, name: &str) -> Value {
    let document = control.good("GET", TOPOLOGY, &Value::Null);
    let slots = document["replicas"][0]["slots"].as_array().unwrap();
    slots.iter().find(|slot| slot["slot"] == name).unwrap().clone()
}

#[test]
fn changes_come_one_after_the_other_and_none_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    create(&control);
    let change = |weight: u32, expect: Option<u64>| {
        let change = json!({ "weight": { "replica": "a1", "slot": "a0", "weight": weight } });
        control.ask("POST", TOPOLOGY, &json!({ "expect_epoch": expect, "why": "a test", "change": change }))
    };
    assert_eq!(change(2, Some(1)).1["epoch"], 2);
    let (status, answer) = change(3, Some(1));
    assert_eq!((status, answer["error"].as_str().unwrap()), (409, "epoch 2 is in force, not 1"));
    // Of several at once that expect the same, one wins; those that expect nothing all come.
    let answers: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|number| scope.spawn(move || change(10 + number, Some(2)).0)).collect();
        asked.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(
        (
            answers.iter().filter(|status| **status == 200).count(),
            answers.iter().filter(|status| **status == 409).count()
        ),
        (1, 7)
    );
    std::thread::scope(|scope| {
        let asked: Vec<_> = (0..8).map(|number| scope.spawn(move || change(100 + number, None).0)).collect();
        assert!(asked.into_iter().all(|thread| thread.join().unwrap() == 200));
    });
    assert_eq!(control.good("GET", TOPOLOGY, &Value::Null)["epoch"], 11);
    // A hundred epochs are kept.
    for weight in 1_000..1_100 {
        assert_eq!(change(weight, None).0, 200);
    }
    let epochs = control.good("GET", &format!("{TOPOLOGY}/epochs"), &Value::Null);
    let epochs: Vec<u64> = epochs["epochs"].as_array().unwrap().iter().map(|epoch| epoch.as_u64().unwrap()).collect();
    assert_eq!(epochs, (12..=111).collect::<Vec<_>>());
    assert_eq!(control.ask("GET", &format!("{TOPOLOGY}?epoch=11"), &Value::Null).0, 404);
    assert_eq!(control.good("GET", &format!("{TOPOLOGY}?epoch=12"), &Value::Null)["epoch"], 12);
    let rolled = control.good("POST", TOPOLOGY, &json!({ "change": { "rollback": { "epoch": 12 } } }));
    assert_eq!((&rolled["epoch"], &rolled["replicas"][0]["slots"][0]["weight"]), (&json!(112), &json!(1_000)));
    control.end();
}

#[test]
fn of_two_that_claim_a_slot_one_holds_it_and_the_other_gets_it_when_that_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    create(&control);
    let (first, second) = (Answering::start(), Answering::start());
    let answer = put(&control, "one", &first.address, "a0");
    assert_eq!((&answer["slot"], &answer["epoch"]), (&json!("held"), &json!(2)));
    let answer = put(&control, "two", &second.address, "a0");
    assert_eq!((&answer["slot"], &answer["holder"]), (&json!("spare"), &json!("one")));
    // Who comes again has what it had.
    assert_eq!(put(&control, "one", &first.address, "a0")["epoch"], 2);
    // It does not renew, but answers: it is the holder's.
    for _ in 0..8 {
        assert_eq!(renew(&control, "two")["slot"], "spare");
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    assert_eq!(slot(&control, "a0")["holder"], "one");
    drop(first);
    until("the spare has the slot", || renew(&control, "two")["slot"] == "held");
    let now = slot(&control, "a0");
    assert_eq!((&now["holder"], &now["address"]), (&json!("two"), &json!(second.address)));
    // The one of before is a spare, should it come back.
    let third = Answering::start();
    assert_eq!(put(&control, "one", &third.address, "a0")["slot"], "spare");
    // A node that moves takes its slot along.
    let moved = Answering::start();
    assert_eq!(put(&control, "two", &moved.address, "a0")["slot"], "held");
    assert_eq!(slot(&control, "a0")["address"], json!(moved.address));
    control.end();
}

#[test]
fn a_slot_of_a_dead_holder_is_a_claimant_s_soon() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    create(&control);
    let gone = Answering::start();
    put(&control, "one", &gone.address, "a0");
    drop(gone);
    let away = |control: &Control| control.good("GET", "/v1/default/status", &Value::Null)["away"] == 1;
    until("the holder is away", || away(&control));
    // At once: its registration asks at the holder's address itself.
    let here = Answering::start();
    assert_eq!(put(&control, "two", &here.address, "a0")["slot"], "held");
    // An address without a holder is somebody's as long as something answers there.
    let stands = Answering::start();
    let replace = json!({ "replace": { "replica": "a1", "slot": "a1", "address": stands.address } });
    control.good("POST", TOPOLOGY, &json!({ "change": replace }));
    let other = Answering::start();
    assert_eq!(put(&control, "three", &other.address, "a1")["slot"], "spare");
    assert_eq!(put(&control, "four", &stands.address, "a1")["slot"], "held");
    control.end();
}

#[test]
fn a_topology_that_is_made_names_the_instances_that_are_there_already() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let answering: Vec<Answering> = (0..3).map(|_| Answering::start()).collect();
    // Two want one slot: the one that came first has it. Who is of another slot has none.
    for (id, at, slot) in [("z", 0, "a0"), ("b", 1, "a0"), ("c", 2, "a7")] {
        assert_eq!(put(&control, id, &answering[at].address, slot)["slot"], Value::Null);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    create(&control);
    let held = slot(&control, "a0");
    assert_eq!((&held["holder"], &held["address"]), (&json!("z"), &json!(answering[0].address)));
    assert_eq!(slot(&control, "a1")["holder"], Value::Null);
    assert_eq!(control.good("GET", TOPOLOGY, &Value::Null)["epoch"], 1);
    assert_eq!((&renew(&control, "z")["slot"], &renew(&control, "b")["slot"]), (&json!("held"), &json!("spare")));
    let slots = json!({ "slots": { "replica": "a1", "slots": ["a0", "a1", "a7"] } });
    control.good("POST", TOPOLOGY, &json!({ "change": slots }));
    assert_eq!(slot(&control, "a7")["holder"], "c");
    control.end();
}

#[test]
fn an_operator_changes_a_topology_by_commands() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(&folder.path().join("data"), &[]);
    let url = format!("http://{}", control.address);
    let command = |arguments: &[&str]| {
        let mut command = moneta(&["topology", "feed"]);
        command.args(arguments).args(["--control", &url]);
        command
    };
    let text = "[[replica]]\nzone = \"a\"\nnodes = [\"a0=127.0.0.1:1\", \"a1=127.0.0.1:2\"]\n";
    let path = file(folder.path(), "feed.toml", text);
    printed(&mut command(&["create", &path]));
    printed(&mut command(&["add-replica", "b1", "b", "b0", "b1", "--why", "more"]));
    printed(&mut command(&["weight", "a", "a0", "3", "--expect-epoch", "2"]));
    let said = refused(&mut command(&["weight", "a", "a0", "4", "--expect-epoch", "2"]), 1);
    assert!(said.contains("epoch 3 is in force, not 2"), "{said}");
    printed(&mut command(&["drain", "--replica", "b1", "--slot", "b0"]));
    printed(&mut command(&["rollback", "1"]));
    let shown: Value = serde_json::from_str(&printed(&mut command(&["show"]))).unwrap();
    assert_eq!((&shown["epoch"], shown["replicas"].as_array().unwrap().len()), (&json!(5), 1));
    let shown: Value = serde_json::from_str(&printed(&mut command(&["show", "--epoch", "4"]))).unwrap();
    assert_eq!(shown["replicas"][1]["slots"][0]["leaving"], true);
    assert_eq!(printed(&mut command(&["epochs"])), "1 2 3 4 5\n");
    let acts = control.good("GET", "/v1/default/audit", &Value::Null);
    assert_eq!((&acts["acts"][3]["what"], &acts["acts"][3]["why"]), (&json!("add_replica"), &json!("more")));
    control.end();
}

#[test]
fn queries_find_what_meets_a_predicate() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    create(&control);
    let node = Answering::start();
    put(&control, "i-1", &node.address, "a0");
    control.good("PUT", "/v1/default/instances/feed/p-1", &json!({ "kind": "proxy", "zone": "b", "version": "9" }));
    let address = format!("http://{}", control.address);
    let query = |arguments: &[&str]| printed(&mut moneta(&[&["query"], arguments, &["--control", &address]].concat()));
    let lines = |text: &str| -> Vec<Value> { text.lines().map(|line| serde_json::from_str(line).unwrap()).collect() };
    let found = lines(&query(&["instances", "--where", "kind == \"node\" && replica == \"a1\" && status == \"UP\""]));
    assert_eq!(found.len(), 1);
    assert_eq!(
        (&found[0]["id"], &found[0]["app"], &found[0]["state"]),
        (&json!("i-1"), &json!("feed"), &json!("live"))
    );
    assert_eq!(query(&["slots", "--where", "holder == null", "--count"]), "2\n");
    let groups = lines(&query(&["groups", "--where", "up < slots"]));
    let counts =
        |group: &Value| (group["name"].clone(), group["slots"].as_u64(), group["held"].as_u64(), group["up"].as_u64());
    assert_eq!(counts(&groups[0]), (json!("a1"), Some(2), Some(1), Some(1)));
    assert_eq!(counts(&groups[1]), (json!("b1"), Some(1), Some(0), Some(0)));
    let names = |arguments: &[&str], field: &str| -> Vec<Value> {
        lines(&query(arguments)).iter().map(|object| object[field].clone()).collect()
    };
    assert_eq!(names(&["groups", "--where", "size(members) == 0"], "name"), ["b1"]);
    assert_eq!(names(&["groups", "--where", "\"i-1\" in members"], "name"), ["a1"]);
    assert_eq!(names(&["instances", "--where", "group == null"], "id"), ["p-1"]);
    assert_eq!(query(&["balancers", "--by", "version"]), "       1  9\n");
    let apps = lines(&query(&["apps"]));
    assert_eq!(
        (&apps[0]["replicas"], &apps[0]["zones"], &apps[0]["epoch"]),
        (&json!(2), &json!(["a", "b"]), &json!(2))
    );
    let error = refused(&mut moneta(&["query", "instances", "--where", "zones == 1", "--control", &address]), 1);
    assert!(error.contains("there is no field zones; did you mean zone?"), "{error}");
    control.end();
}
