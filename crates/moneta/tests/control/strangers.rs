//! What strangers may do, and users of one environment in another; what clients cost that send too much, too slowly, or do not read.

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use moneta_users::secret;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::net::sockopt;
use serde_json::{Value, json};

use crate::common::{PATIENCE, file, moneta, refused, steady_port, until};
use crate::support::{Control, Feed, head, try_ask};

/// A file of users with these lines each, and their tokens.
pub fn users(users: &[(&str, &str)]) -> (String, Vec<String>) {
    let (mut text, mut tokens) = (String::new(), Vec::new());
    for (name, lines) in users {
        let (told, stored) = secret::generate().unwrap();
        let _ = write!(text, "[[user]]\nname = \"{name}\"\nsecrets = [\"{stored}\"]\n{lines}\n\n");
        tokens.push(format!("{name}:{told}"));
    }
    (text, tokens)
}

#[test]
fn a_user_does_what_its_roles_say_in_its_environment_and_sees_nothing_of_another() {
    let folder = tempfile::tempdir().unwrap();
    let (text, tokens) = users(&[
        ("node", "rights = []\nenvironments = [\"prod\"]\nroles = [\"register\"]\napps = [\"feed\"]"),
        ("reader", "rights = []\nenvironments = [\"prod\"]\nroles = [\"read\"]"),
        ("ops", "rights = [\"stats\"]\nenvironments = [\"prod\"]\nroles = [\"read\", \"operate\"]"),
        (
            "root",
            "rights = [\"stats\"]\nenvironments = [\"*\"]\nroles = [\"register\", \"read\", \"operate\", \"administer\"]",
        ),
        (
            "test",
            "rights = []\nenvironments = [\"test\"]\nroles = [\"register\", \"read\", \"operate\", \"administer\"]",
        ),
        ("part", "rights = []\nenvironments = [\"prod\"]\nroles = [\"register\"]\nprefixes = [\"feed:\"]"),
    ]);
    let path = file(folder.path(), "users.toml", &text);
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    let control = Control::start(&folder.path().join("data"), &["--users", &path]);
    let [node, reader, ops, root, test, part] =
        tokens.iter().map(String::as_str).collect::<Vec<_>>().try_into().unwrap();
    let record = json!({ "kind": "other", "zone": "secret-zone", "renew_every_s": 300 });
    let create = json!({ "change": { "create": { "replicas": [{ "name": "a", "zone": "a", "slots": ["a0"] }] } } });
    let renewal = |app: &str| json!([{ "app": app, "id": "i" }]);
    let (none, nothing) = ("", Value::Null);
    let word = json!({ "status": "DOWN" });
    let value = json!({ "value": 500 });
    let job = json!({ "kind": "k", "app": "other", "tasks": [{ "name": "t" }] });
    let fill = |app: &str| json!({ "app": app, "replica": "a", "slot": "a0", "from": "b", "rate": 1 });
    let claim = json!({ "worker": "w", "kinds": ["k"] });
    let said = json!({ "worker": "w", "term": 1 });
    let cancel = json!({ "order": "cancel" });
    for (token, method, path, body, status) in [
        (none, "GET", "/healthz", &nothing, 200),
        (none, "GET", "/readyz", &nothing, 200),
        (none, "GET", "/metrics", &nothing, 401),
        (none, "GET", "/v1/status", &nothing, 401),
        (none, "PUT", "/v1/prod/instances/feed/i", &record, 401),
        (none, "GET", "/v1/prod/feed", &nothing, 401),
        ("node:wrong", "PUT", "/v1/prod/instances/feed/i", &record, 401),
        (node, "PUT", "/v1/prod/instances/feed/i", &record, 200),
        (node, "PUT", "/v1/prod/instances/other/i", &record, 403),
        (node, "PUT", "/v1/test/instances/feed/i", &record, 403),
        (node, "PUT", "/v1/%2a/instances/feed/i", &record, 403),
        // An instance has all keys of its app.
        (part, "PUT", "/v1/prod/instances/feed/i", &record, 403),
        (part, "GET", "/v1/prod/feed?app=feed", &nothing, 403),
        (none, "GET", "/v1/prod/users", &nothing, 401),
        (reader, "GET", "/v1/prod/users", &nothing, 403),
        (ops, "GET", "/v1/prod/users", &nothing, 403),
        (test, "GET", "/v1/prod/users", &nothing, 403),
        (part, "GET", "/v1/prod/users", &nothing, 403),
        (node, "GET", "/v1/test/users", &nothing, 403),
        (node, "GET", "/v1/prod/users", &nothing, 200),
        (node, "PUT", "/v1/prod/jobs/j", &job, 403),
        (reader, "PUT", "/v1/prod/jobs/j", &job, 403),
        (test, "PUT", "/v1/prod/jobs/j", &job, 403),
        (ops, "PUT", "/v1/prod/jobs/j", &job, 200),
        (none, "PUT", "/v1/prod/fills/f", &fill("feed"), 401),
        (reader, "PUT", "/v1/prod/fills/f", &fill("feed"), 403),
        (node, "PUT", "/v1/prod/fills/f", &fill("other"), 403),
        (node, "PUT", "/v1/prod/fills/f", &fill("feed"), 404),
        (none, "POST", "/v1/prod/claims", &claim, 401),
        (reader, "POST", "/v1/prod/claims", &claim, 403),
        (test, "POST", "/v1/prod/claims", &claim, 403),
        (root, "POST", "/v1/prod/claims", &claim, 200),
        (node, "POST", "/v1/prod/jobs/j/tasks/t", &said, 403),
        (root, "POST", "/v1/prod/jobs/j/tasks/t", &said, 200),
        (reader, "POST", "/v1/prod/jobs/j", &cancel, 403),
        (reader, "GET", "/v1/prod/jobs/j", &nothing, 200),
        (node, "GET", "/v1/prod/jobs", &nothing, 403),
        (ops, "POST", "/v1/prod/jobs/j", &cancel, 200),
        (node, "GET", "/v1/prod/instances", &nothing, 403),
        (node, "GET", "/v1/prod/feed", &nothing, 403),
        (node, "GET", "/v1/prod/feed?app=other", &nothing, 403),
        (node, "POST", "/v1/prod/topologies/feed", &create, 403),
        (node, "PUT", "/v1/prod/instances/feed/i/override", &word, 403),
        (node, "GET", "/v1/prod/topologies/other", &nothing, 403),
        (node, "GET", "/v1/prod/topologies/feed", &nothing, 404),
        (reader, "GET", "/v1/prod/instances", &nothing, 200),
        (reader, "GET", "/v1/test/instances", &nothing, 403),
        (reader, "PUT", "/v1/prod/instances/feed/i", &record, 403),
        (reader, "POST", "/v1/prod/topologies/feed", &create, 403),
        (reader, "GET", "/v1/prod/audit", &nothing, 403),
        (reader, "GET", "/v1/status", &nothing, 403),
        (ops, "POST", "/v1/prod/topologies/feed", &create, 200),
        (ops, "POST", "/v1/test/topologies/feed", &create, 403),
        (none, "GET", "/v1/prod/properties", &nothing, 401),
        (node, "GET", "/v1/prod/properties", &nothing, 403),
        (node, "GET", "/v1/prod/property-status", &nothing, 403),
        (node, "PUT", "/v1/prod/properties/app=feed/ack", &value, 403),
        (reader, "GET", "/v1/prod/properties", &nothing, 200),
        (reader, "GET", "/v1/prod/rollouts", &nothing, 200),
        (reader, "PUT", "/v1/prod/properties/app=other/max_connections", &value, 403),
        (reader, "POST", "/v1/prod/rollouts", &value, 403),
        (reader, "POST", "/v1/prod/property-rollback", &nothing, 403),
        (ops, "PUT", "/v1/test/properties/global/max_connections", &value, 403),
        (ops, "PUT", "/v1/prod/properties/app=other/max_connections", &value, 200),
        (test, "GET", "/v1/prod/properties", &nothing, 403),
        (test, "GET", "/v1/prod/property-history", &nothing, 403),
        (ops, "GET", "/v1/prod/audit", &nothing, 403),
        (ops, "PUT", "/v1/regions/eu", &nothing, 403),
        (ops, "GET", "/v1/status", &nothing, 200),
        (test, "PUT", "/v1/regions/eu", &nothing, 403),
        (test, "GET", "/v1/prod/feed", &nothing, 403),
        (root, "PUT", "/v1/regions/eu", &nothing, 200),
        (root, "GET", "/metrics", &nothing, 200),
    ] {
        let (answered, answer) = control.ask_as(token, method, path, body);
        assert_eq!(answered, status, "{} {method} {path}: {answer}", token.split(':').next().unwrap());
    }
    // Of a body's renewals, those of apps of its own.
    let (_, answers) =
        control.ask_as(node, "POST", "/v1/prod/renewals", &json!([renewal("feed")[0], renewal("other")[0]]));
    assert!(answers[0]["ok"] == true && answers[1]["error"].is_string(), "{answers}");
    // Nor do epochs that it says it has seen move those of others.
    let (_, other) = control.ask_as(ops, "POST", "/v1/prod/topologies/other", &create);
    assert_eq!(other["epoch"], 1);
    let lies = json!({ "kind": "other", "renew_every_s": 300, "epochs": { "other": 50, "feed": 5 } });
    assert_eq!(control.ask_as(node, "PUT", "/v1/prod/instances/feed/i", &lies).0, 200);
    let epoch =
        |app: &str| control.ask_as(ops, "GET", &format!("/v1/prod/topologies/{app}"), &nothing).1["epoch"].clone();
    until("its own is raised", || epoch("feed") == 6);
    assert_eq!(epoch("other"), 1);
    // What one environment has, another's users find nowhere.
    for path in ["/v1/test/instances", "/v1/test/apps", "/v1/test/audit"] {
        let (_, answer) = control.ask_as(test, "GET", path, &nothing);
        assert!(
            !answer.to_string().contains("secret-zone") && !answer.to_string().contains("feed"),
            "{path}: {answer}"
        );
    }
    let mut feed = Feed::open(control.address, test, "/v1/test/feed", "");
    assert_eq!(feed.round().0.len(), 1);
    let mut feed = Feed::open(control.address, node, "/v1/prod/feed?app=feed", "");
    assert_eq!(feed.round().0.len(), 3);
    let (_, acts) = control.ask_as(root, "GET", "/v1/prod/audit", &nothing);
    let who: Vec<&Value> = acts["acts"].as_array().unwrap().iter().map(|act| &act["who"]).collect();
    assert_eq!(who, ["node", "node", "ops", "ops", "ops", "ops", "root", "ops", "node"]);
    control.end();
}

