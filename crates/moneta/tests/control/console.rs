//! The console as people meet it: who may see what with which log-in, and what was at a time, also after a restart.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use moneta_users::secret;
use serde_json::{Value, json};

use crate::common::{PATIENCE, Process, file, moneta, printed, until};
use crate::strangers::users;
use crate::support::Control;

/// A browser without scripts: it keeps a cookie.
struct Browser<'a> {
    control: &'a Control,
    cookie: String,
}

impl<'a> Browser<'a> {
    fn new(control: &'a Control) -> Self {
        Self { control, cookie: String::new() }
    }

    /// Status and whole answer.
    fn ask(&mut self, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.control.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (cookie, length) = (&self.cookie, body.len());
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        if let Some(set) = answer.lines().find_map(|line| line.strip_prefix("set-cookie: ")) {
            assert!(set.contains("HttpOnly") && set.contains("SameSite=Strict"), "{set}");
            self.cookie = set.split(';').next().unwrap().to_owned();
        }
        (answer.split(' ').nth(1).unwrap().parse().unwrap(), answer)
    }

    fn status(&mut self, method: &str, path: &str) -> u16 {
        self.ask(method, path, "").0
    }

    fn log_in(&mut self, token: &str) -> u16 {
        let (user, secret) = token.split_once(':').unwrap();
        self.ask("POST", "/log-in", &format!("user={user}&secret={secret}")).0
    }
}

#[test]
fn who_has_logged_in_sees_what_its_roles_say_and_nobody_else_anything() {
    let folder = tempfile::tempdir().unwrap();
    let (text, tokens) = users(&[
        ("reader", "rights = []\nenvironments = [\"prod\"]\nroles = [\"read\"]"),
        ("ops", "rights = []\nenvironments = [\"prod\"]\nroles = [\"read\", \"operate\"]"),
        (
            "root",
            "rights = [\"stats\"]\nenvironments = [\"*\"]\nroles = [\"register\", \"read\", \"operate\", \"administer\"]",
        ),
    ]);
    let path = file(folder.path(), "users.toml", &text);
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    let control = Control::start(&folder.path().join("data"), &["--users", &path]);
    let [reader, ops, root] = tokens.iter().map(String::as_str).collect::<Vec<_>>().try_into().unwrap();
    let record = json!({ "kind": "other", "zone": "secret-zone", "renew_every_s": 300 });
    for environment in ["prod", "test"] {
        assert_eq!(control.ask_as(root, "PUT", &format!("/v1/{environment}/instances/feed/i"), &record).0, 200);
    }

    let job = json!({ "kind": "k", "app": "feed", "tasks": [{ "name": "t", "params": { "slot": "secret-zone" } }] });
    assert_eq!(control.ask_as(root, "PUT", "/v1/prod/jobs/j", &job).0, 200);

    // A stranger is led to the log-in, whatever it asks for, and told nothing.
    let mut stranger = Browser::new(&control);
    for page in [
        "/console/prod",
        "/console/prod/apps/feed",
        "/console/prod/changes",
        "/console/none/query",
        "/console/prod/jobs/j",
        "/console/prod/audit",
    ] {
        let (status, answer) = stranger.ask("GET", page, "");
        assert!(status == 303 && answer.contains("location: /log-in"), "{page}: {answer}");
        assert!(!answer.contains("secret-zone"), "{page}");
    }
    let override_page = "/console/prod/apps/feed/instances/i/override";
    assert_eq!(stranger.status("POST", override_page), 303);
    assert_eq!(stranger.status("GET", "/log-in"), 200);
    assert_eq!(stranger.log_in("reader:wrong"), 401);
    assert_eq!(stranger.log_in("nobody:x"), 401);
    stranger.cookie = "moneta_session=00000000000000000000000000000000".into();
    assert_eq!(stranger.status("GET", "/console/prod"), 303);

    let mut browser = Browser::new(&control);
    assert_eq!(browser.log_in(reader), 303);
    let (status, answer) = browser.ask("GET", "/", "");
    assert!(status == 303 && answer.contains("location: /console/prod"), "{answer}");
    let (status, answer) = browser.ask("GET", "/console/prod/query?of=instances&by=zone", "");
    assert!(status == 200 && answer.contains("secret-zone"), "{answer}");
    assert!(!answer.contains("/console/test") && !answer.contains("/console/prod/audit"), "{answer}");
    for (page, status) in [
        ("/console/prod/apps/feed/instances/i", 200),
        ("/console/prod/jobs", 200),
        ("/console/prod/jobs/j", 200),
        ("/console/prod/jobs/none", 404),
        ("/console/test/jobs/j", 403),
        ("/console/test", 403),
        ("/console/prod/key", 403),
        ("/console/prod/audit", 403),
        ("/console/prod/apps/feed/instances/i/options", 403),
    ] {
        assert_eq!(browser.status("GET", page), status, "{page}");
    }
    assert_eq!(browser.status("POST", override_page), 403);
    assert_eq!(browser.status("POST", "/console/prod/jobs/j"), 403);
    assert!(!browser.ask("GET", "/console/prod/jobs/j", "").1.contains("name=\"order\""), "a reader tells it nothing");
    // The cookie is for pages alone: programs show a token.
    assert_eq!(browser.status("GET", "/v1/prod/instances"), 401);

    let mut operator = Browser::new(&control);
    assert_eq!(operator.log_in(ops), 303);
    let (_, page) = operator.ask("GET", "/console/prod/apps/feed/instances/i", "");
    let token = page.split_once("name=\"token\" value=\"").unwrap().1.split('"').next().unwrap().to_owned();
    let of_another = {
        let (_, page) = browser.ask("GET", "/console/prod", "");
        page.split_once("name=\"token\" value=\"").unwrap().1.split('"').next().unwrap().to_owned()
    };
    assert_eq!(operator.ask("POST", override_page, &format!("token={of_another}&status=DOWN")).0, 403);
    assert_eq!(operator.ask("POST", override_page, &format!("token={token}&status=DOWN&why=x")).0, 303);
    let (_, listed) = control.ask_as(root, "GET", "/v1/prod/instances", &Value::Null);
    assert_eq!(listed["instances"][0]["value"]["effective"], "DOWN");
    let (_, audit) = control.ask_as(root, "GET", "/v1/prod/audit", &Value::Null);
    assert_eq!((&audit["acts"][0]["what"], &audit["acts"][0]["who"]), (&json!("override"), &json!("ops")), "{audit}");
    let job_page = "/console/prod/jobs/j";
    assert_eq!(operator.ask("POST", job_page, &format!("token={of_another}&order=cancel&why=x")).0, 403);
    assert_eq!(operator.ask("POST", job_page, &format!("token={token}&order=pause&why=x")).0, 303);
    assert_eq!(control.ask_as(root, "GET", "/v1/prod/jobs/j", &Value::Null).1["state"], "paused");
    let before = operator.cookie.clone();
    assert_eq!(operator.ask("POST", "/log-out", &format!("token={token}")).0, 303);
    operator.cookie = before;
    assert_eq!(operator.status("GET", "/console/prod"), 303, "the session is over, also for who kept its cookie");

    // A user who is taken out of the file is out of the console.
    let (_, other) = secret::generate().unwrap();
    let others = text.replace(text.split('"').nth(3).unwrap(), &other.to_string());
    std::fs::write(&path, others).unwrap();
    until("the session has ended", || browser.status("GET", "/console/prod") == 303);
    control.end();
}

