//! Guards users of real processes: what they may do on nodes and through proxies, and that a change of their file reaches
//! connections that are open, without a request that fails.

mod common;
#[path = "users/table.rs"]
mod table;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use common::{Node, file, moneta, output, printed, refused};
use nix::sys::signal::Signal;
use rustix::net::sockopt::set_socket_recv_buffer_size;

/// A file of users, and the secrets of those in it.
struct Users {
    folder: tempfile::TempDir,
}

impl Users {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self) -> String {
        self.folder.path().join("users.toml").to_str().unwrap().to_owned()
    }

    /// Adds a user and returns its secret.
    fn add(&self, name: &str, rest: &[&str]) -> String {
        self.run(&[&["add", &self.path(), name], rest].concat())
    }

    fn run(&self, arguments: &[&str]) -> String {
        printed(&mut moneta(&[&["user"], arguments].concat())).trim().to_owned()
    }
}

fn log_in(name: &str, secret: &str) -> String {
    let value = format!("{name} {secret}");
    format!("set x 0 0 {}\r\n{value}\r\n", value.len())
}

/// Sends a request on an open connection; what comes back begins so, or the connection has ended.
fn ask(stream: &mut TcpStream, request: &str, length: usize) -> Option<String> {
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = vec![0; length];
    stream.read_exact(&mut answer).ok()?;
    Some(String::from_utf8_lossy(&answer).into_owned())
}

const FAILURE: &str = "CLIENT_ERROR authentication failure\r\n";
const HIT: &str = "VALUE a:1 0 1\r\n1\r\nEND\r\n";

#[test]
fn a_node_lets_users_do_what_they_may() {
    let users = Users::new();
    let ann = users.add("ann", &["--rights", "read,write", "--prefix", "a:"]);
    let ops = users.add("ops", &["--rights", "stats,operate,flush", "--listener", "operators"]);
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let (open, operators) = (folder.path().join("open"), folder.path().join("operators"));
    let config = format!(
        "[[listener]]\naddress = \"{}\"\nusers = \"off\"\n[[listener]]\naddress = \"{}\"\nname = \"operators\"\n",
        open.display(),
        operators.display()
    );
    let config = file(folder.path(), "moneta.toml", &config);
    let audit_path = audit.to_str().unwrap();
    let node = Node::start(&["--users", &users.path(), "--config", &config, "--audit-log", audit_path]);
    let both = "set a:1 0 0 1\r\n1\r\nget a:1\r\nget a:1 b\r\nflush_all\r\n";
    let no = |right: &str| format!("CLIENT_ERROR not allowed: {right}\r\n");
    assert_eq!(
        node.exchange(&(log_in("ann", &ann) + both)),
        format!("STORED\r\nSTORED\r\n{HIT}{}{}", no("read"), no("flush"))
    );
    assert_eq!(node.exchange(&log_in("ann", "wrong")), FAILURE);
    assert_eq!(node.exchange(&log_in("ops", &ops)), FAILURE, "through another listener");
    let unix = |path: &Path, requests: &str| common::exchange(common::connect_unix(path).unwrap(), requests);
    assert_eq!(unix(&open, "get a:1\r\n"), HIT, "a listener without users");
    assert_eq!(
        unix(&operators, &(log_in("ops", &ops) + "flush_all\r\nget a:1\r\n")),
        format!("STORED\r\nOK\r\n{}", no("read"))
    );
    let lines = || fs::read_to_string(&audit).unwrap();
    node.wait_for(
        || lines().contains("\"who\":\"ops\",\"from\":\"a Unix socket\",\"command\":\"flush_all\""),
        "no flush in the audit log",
    );
    assert_eq!(lines().matches("log_in_failed").count(), 2, "{}", lines());
    assert!(!lines().contains("wrong"), "no secret is written");
    // Rotated, and opened again.
    fs::rename(&audit, folder.path().join("audit.1")).unwrap();
    node.signal(Signal::SIGHUP);
    node.wait_for(
        || fs::read_to_string(&audit).is_ok_and(|text| text.contains("\"what\":\"reloaded\"")),
        "it is not opened again",
    );
    node.wait_for_log("user=\"ann\"");
    assert!(!node.log().contains(&ann), "{}", node.log());
}

