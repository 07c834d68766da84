//! What a feed says and does, good and bad, and what a follower makes of it.

mod common;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{Answer, Server, at, begin, feed, put, until};
use moneta_cluster::sources::{Advice, GuardConfig, Guarded, SourceError, TopologySource};
use moneta_link::{ControlSource, Epochs, Follower, Query};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

fn query() -> Query {
    Query { kinds: vec!["topologies"], app: Some("a b".into()) }
}

/// A topology of so many slots, whose first is held by an instance.
fn topology(epoch: u64, slots: usize) -> Value {
    let slot = |number: usize| json!({"slot": format!("s{number}"), "holder": format!("i{number}"), "address": format!("10.0.0.1:{}", 1 + number)});
    json!({"epoch": epoch, "replicas": [{"name": "a", "zone": "a", "slots": (0..slots).map(slot).collect::<Vec<_>>()}]})
}

/// Says one script after the other, one for each connection; the last one again and again. What was sent is kept open.
fn scripts(scripts: Vec<Vec<String>>) -> (Server, Arc<Mutex<Vec<std::sync::mpsc::Sender<String>>>>) {
    let senders = Arc::<Mutex<Vec<_>>>::default();
    let (kept, next) = (Arc::clone(&senders), Mutex::new(0));
    let server = Server::start(move |_| {
        let mut next = next.lock().unwrap();
        let (answer, sender) = feed(&scripts[(*next).min(scripts.len() - 1)]);
        *next += 1;
        kept.lock().unwrap().push(sender);
        answer
    });
    (server, senders)
}

#[test]
fn a_feed_is_followed_and_taken_up_where_it_broke_off() {
    let (first, second) = (put("topologies", "a b", 1, &json!(1)), put("topologies", "a b", 2, &json!(2)));
    let (server, senders) = scripts(vec![
        vec![begin("x:1"), first, at("x:1")],
        // Goes on: no `begin`.
        vec![second, at("x:2")],
        // Breaks off before it has told all.
        vec![begin("y:1"), put("topologies", "other", 1, &json!(0))],
        // Another incarnation, without what was there.
        vec![begin("y:1"), at("y:1")],
    ]);
    let follower = Follower::start(Server::control(&[&server.url]), query()).unwrap();
    let value = || follower.view().items.get("topologies", "a b").map(|item| item.value.clone());
    let drop_last = || drop(senders.lock().unwrap().pop());
    until("the first item", || value() == Some(json!(1)));
    senders.lock().unwrap()[0].send(put("topologies", "c", 2, &json!(3))).unwrap();
    until("a change without `at`", || follower.view().items.get("topologies", "c").is_some());
    drop_last();
    until("the second connection", || value() == Some(json!(2)));
    assert!(follower.view().items.get("topologies", "c").is_some() && follower.view().is_fresh());
    drop_last();
    until("the third connection", || server.asked().len() == 3 && !senders.lock().unwrap().is_empty());
    until("the failure before it", || follower.view().failure.is_some());
    drop_last();
    assert_eq!(value(), Some(json!(2)), "what was not told whole changes nothing");
    until("what is gone", || value().is_none());
    let paths: Vec<String> = server.asked().iter().map(|asked| asked.path.clone()).collect();
    let path = "/v1/test/feed?kinds=topologies&app=a%20b";
    assert_eq!(paths[..2], [path.to_owned(), format!("{path}&cursor=x%3A1")]);
    assert_eq!(paths[3], format!("{path}&cursor=x%3A2"), "the last that was told whole");
}