#[test]
fn beyond_this_machine_it_does_not_start_without_users() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let said = refused(&mut moneta(&["control", "--data", &data, "--listen", "0.0.0.0:0"]), 2);
    assert!(said.contains("listen") && said.contains("users"), "{said}");
    let said = refused(&mut moneta(&["control", "--listen", "127.0.0.1:0"]), 2);
    assert!(said.contains("data"), "{said}");
}

#[test]
fn a_folder_has_one_process() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let data = folder.path().display().to_string();
    let said = refused(&mut moneta(&["control", "--data", &data, "--listen", "127.0.0.1:0"]), 1);
    assert!(said.contains(&data), "{said}");
    control.end();
}

#[test]
fn long_bodies_and_slow_heads_cost_their_clients_alone() {
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let before = control.process.peak_bytes();
    // A hundred megabytes, announced and begun.
    for path in ["/v1/default/renewals", "/v1/default/topologies/feed"] {
        let mut stream = TcpStream::connect(control.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(head("POST", path, "", 100 << 20).as_bytes()).unwrap();
        let piece = vec![b' '; 1 << 20];
        let mut sent = 0;
        while sent < 100 && stream.write_all(&piece).is_ok() {
            sent += 1;
        }
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        // The answer may be lost with the connection, which is closed while there is more to read.
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || answer.contains(" 413 "), "{answer}");
        assert!(sent < 100, "it was read");
    }
    let grown = control.process.peak_bytes() - before;
    assert!(grown < 50 << 20, "{grown} bytes more");
    // Heads that do not come: more than there are places for them. They are cut off, and others are answered meanwhile.
    let slow: Vec<TcpStream> = (0..300)
        .map(|_| {
            let mut stream = TcpStream::connect(control.address).unwrap();
            stream.write_all(b"GET /v1/default/feed HTTP/1.1\r\nHost: local").unwrap();
            stream
        })
        .collect();
    control.good("GET", "/v1/status", &Value::Null);
    for mut stream in slow {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(!String::from_utf8_lossy(&rest).contains(" 200 "));
    }
    control.end();
}