#[test]
fn what_was_at_a_time_is_told_also_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut control = Control::start(&data, &[]);
    let now = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    let instances = |control: &Control, at: &str| {
        control.ask("GET", &format!("/v1/default/query?of=instances&at={at}"), &Value::Null)
    };
    // The journal has begun, and the clock of milliseconds goes on between what is told apart.
    let apart = || std::thread::sleep(Duration::from_millis(20));
    until("the history has begun", || instances(&control, "0s").0 == 200);
    let record = |status: &str| json!({ "kind": "other", "status": status, "renew_every_s": 300 });
    let empty = now();
    apart();
    control.good("PUT", "/v1/default/instances/app/i", &record("STARTING"));
    apart();
    let starting = now();
    apart();
    control.good("PUT", "/v1/default/instances/app/i", &record("UP"));
    apart();
    let up = now();
    apart();
    control.good("DELETE", "/v1/default/instances/app/i", &Value::Null);
    apart();
    let gone = now();
    let check = |control: &Control| {
        for (at, statuses) in [(empty, vec![]), (starting, vec!["STARTING"]), (up, vec!["UP"]), (gone, vec![])] {
            // What was told is written to the file within a second.
            let mut seen = Value::Null;
            until("it is told as it was", || {
                let (status, answer) = instances(control, &at.to_string());
                seen = answer;
                let found = seen["instances"].as_array().map(|found| {
                    found.iter().map(|one| one["status"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
                });
                status == 200 && found == Some(statuses.iter().map(ToString::to_string).collect())
            });
            assert_eq!(seen["instances"].as_array().unwrap().iter().filter(|one| !one["vitals"].is_null()).count(), 0);
        }
    };
    check(&control);
    let (status, answer) = instances(&control, "8days");
    assert!(status == 404 && answer["error"].as_str().unwrap().contains("the history begins at"), "{answer}");
    assert_eq!(instances(&control, "noon").0, 400);
    assert_eq!(instances(&control, &(now() + 3_600_000).to_string()).0, 404);
    control.kill();
    let control = Control::start(&data, &[]);
    until("the history has begun anew", || instances(&control, "0s").0 == 200);
    check(&control);
    let url = format!("http://{}", control.address);
    let query = ["query", "instances", "--at", &up.to_string(), "--count", "--control", &url];
    assert_eq!(printed(&mut moneta(&query)), "1\n");
}

#[test]
fn what_changes_is_told_line_by_line() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(&folder.path().join("data"), &[]);
    let url = format!("http://{}", control.address);
    let watch = Process::start(&mut moneta(&["watch", "--lines", "--control", &url]));
    let record = |status: &str| json!({ "kind": "other", "status": status, "renew_every_s": 300 });
    let put = |id: &str, status: &str| control.good("PUT", &format!("/v1/default/instances/app/{id}"), &record(status));
    // What was there when it began is told of no more than at any other time.
    let mut count = 0;
    watch.until("it has begun", || {
        count += 1;
        put(&format!("i-{count}"), "STARTING");
        watch.stdout().contains("is here: STARTING")
    });
    put("i-1", "UP");
    watch.until("a status", || watch.stdout().contains("instance app/i-1: STARTING, now UP"));
    control.good("DELETE", "/v1/default/instances/app/i-1", &Value::Null);
    watch.until("an end", || watch.stdout().contains("instance app/i-1 has left"));
    let create = json!({ "change": { "create": { "replicas": [{ "name": "a", "zone": "a", "slots": ["a0"] }] } } });
    control.good("POST", "/v1/default/topologies/app", &create);
    watch.until("a topology", || watch.stdout().contains("topology app: epoch none, now 1; 0 slots are held"));
}