#[test]
fn apps_of_a_proxy_are_what_its_users_may_touch() {
    let users = Users::new();
    let one = users.add("one", &["--rights", "read,write,flush", "--app", "one"]);
    let two = users.add("two", &["--rights", "read,write", "--app", "two"]);
    let node = Node::start(&["--cluster"]);
    let folder = tempfile::tempdir().unwrap();
    let topology = format!("epoch = 1\n[[replica]]\nname = \"a\"\nzone = \"a\"\nnodes = [\"{}\"]\n", node.address());
    let topology = file(folder.path(), "topology.toml", &topology);
    let socket = folder.path().join("one.sock");
    let config = format!(
        "topology = \"{topology}\"\nack = \"all\"\n[[app]]\nname = \"one\"\nprefix = \"one:\"\n[[app]]\nname = \"two\"\nprefix = \"\"\n\
         [[listener]]\naddress = \"{}\"\napp = \"one\"\n",
        socket.display()
    );
    let config = file(folder.path(), "proxy.toml", &config);
    let users_path = users.path();
    let proxy = Node::run(&mut moneta(&[
        "proxy",
        "-p",
        "0",
        "--admin",
        "127.0.0.1:0",
        "--config",
        &config,
        "--users",
        &users_path,
    ]));
    let no = |right: &str| format!("CLIENT_ERROR not allowed: {right}\r\n");
    let set = |key: &str| format!("set {key} 0 0 1\r\nx\r\n");
    assert_eq!(
        proxy.exchange(&(log_in("one", &one) + &set("one:k") + &set("k") + "mg k v\r\nget one:k k\r\nflush_all\r\n")),
        format!("STORED\r\nSTORED\r\n{}{}{}{}", no("write"), no("read"), no("read"), no("flush"))
    );
    assert_eq!(
        proxy.exchange(&(log_in("two", &two) + &set("k") + &set("one:k") + "get k\r\n")),
        format!("STORED\r\nSTORED\r\n{}VALUE k 0 1\r\nx\r\nEND\r\n", no("write"))
    );
    // What comes through an app's listener is that app's, whatever its keys are.
    let unix = |requests: &str| common::exchange(common::connect_unix(&socket).unwrap(), requests);
    assert_eq!(
        unix(&(log_in("one", &one) + &set("k") + "get k\r\n")),
        "STORED\r\nSTORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n"
    );
    assert_eq!(unix(&(log_in("two", &two) + "get k\r\n")), format!("STORED\r\n{}", no("read")));
}

/// What the admin port of a node answers to a request for a page, with these headers.
fn answer(node: &Node, method: &str, path: &str, headers: &str) -> String {
    let address = node.screen.iter().find_map(|line| line.split("http://").nth(1)).expect("it has an admin port");
    let address = address.split(['/', ' ']).next().expect("an address");
    let request = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n{headers}\r\n");
    common::exchange(common::connect(address), &request)
}