#[test]
fn clients_of_eureka_are_the_users_that_their_urls_name_and_of_one_environment() {
    let folder = tempfile::tempdir().unwrap();
    let (text, tokens) = users(&[
        ("orders", "rights = []\nenvironments = [\"prod\"]\nroles = [\"register\", \"read\"]\napps = [\"ORDERS\"]"),
        ("reader", "rights = []\nenvironments = [\"prod\"]\nroles = [\"read\"]"),
        ("test", "rights = []\nenvironments = [\"test\"]\nroles = [\"register\", \"read\"]"),
        ("ops", "rights = []\nenvironments = [\"*\"]\nroles = [\"read\"]"),
    ]);
    let path = file(folder.path(), "users.toml", &text);
    {
        use std::os::unix::fs::PermissionsExt;
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).unwrap();
    }
    let eureka: SocketAddr = format!("127.0.0.1:{}", steady_port()).parse().unwrap();
    let listen = eureka.to_string();
    let arguments = ["--users", &path, "--eureka", &listen, "--eureka-environment", "prod"];
    let control = Control::start(&folder.path().join("data"), &arguments);
    let ask = |user: &str, method: &str, path: &str, body: &str| {
        let mut stream = TcpStream::connect(eureka).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        // As a client sends the user of http://USER:SECRET@HOST/eureka.
        let basic = base64::engine::general_purpose::STANDARD.encode(user);
        let log_in = if user.is_empty() { String::new() } else { format!("Authorization: Basic {basic}\r\n") };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\n{log_in}Accept: application/json\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        let mut answer = String::new();
        let _ = stream.read_to_string(&mut answer);
        (answer.split(' ').nth(1).and_then(|status| status.parse::<u16>().ok()).unwrap_or_default(), answer)
    };
    let registration =
        json!({ "instance": { "instanceId": "i-1", "hostName": "h1", "app": "ORDERS", "ipAddr": "10.0.0.1",
        "status": "UP", "port": { "$": 80, "@enabled": "true" }, "lastDirtyTimestamp": "1000",
        "dataCenterInfo": { "@class": "x", "name": "MyOwn" },
        "leaseInfo": { "renewalIntervalInSecs": 30, "durationInSecs": 90 } } })
        .to_string();
    let other = registration.replace("ORDERS", "OTHER");
    let [orders, reader, test, ops] = tokens.iter().map(String::as_str).collect::<Vec<_>>().try_into().unwrap();
    for (user, method, path, body, status) in [
        ("", "GET", "/eureka/apps", "", 401),
        ("", "POST", "/eureka/apps/ORDERS", &*registration, 401),
        ("orders:wrong", "POST", "/eureka/apps/ORDERS", &registration, 401),
        (reader, "POST", "/eureka/apps/ORDERS", &registration, 403),
        (test, "POST", "/eureka/apps/ORDERS", &registration, 403),
        (test, "GET", "/eureka/apps", "", 403),
        (orders, "POST", "/eureka/apps/OTHER", &other, 403),
        (orders, "POST", "/eureka/apps/ORDERS", &registration, 204),
        (orders, "PUT", "/eureka/apps/ORDERS/i-1", "", 200),
        (reader, "PUT", "/eureka/apps/ORDERS/i-1", "", 403),
        (reader, "DELETE", "/eureka/apps/ORDERS/i-1", "", 403),
        (reader, "GET", "/eureka/apps", "", 200),
    ] {
        let (answered, answer) = ask(user, method, path, body);
        assert_eq!(answered, status, "{} {method} {path}: {answer}", user.split(':').next().unwrap());
    }
    until("it is told", || ask(reader, "GET", "/eureka/apps", "").1.contains("\"i-1\""));
    let seen = |environment: &str| {
        let (_, page) = control.ask_as(ops, "GET", &format!("/v1/{environment}/instances"), &Value::Null);
        page["instances"].as_array().map_or(0, Vec::len)
    };
    assert_eq!((seen("prod"), seen("test"), seen("default")), (1, 0, 0));
    control.end();
}