#[test]
fn another_server_is_asked_where_one_fails() {
    let (server, _senders) = scripts(vec![vec![begin("x:1"), at("x:1")]]);
    let not_in_step = Server::start(|_| Answer::Whole(503, r#"{"error":"not in step"}"#.into()));
    // The port of a server that is gone.
    let gone = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap();
    let control = Server::control(&[&format!("http://{gone}"), &not_in_step.url, &server.url]);
    let follower = Follower::start(control, query()).unwrap();
    until("the one that answers", || follower.view().is_fresh());
}

#[test]
fn a_server_that_says_too_much_or_nonsense_is_left() {
    for line in ["{".into(), "x".repeat(9 << 20), at(&"x".repeat(1000))] {
        let (server, _senders) = scripts(vec![vec![line], vec![begin("x:1"), at("x:1")]]);
        let follower = Follower::start(Server::control(&[&server.url]), query()).unwrap();
        until("the second connection", || follower.view().is_fresh());
        assert_eq!(server.asked().len(), 2);
    }
}

#[test]
fn topologies_come_with_advice_and_only_forward() {
    let first = topology(5, 3);
    let say = |epoch, slots| put("topologies", "app", epoch, &topology(epoch, slots));
    let (server, senders) = scripts(vec![vec![begin("x:1"), put("topologies", "app", 1, &first), at("x:1")]]);
    let epochs = Epochs::default();
    let control = Server::control(&[&server.url]);
    let source = ControlSource::new(control, "app", epochs.clone()).unwrap();
    let guard = GuardConfig { reads: 2, hold: Duration::ZERO, kept: None };
    let mut source = Guarded::new(source, guard);
    assert_eq!(source.first(PATIENCE).unwrap().epoch, 5);
    let send = |line: String| senders.lock().unwrap()[0].send(line).unwrap();
    let next = |source: &mut Guarded<ControlSource>| loop {
        if let Some(taken) = source.next(PATIENCE).transpose() {
            return taken.map(|topology| (topology.epoch, topology.nodes().count()));
        }
    };
    send(put("away", "app/i1", 6, &json!({"at": 1, "why": "silent"})));
    until("advice", || {
        let _ = source.next(Duration::from_millis(10));
        source.advice().is_some_and(|advice| advice.iter().any(|one| one.slot == "s1" && one.advice == Advice::Away))
    });
    send(say(6, 3));
    assert_eq!(next(&mut source).unwrap(), (6, 3));
    // The control plane has forgotten what came after.
    send(put("topologies", "app", 7, &topology(3, 3)));
    assert!(matches!(next(&mut source), Err(SourceError::EpochBack { said: 3, current: 6 })));
    assert_eq!(epochs.all()["app"], 6, "which it is told of");
    send(say(8, 1));
    // Most is gone: it is said again before it is believed.
    assert!(source.next(PATIENCE).unwrap().is_none());
    send(at("x:8"));
    assert_eq!(next(&mut source).unwrap(), (8, 1));
    send(r#"{"delete":{"kind":"topologies","key":"app","revision":9}}"#.into());
    assert!(matches!(next(&mut source), Err(SourceError::Other(why)) if why.contains("no topology of app app")));
}

#[test]
fn a_control_plane_behind_what_was_kept_is_told_an_epoch_to_go_on_above() {
    let folder = tempfile::tempdir().unwrap();
    let guard = || GuardConfig { reads: 1, hold: Duration::ZERO, kept: Some(folder.path().join("kept")) };
    let begin_with = |epoch, slots| {
        let said = put("topologies", "app", 1, &topology(epoch, slots));
        let (server, _senders) = scripts(vec![vec![begin("x:1"), said, at("x:1")]]);
        let epochs = Epochs::default();
        let source = ControlSource::new(Server::control(&[&server.url]), "app", epochs.clone()).unwrap();
        let first = Guarded::new(source, guard()).first(PATIENCE).unwrap();
        ((first.epoch, first.nodes().count()), epochs.all()["app"])
    };
    assert_eq!(begin_with(6, 3), ((6, 3), 6));
    // By a process that begins anew, and has not seen it said.
    assert_eq!(begin_with(4, 3), ((6, 3), 6), "an earlier one");
    assert_eq!(begin_with(6, 2), ((6, 3), 7), "another of the same epoch");
    assert_eq!(begin_with(6, 3), ((6, 3), 6), "the same");
}