/// The status of a page.
fn page(node: &Node, method: &str, path: &str, headers: &str) -> u16 {
    let answer = answer(node, method, path, headers);
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn the_admin_port_lets_users_do_what_they_may() {
    let users = Users::new();
    let ops = users.add("ops", &["--rights", "stats,replicate,operate"]);
    let graphs = users.add("graphs", &["--rights", "stats", "--listener", "admin"]);
    let app = users.add("app", &["--rights", "read,write,stats", "--listener", "main"]);
    let part = users.add("part", &["--rights", "stats,replicate", "--prefix", "a:"]);
    let path = users.path();
    // Keys are secrets for all but those that copy all of them.
    let node = Node::start(&["--users", &path, "--cluster", "--disable-dumping"]);
    let token = |name: &str, secret: &str| format!("Authorization: Bearer {name}:{secret}\r\n");
    let asked = [
        ("/healthz", String::new(), 200),
        ("/readyz", String::new(), 200),
        ("/metrics", String::new(), 401),
        ("/", String::new(), 401),
        ("/changes", String::new(), 401),
        ("/nothing-here", String::new(), 401),
        ("/metrics", token("ops", "wrong"), 401),
        ("/metrics", token("nobody", &ops), 401),
        ("/metrics", token("ops", &ops), 200),
        ("/metrics", token("graphs", &graphs), 200),
        ("/changes", token("graphs", &graphs), 403),
        ("/changes", token("part", &part), 403),
        ("/changes", token("ops", &ops), 200),
        // Its listeners are others.
        ("/metrics", token("app", &app), 403),
    ];
    for (path, headers, status) in asked {
        assert_eq!(page(&node, "GET", path, &headers), status, "{path} {headers}");
    }
    // Who acts in environments alone has no rights.
    let node_of_fleet =
        users.run(&["add", &path, "fleet", "--app", "a", "--environment", "default", "--roles", "register"]);
    node.wait_for(|| page(&node, "GET", "/", &token("fleet", &node_of_fleet)) == 403, "it is not known");
    users.run(&["remove", &path, "graphs"]);
    node.wait_for(|| page(&node, "GET", "/metrics", &token("graphs", &graphs)) == 401, "who is removed is let in");
    let open = Node::start(&["--users", &path, "--admin-metrics-open"]);
    assert_eq!((page(&open, "GET", "/metrics", ""), page(&open, "GET", "/", "")), (200, 401));
}

/// Without this a user of some keys reads those of all others, with their values.
#[test]
fn who_may_touch_some_keys_sees_no_others_on_the_admin_port() {
    let users = Users::new();
    let rights = "read,write,list,replicate,stats,operate";
    let all = users.add("all", &["--rights", rights]);
    let some = users.add("some", &["--rights", rights, "--prefix", "a:"]);
    let app = users.add("app", &["--rights", rights, "--app", "one"]);
    let node = Node::start(&["--users", &users.path(), "--cluster"]);
    assert_eq!(node.exchange(&(log_in("all", &all) + "set b:1 0 0 1\r\nx\r\n")), "STORED\r\nSTORED\r\n");
    let token = |name: &str, secret: &str| format!("Authorization: Bearer {name}:{secret}\r\n");
    let digest = "Content-Length: 26\r\n";
    let pages = [
        ("GET", "/key?key=b:1&value=1"),
        ("GET", "/hotkeys"),
        ("GET", "/slowlog"),
        ("GET", "/changes?values=1"),
        ("POST", "/digest"),
    ];
    for (method, path) in pages {
        let status = |headers: String| page(&node, method, path, &headers);
        let more = if method == "POST" { digest } else { "" };
        for (name, secret) in [("some", &some), ("app", &app)] {
            assert_eq!(status(token(name, secret) + more), 403, "{name} {path}");
        }
        if method == "GET" {
            assert_eq!(status(token("all", &all)), 200, "{path}");
        }
    }
    assert_eq!(page(&node, "GET", "/metrics", &token("some", &some)), 200);
    assert_eq!(page(&node, "GET", "/options", &token("some", &some)), 200);
}

/// Without this who may list keys reads what is under them.
#[test]
fn a_value_takes_the_right_to_read_beside_that_to_list() {
    let users = Users::new();
    let all = users.add("all", &["--rights", "read,write,list"]);
    let lists = users.add("lists", &["--rights", "write,list,stats,operate"]);
    let reads = users.add("reads", &["--rights", "read,write,stats"]);
    let node = Node::start(&["--users", &users.path()]);
    let pages = [
        ("/key?key=k", [200, 200, 403]),
        ("/key?key=k&value=0", [200, 200, 403]),
        ("/key?key=k&value=1", [200, 403, 403]),
        ("/key?value=+1&key=k", [400, 400, 403]),
        ("/key?key=k&v%61lue=%31", [200, 403, 403]),
        ("/key?key64=aw==&value=7", [200, 403, 403]),
        ("/key?value=1", [400, 403, 403]),
        ("/key?key=k&value=1&value=0", [400, 400, 403]),
    ];
    for (path, statuses) in pages {
        for ((name, secret), status) in [("all", &all), ("lists", &lists), ("reads", &reads)].into_iter().zip(statuses)
        {
            let headers = format!("Authorization: Bearer {name}:{secret}\r\n");
            assert_eq!(page(&node, "GET", path, &headers), status, "{name} {path}");
        }
    }
}

#[test]
fn a_secret_is_changed_under_load_without_a_request_that_fails() {
    let users = Users::new();
    let first = users.add("ann", &["--rights", "read,write"]);
    let path = users.path();
    let node = Node::start(&["--users", &path]);
    assert_eq!(node.exchange(&(log_in("ann", &first) + "set a:1 0 0 1\r\n1\r\n")), "STORED\r\nSTORED\r\n");
    let (secret, ends, asked) = (std::sync::Mutex::new(first.clone()), AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !ends.load(Ordering::Relaxed) {
                    // As a pool that takes the newest secret for new connections.
                    let secret = secret.lock().unwrap().clone();
                    let mut stream = node.connect();
                    assert_eq!(ask(&mut stream, &log_in("ann", &secret), 8).as_deref(), Some("STORED\r\n"));
                    for _ in 0..50 {
                        assert_eq!(ask(&mut stream, "get a:1\r\n", HIT.len()).as_deref(), Some(HIT));
                        asked.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let taken = || node.log().matches("users read again").count();
        for turn in 1..=3 {
            let next = users.run(&["rotate", &path, "ann"]);
            node.wait_for(|| taken() == turn, "the rotated file is not taken");
            *secret.lock().unwrap() = next;
            // All connections are of the new secret before the next turn drops the one before it.
            let before = asked.load(Ordering::Relaxed);
            node.wait_for(|| asked.load(Ordering::Relaxed) >= before + 400, "no load");
        }
        ends.store(true, Ordering::Relaxed);
    });
    assert_eq!(node.exchange(&log_in("ann", &first)), FAILURE, "the oldest is gone");
}

/// The commands ask an admin port as who their `--login-file` says.
#[test]
fn commands_log_in_by_their_file() {
    let users = Users::new();
    let secret = users.add("graphs", &["--rights", "stats"]);
    let (node, folder) = (Node::start(&["--cluster"]), tempfile::tempdir().unwrap());
    let topology = format!("epoch = 1\n[[replica]]\nname = \"a\"\nzone = \"a\"\nnodes = [\"{}\"]\n", node.address());
    let topology = file(folder.path(), "topology.toml", &topology);
    let path = users.path();
    let arguments = ["proxy", "-p", "0", "--admin", "127.0.0.1:0", "--topology", &topology, "--users", &path];
    let proxy = Node::run(&mut moneta(&arguments));
    let address = proxy.screen.iter().find_map(|line| line.split("http://").nth(1)).expect("it has an admin port");
    let address = address.split(['/', ' ']).next().expect("an address");
    let status = |log_in: &str| {
        let log_in = file(folder.path(), "login", log_in);
        moneta(&["proxy", "status", address, "--json", "--login-file", &log_in])
    };
    let said = printed(&mut status(&format!("graphs:{secret}\n")));
    assert!(said.contains("\"nodes\""), "{said}");
    for stranger in [status("graphs:wrong\n"), moneta(&["proxy", "status", address, "--json"])] {
        let mut stranger = stranger;
        assert!(!output(&mut stranger).status.success());
    }
}

#[test]
fn a_user_who_is_removed_is_cut_off_in_the_middle_of_a_dump() {
    let users = Users::new();
    let ann = users.add("ann", &["--rights", "read,write,list"]);
    users.add("bob", &["--rights", "read"]);
    let path = users.path();
    let node = Node::start(&["--users", &path]);
    let sets: String = (0..100_000).map(|number| format!("set key-{number} 0 0 1 noreply\r\nx\r\n")).collect();
    assert_eq!(node.exchange(&(log_in("ann", &ann) + &sets + "mn\r\n")), "STORED\r\nMN\r\n");
    let (mut dump, mut idle, mut watcher) = (node.connect(), node.connect(), node.connect());
    for stream in [&mut dump, &mut idle, &mut watcher] {
        assert_eq!(ask(stream, &log_in("ann", &ann), 8).as_deref(), Some("STORED\r\n"));
    }
    assert_eq!(ask(&mut watcher, "watch fetchers\r\n", 4).as_deref(), Some("OK\r\n"));
    // It reads the begin alone, and the system keeps no more for it than the node's side may, 4 MiB: the rest waits.
    set_socket_recv_buffer_size(&dump, 4096).expect("it can be set");
    assert_eq!(ask(&mut dump, "lru_crawler metadump all\r\n", 6).as_deref(), Some("OK\r\nke"));
    users.run(&["remove", &path, "ann"]);
    for mut stream in [idle, watcher, dump] {
        let mut rest = Vec::new();
        // A reset is an end, too.
        let _ = stream.read_to_end(&mut rest);
        assert!(!rest.ends_with(b"END\r\n"), "it has all of it");
    }
}

#[test]
fn a_file_that_cannot_be_had_leaves_the_users_of_before() {
    let users = Users::new();
    let ann = users.add("ann", &["--rights", "read"]);
    let path = users.path();
    let node = Node::start(&["--users", &path]);
    let whole = fs::read_to_string(&path).unwrap();
    // The last leaves a user whole who is not the only one of the file.
    let two = whole.replace("count = 1", "count = 2");
    let spoils = ["", &whole[..whole.len() / 2], &two];
    for (number, spoilt) in spoils.into_iter().enumerate() {
        fs::write(&path, spoilt).unwrap();
        let said = || node.log().matches("the users of before stay in force").count();
        node.wait_for(|| said() == number + 1, "the log says nothing of it");
        assert_eq!(node.exchange(&(log_in("ann", &ann) + "get a\r\n")), "STORED\r\nEND\r\n");
    }
    node.signal(Signal::SIGHUP);
    node.wait_for_log("reload refused, nothing changed");
    fs::write(&path, whole).unwrap();
    node.wait_for_log("users read again");
    // At the start there are none of before.
    fs::write(&path, "[[user]]\nname = \"ann\"\n").unwrap();
    let said = refused(&mut moneta(&["serve", "-p", "0", "--admin", "off", "--users", &path]), 1);
    assert!(said.contains("users.toml:1 is refused: the user `ann` needs rights"), "{said}");
}

#[test]
fn a_flood_of_failed_log_ins_leaves_others_their_service() {
    let users = Users::new();
    let ann = users.add("ann", &["--rights", "read"]);
    let mut command = moneta(&["user", "add", &users.path(), "bob", "--rights", "read", "--password-stdin"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"correct-horse\n").unwrap();
    assert!(child.wait().unwrap().success());
    let path = users.path();
    let node = Node::start(&["--users", &path, "--login-attempts", "1000000", "--login-failures", "10"]);
    let mut member = node.connect();
    assert_eq!(ask(&mut member, &log_in("ann", &ann), 8).as_deref(), Some("STORED\r\n"));
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for name in ["bob", "eve"] {
            let (stop, node) = (&stop, &node);
            scope.spawn(move || {
                let mut stream = node.connect();
                while !stop.load(Ordering::Relaxed) {
                    // Each is answered, by one refusal or the other.
                    let Some(first) = ask(&mut stream, &log_in(name, "wrong"), FAILURE.len()) else { break };
                    assert!(first.starts_with("CLIENT_ERROR "), "{first}");
                }
            });
        }
        for _ in 0..2_000 {
            assert_eq!(ask(&mut member, "get a\r\n", 5).as_deref(), Some("END\r\n"));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// Who is refused as fast as it can ask fills neither the log nor the audit log; each refusal is counted.
#[test]
fn refusals_are_counted_each_and_logged_at_a_bounded_rate() {
    const FLOOD: usize = 20_000;
    let users = Users::new();
    let ann = users.add("ann", &["--rights", "read", "--prefix", "a:"]);
    let (path, folder) = (users.path(), tempfile::tempdir().unwrap());
    let audit = folder.path().join("audit.jsonl");
    let audit = audit.to_str().unwrap();
    let limits = ["--login-attempts", "1000000", "--login-failures", "1000000"];
    let node = Node::start(&[&["--users", &path, "--audit-log", audit, "--admin-metrics-open"][..], &limits].concat());
    let refused = node.exchange(&(log_in("ann", &ann) + &"get b\r\n".repeat(FLOOD)));
    assert_eq!(refused.matches("CLIENT_ERROR not allowed: read\r\n").count(), FLOOD);
    let failed = node.exchange(&log_in("ann", "wrong").repeat(FLOOD));
    assert_eq!(failed.matches(FAILURE).count(), FLOOD);
    let metrics = answer(&node, "GET", "/metrics", "");
    assert!(
        metrics.contains(&format!("moneta_user_refusals_total{{user=\"ann\",right=\"read\"}} {FLOOD}\n")),
        "{metrics}"
    );
    node.wait_for_log("lines left out");
    let (log, audit) = (node.log(), fs::read_to_string(audit).unwrap());
    // Ten a second of each place in the program.
    for (text, part) in [(&log, "refused for want of a right"), (&log, "log-in failed"), (&audit, "log_in_failed")] {
        let lines = text.matches(part).count();
        assert!((1..FLOOD / 4).contains(&lines), "{part}: {lines}");
    }
}

#[test]
fn a_password_logs_in() {
    let users = Users::new();
    let mut command = moneta(&["user", "add", &users.path(), "bob", "--rights", "read", "--password-stdin"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"correct-horse\n").unwrap();
    let printed = child.wait_with_output().unwrap();
    assert!(printed.status.success() && printed.stdout.is_empty(), "nothing is told of it");
    let path = users.path();
    let node = Node::start(&["--users", &path]);
    assert_eq!(node.exchange(&(log_in("bob", "correct-horse") + "get a\r\n")), "STORED\r\nEND\r\n");
    assert_eq!(
        node.exchange(&(log_in("bob", "wrong-horse") + &log_in("bob", "correct-horse"))),
        format!("{FAILURE}STORED\r\n")
    );
}

#[test]
fn the_command_edits_a_file_and_says_what_is_wrong() {
    let users = Users::new();
    let path = users.path();
    let secret = users.add("ann", &["--rights", "read,write", "--prefix", "a:", "--listener", "main"]);
    assert_eq!(secret.len(), 43);
    assert_eq!(
        users.add("proxy", &["--rights", "replicate", "--certificate", "spiffe://x/*"]),
        "",
        "it needs no secret"
    );
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&path).unwrap().permissions()) & 0o777;
    assert_eq!(mode, 0o600);
    fs::write(&path, format!("# ours\n{}", fs::read_to_string(&path).unwrap())).unwrap();
    let list = users.run(&["list", &path]);
    let lines = "ann  rights read,write  prefixes a:  listeners main  secrets 1\n\
                 proxy  rights replicate  certificates spiffe://x/*  secrets 0";
    assert_eq!(list, lines);
    assert_ne!(users.run(&["rotate", &path, "ann"]), secret);
    assert!(users.run(&["list", &path]).contains("secrets 2"));
    users.run(&["remove", &path, "proxy"]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.starts_with("# ours\n") && !text.contains("proxy") && !text.contains(&secret), "{text}");
    for (arguments, why) in [
        (["add", &path, "ann", "--rights", "read"].as_slice(), "the user `ann` is there already"),
        (&["remove", &path, "eve"], "it has no user `eve`"),
        (&["remove", &path, "ann"], "it has no users"),
        (&["rotate", "/nowhere/users.toml", "ann"], "cannot be read"),
    ] {
        let said = refused(&mut moneta(&[&["user"], arguments].concat()), 1);
        assert!(said.contains(why), "{said}");
    }
    assert_eq!(fs::read_to_string(&path).unwrap(), text, "nothing changed");
    assert_eq!(fs::read_dir(users.folder.path()).unwrap().count(), 1, "nothing is left beside it");
    assert_eq!(output(&mut moneta(&["user", "add", &path, "eve", "--rights", "all"])).status.code(), Some(2));
}

/// Beyond loopback an admin port has users, clients with certificates, or is opened by a word.
#[test]
fn an_admin_port_beyond_loopback_is_opened_by_users_or_by_a_word() {
    let users = Users::new();
    users.add("ops", &["--rights", "stats"]);
    let path = users.path();
    let of_node = ["serve", "-p", "0", "--admin", "0.0.0.0:0"];
    let said = refused(&mut moneta(&of_node), 2);
    assert!(said.contains("admin_open"), "{said}");
    let started = |more: &[&str]| Node::run(moneta(&of_node).args(more));
    let (open, asks) = (started(&["--admin-open"]), started(&["--users", &path]));
    // Asked at loopback: it is one of all addresses.
    let local = |node: &Node| {
        let line =
            node.screen.iter().find_map(|line| line.split("http://0.0.0.0:").nth(1)).expect("it has an admin port");
        let port = line.split(['/', ' ']).next().expect("a port");
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let answer = common::exchange(common::connect(format!("127.0.0.1:{port}")), request);
        answer.split(' ').nth(1).map(ToOwned::to_owned)
    };
    assert_eq!([local(&open), local(&asks)].map(Option::unwrap_or_default), ["200", "401"]);
}

#[test]
fn a_cluster_without_users_that_anybody_can_reach_warns() {
    let warning = "whoever can connect here may read the feed and write with versions";
    let open = Node::run(&mut moneta(&["serve", "-p", "0", "-l", "0.0.0.0", "--admin", "127.0.0.1:0", "--cluster"]));
    open.wait_for_log(warning);
    assert!(!Node::start(&["--cluster"]).log().contains(warning), "on loopback");
}