#[test]
fn readers_that_do_not_read_hold_nothing_and_hold_nobody_back() {
    const READERS: usize = 1_000;
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, soft.max(READERS as u64 + 500).min(hard), hard).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let control = Control::start(folder.path(), &[]);
    let filler = "x".repeat(8_000);
    let record =
        |number: usize| json!({ "kind": "other", "renew_every_s": 300, "metadata": { "x": filler, "n": number } });
    let put = |id: usize, number: usize| {
        let path = format!("/v1/default/instances/feed/i-{id}");
        let (status, _) = try_ask(control.address, "PUT", &path, "", &record(number).to_string()).unwrap();
        assert_eq!(status, 200);
    };
    // More than a socket takes.
    (0..200).for_each(|id| put(id, 0));
    let before = control.process.peak_bytes();
    let still: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut stream = TcpStream::connect(control.address).unwrap();
            // What sockets hold is this machine's.
            sockopt::set_socket_recv_buffer_size(&stream, 4_096).unwrap();
            stream.write_all(head("GET", "/v1/default/feed", "", 0).as_bytes()).unwrap();
            stream
        })
        .collect();
    let mut reading = control.feed("kinds=instances");
    reading.round();
    (0..200).for_each(|id| put(id, 1));
    reading.until(|event| event["put"]["key"] == "feed/i-199" && event["put"]["value"]["metadata"]["n"] == 1);
    let grown = control.process.peak_bytes() - before;
    assert!(grown < READERS as u64 * (128 << 10), "{grown} bytes for {READERS} readers");
    // One that comes back to itself is told the last values.
    let mut late = still.into_iter().next().unwrap();
    late.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    let mut first = [0; 1_000];
    let read = late.read(&mut first).unwrap();
    assert!(String::from_utf8_lossy(&first[..read]).contains(" 200 "));
    control.end();
}
