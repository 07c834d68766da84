//! Instances: registered, renewed, told of, overridden, away and gone.

use serde_json::{Value, json};

use crate::common::{moneta, printed, refused, until};
use crate::support::{Answering, Control, Feed};

fn record(address: &str) -> Value {
    json!({ "kind": "node", "addresses": { "cache": address }, "zone": "a", "region": "eu", "status": "STARTING",
            "capacity": { "memory": 1 } })
}

/// One that is not missed for the time of a test.
fn steady(address: &str) -> Value {
    let mut record = record(address);
    record["renew_every_s"] = json!(300);
    record
}

fn renewal(id: &str, seq: u64, status: &str) -> Value {
    json!([{ "app": "feed", "id": id, "seq": seq, "status": status, "vitals": { "items": seq } }])
}

#[test]
fn an_instance_is_told_of_from_its_registration_to_its_leave() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let mut feed = control.feed("kinds=instances,away");
    let (begin, _) = feed.round();
    assert!(begin.len() == 1 && begin[0]["begin"].is_string(), "{begin:?}");
    let path = "/v1/default/instances/feed/i-1";
    let answer = control.good("PUT", path, &steady("127.0.0.1:1"));
    assert_eq!((&answer["renew_every_s"], &answer["slot"], &answer["epoch"]), (&json!(300), &Value::Null, &json!(0)));
    let put = feed.until(|event| event["put"].is_object());
    assert_eq!((&put["put"]["key"], &put["put"]["value"]["effective"]), (&json!("feed/i-1"), &json!("STARTING")));
    assert_eq!(put["put"]["value"]["capacity"]["memory"], 1, "what is not known here is kept");
    // A renewal says what has changed.
    let answers = control.good("POST", "/v1/default/renewals", &renewal("i-1", 2, "UP"));
    assert_eq!(answers[0]["ok"], true);
    feed.until(|event| event["put"]["value"]["status"] == "UP");
    assert_eq!(control.good("POST", "/v1/default/renewals", &renewal("i-2", 1, "UP")), json!([{ "register": true }]));
    // One that was overtaken says nothing.
    control.good("POST", "/v1/default/renewals", &renewal("i-1", 9, "UP"));
    control.good("POST", "/v1/default/renewals", &renewal("i-1", 8, "DOWN"));
    let listed = control.good("GET", "/v1/default/instances?app=feed", &Value::Null);
    assert_eq!(listed["instances"][0]["vitals"]["items"], 9);
    assert_eq!(listed["instances"][0]["value"]["status"], "UP");
    // An operator's word wins.
    let word = json!({ "status": "OUT_OF_SERVICE", "why": "looks odd" });
    control.good("PUT", &format!("{path}/override"), &word);
    let put = feed.until(|event| event["put"]["value"]["override"] == "OUT_OF_SERVICE");
    assert_eq!(
        (&put["put"]["value"]["effective"], &put["put"]["value"]["status"]),
        (&json!("OUT_OF_SERVICE"), &json!("UP"))
    );
    let answers = control.good("POST", "/v1/default/renewals", &renewal("i-1", 10, "UP"));
    assert_eq!(answers[0]["override"], "OUT_OF_SERVICE");
    control.good("DELETE", &format!("{path}/override"), &Value::Null);
    feed.until(|event| event["put"]["value"]["effective"] == "UP");
    control.good("DELETE", path, &Value::Null);
    feed.until(|event| event["delete"]["key"] == "feed/i-1");
    assert_eq!(control.ask("DELETE", path, &Value::Null).0, 404);
    // Who did what is known, the latest first.
    let acts = control.good("GET", "/v1/default/audit", &Value::Null);
    let what: Vec<&str> = acts["acts"].as_array().unwrap().iter().map(|act| act["what"].as_str().unwrap()).collect();
    assert_eq!(what, ["leave", "override", "override", "renew", "register"]);
    assert_eq!(acts["acts"][2]["why"], "looks odd");
    control.end();
}

#[test]
fn one_that_is_gone_becomes_away_and_its_next_renewal_brings_it_back() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let answering = Answering::start();
    control.good("PUT", "/v1/default/instances/feed/here", &record(&answering.address));
    let gone = Answering::start();
    let address = gone.address.clone();
    control.good("PUT", "/v1/default/instances/feed/gone", &record(&address));
    let mut feed = control.feed("kinds=away&app=feed");
    drop(gone);
    // On a busy machine the time of a probe may be over before it is refused: then it comes back, and is probed again.
    for seq in 2.. {
        let away = feed.until(|event| event["put"].is_object());
        assert_eq!(away["put"]["key"], "feed/gone");
        let why = &away["put"]["value"]["why"];
        if why == "refused" {
            break;
        }
        assert!(why == "silent" && seq < 6, "{away}");
        control.good("POST", "/v1/default/renewals", &renewal("gone", seq, "UP"));
        feed.until(|event| event["delete"]["key"] == "feed/gone");
    }
    // The other does not renew either, but answers.
    let listed = control.good("GET", "/v1/default/instances", &Value::Null);
    let states: Vec<&Value> = listed["instances"].as_array().unwrap().iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["away", "suspect"]);
    control.good("POST", "/v1/default/renewals", &renewal("gone", 7, "UP"));
    feed.until(|event| event["delete"]["key"] == "feed/gone");
    control.end();
}

