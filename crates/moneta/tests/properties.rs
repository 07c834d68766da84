//! Options that a control plane gives to a node that runs. The silent failures guarded against: a value that is refused and takes
//! others along by half, a property that changes who may do what, a start that forgets what was told.

mod common;
#[path = "../../link/tests/common/mod.rs"]
mod said;

use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::Sender;

use common::{Node, Signal, until};
use moneta_net::{Endpoint, HttpClient};
use said::{Answer, Server, at, begin, feed, put};
use serde_json::{Value, json};

/// A node that follows `url`, with more options.
fn node(url: &str, state: &Path, more: &[&str]) -> Node {
    let state = state.display().to_string();
    Node::start(&[&["--control", url, "--app", "app", "--zone", "a", "--state-dir", &state][..], more].concat())
}

/// A page of its admin side.
fn page(node: &Node, path: &str) -> String {
    let line =
        node.screen.iter().find_map(|line| line.split("http://").nth(1)).expect("it says where its admin side is");
    let admin = line.split(['/', ' ']).next().unwrap();
    let endpoint = Endpoint::new(admin.parse().unwrap()).patient(common::PATIENCE);
    HttpClient::new(endpoint).get(path).send().unwrap().text().unwrap()
}

fn property(key: &str, revision: u64, value: &Value) -> String {
    put("properties", key, revision, &json!({"v": 1, "value": value}))
}

#[test]
fn properties_take_effect_all_or_none_and_are_kept() {
    let sender = std::sync::Arc::new(Mutex::new(None::<Sender<String>>));
    let kept = std::sync::Arc::clone(&sender);
    let server = Server::start(move |asked| match asked.method.as_str() {
        "PUT" => Answer::Whole(200, r#"{"renew_every_s":0.2}"#.into()),
        "POST" => Answer::Whole(200, r#"[{"ok":true}]"#.into()),
        "GET" => {
            let (answer, sender) = feed(&[
                begin("x:4"),
                property("global/idle_timeout", 1, &json!("7m")),
                property("app=app/max_connections", 2, &json!(500)),
                property("zone=b/max_connections", 3, &json!(9)),
                // For the proxies of the app: a node has no use for it.
                property("app=app/ack", 3, &json!("all")),
                property("global/login_file", 4, &json!("/nowhere")),
                at("x:4"),
            ]);
            *kept.lock().unwrap() = Some(sender);
            answer
        }
        _ => Answer::Whole(200, "{}".into()),
    });
    let last_ack = || {
        let asked = server.asked().into_iter().rev().find(|asked| asked.method == "POST");
        let body = asked.map_or(Value::Null, |asked| serde_json::from_str(&asked.body).unwrap());
        body[0]["acks"]["properties"].clone()
    };
    let folder = tempfile::tempdir().unwrap();
    let mut running = node(&server.url, folder.path(), &[]);
    let applied = json!({"revision": 4, "state": "applied", "ignored": ["login_file"], "at": 4});
    until("they are applied", || last_ack() == applied);
    let explained = page(&running, "/explain");
    assert!(explained.contains("  max_connections 500 (property of app=app)"), "{explained}");
    let settings = || running.exchange("stats settings\r\n");
    assert!(settings().contains("STAT maxconns 500\r\n"), "{}", settings());

    // One of two makes no sense: the other one does not count either.
    let send = |line: String| sender.lock().unwrap().as_ref().unwrap().send(line).unwrap();
    send(property("global/idle_timeout", 5, &json!("nonsense")));
    until("they are refused", || last_ack()["state"] == "refused");
    assert!(last_ack()["why"].as_str().unwrap().contains("idle_timeout: `nonsense` (property of global) is refused"));
    send(property("app=app/max_connections", 6, &json!(600)));
    until("they are refused again", || last_ack()["revision"] == 6 && last_ack()["state"] == "refused");
    assert!(settings().contains("STAT maxconns 500\r\n"));
    send(property("global/idle_timeout", 7, &json!("9m")));
    until("they are applied again", || last_ack()["revision"] == 7 && last_ack()["state"] == "applied");
    assert!(settings().contains("STAT maxconns 600\r\n"));
    running.signal(Signal::SIGTERM);
    assert!(running.wait().success(), "{}", running.log());

    // Nobody says anything any more; a flag is stronger.
    drop(server);
    let gone = format!("http://127.0.0.1:{}", common::steady_port());
    let again = node(&gone, folder.path(), &["--idle-timeout", "3m"]);
    let settings = again.exchange("stats settings\r\n");
    assert!(settings.contains("STAT maxconns 600\r\n") && settings.contains("STAT idle_timeout 180\r\n"), "{settings}");
}