#[test]
fn a_feed_goes_on_from_a_cursor_and_begins_anew_where_that_is_none() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    control.good("PUT", "/v1/default/instances/feed/a", &steady("127.0.0.1:1"));
    control.good("PUT", "/v1/default/instances/other/b", &steady("127.0.0.1:2"));
    let (events, at) = control.feed("app=feed").round();
    assert_eq!((events.len(), &events[1]["put"]["key"]), (2, &json!("feed/a")), "{events:?}");
    let mut from = control.feed(&format!("app=feed&cursor={at}"));
    assert_eq!(from.round().0, Vec::<Value>::new());
    control.good("PUT", "/v1/default/instances/feed/c", &steady("127.0.0.1:3"));
    assert_eq!(from.next().unwrap()["put"]["key"], "feed/c");
    // What came meanwhile is told, and no more.
    let (events, later) = control.feed(&format!("app=feed&cursor={at}")).round();
    assert_eq!((events.len(), &events[0]["put"]["key"]), (1, &json!("feed/c")));
    let (own, revision) = later.split_once(':').unwrap();
    // Also where this ledger has that revision, and can go on from it.
    let foreign = [format!("{:016x}:1", 0xdead), format!("{:016x}:{revision}", 0xdead)];
    let ahead = format!("{own}:99999999");
    for cursor in [foreign[0].as_str(), foreign[1].as_str(), ahead.as_str(), "nonsense"] {
        let (events, _) = control.feed(&format!("cursor={cursor}")).round();
        assert!(events[0]["begin"].is_string() && events.len() == 4, "{cursor}: {events:?}");
    }
    // A restart is the same ledger.
    control.end();
    let control = Control::start(folder.path(), &[]);
    let (events, at) = control.feed("app=feed").round();
    assert_eq!(events.len(), 3);
    assert_eq!(at.split_once(':').unwrap().0, later.split_once(':').unwrap().0);
    // Browsers are told the same as events.
    let mut events = Feed::open(control.address, "", "/v1/default/feed", "Accept: text/event-stream\r\n");
    assert_eq!(events.round().0.len(), 4);
    control.end();
}

#[test]
fn requests_that_make_no_sense_are_refused_in_plain_words() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let node = record("127.0.0.1:1");
    for (method, path, body, status) in [
        ("PUT", "/v1/default/instances/a%2Fb/i", &node, 400),
        ("PUT", "/v1/..%2Ffleet/instances/a/i", &node, 400),
        ("PUT", "/v1/default/instances/a/i", &json!({ "kind": "node" }), 400),
        ("PUT", "/v1/default/instances/a/i", &json!("x".repeat(20_000)), 413),
        ("POST", "/v1/default/renewals", &json!({}), 400),
        ("PUT", "/v1/default/instances/a/none/override", &json!({ "status": "UP" }), 404),
        ("PUT", "/v1/default/instances/a/none/override", &json!({ "status": "GOOD" }), 400),
        ("GET", "/v1/default/feed?kinds=all", &Value::Null, 400),
        ("GET", "/v1/default/topologies/none", &Value::Null, 404),
        ("POST", "/v1/default/topologies/none", &json!({ "change": { "remove_replica": { "name": "a" } } }), 404),
        ("GET", "/v1/default/nothing", &Value::Null, 404),
        ("PATCH", "/v1/default/renewals", &Value::Null, 405),
    ] {
        let (answered, answer) = control.ask(method, path, body);
        assert_eq!(answered, status, "{method} {path}: {answer}");
        if ![404, 405].contains(&status) {
            assert!(answer["error"].is_string(), "{answer}");
        }
    }
    let regions: Vec<Value> = ["eu", "us", "eu"]
        .map(|name| control.good("PUT", &format!("/v1/regions/{name}"), &json!({}))["id"].clone())
        .into();
    assert_eq!(regions, [0, 1, 0]);
    let url = format!("http://{}", control.address);
    let region = |arguments: &[&str]| moneta(&[&["region"], arguments, &["--control", &url]].concat());
    assert_eq!(printed(&mut region(&["number", "asia", "7"])), "region asia has the number 7\n");
    for wrong in [["number", "asia", "3"], ["number", "africa", "7"], ["number", "africa", "16"]] {
        refused(&mut region(&wrong), 1);
    }
    assert_eq!(printed(&mut region(&["list"])), " 7  asia\n 0  eu\n 1  us\n");
    // One that writes by the number of another region is refused.
    for (region, number, status) in [("us", 1, 200), ("us", 0, 409), ("africa", 1, 409), ("africa", 2, 200)] {
        let record = json!({ "kind": "other", "region": region, "region_id": number });
        assert_eq!(control.ask("PUT", "/v1/default/instances/a/i", &record).0, status, "{region} {number}");
    }
    control.good("DELETE", "/v1/default/instances/a/i", &Value::Null);
    let status = control.good("GET", "/v1/status", &Value::Null);
    assert_eq!((&status["in_step"], &status["protection"]), (&json!(true), &json!(false)));
    until("renewals are counted", || control.good("GET", "/v1/status", &Value::Null)["renewals"]["expected"] == 0);
    control.end();
}
