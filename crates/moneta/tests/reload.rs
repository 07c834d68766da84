//! Guards SIGHUP: what can change does, what cannot is named, and a mistake changes nothing.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use common::{Node, Process, file, moneta, printed, refused, steady_port};
use nix::sys::signal::Signal;

const RELOADED: &str = "reloaded";
const MIB: u64 = 1 << 20;

/// Sends SIGHUP and waits until the log says `until`.
fn reload(node: &Node, until: &str) {
    node.signal(Signal::SIGHUP);
    node.wait_for_log(until);
}

/// The limit on memory as the node tells it, bytes.
fn limit(node: &Node) -> u64 {
    let stats = node.exchange("stats\r\n");
    let line = stats.lines().find_map(|line| line.strip_prefix("STAT limit_maxbytes ")).expect("stats say the limit");
    line.parse().expect("it is a number")
}

fn log_in(password: &str) -> String {
    let value = format!("ann {password}");
    format!("set auth 0 0 {}\r\n{value}\r\nset k 0 0 1\r\nv\r\n", value.len())
}

#[test]
fn the_file_of_users_is_read_again() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "users", "ann:old\n");
    let node = Node::start(&["-Y", &path]);
    assert_eq!(node.exchange(&log_in("old")), "STORED\r\nSTORED\r\n");
    assert!(node.exchange(&log_in("new")).starts_with("CLIENT_ERROR"), "a wrong password is refused");

    fs::write(&path, "ann:new\n").unwrap();
    reload(&node, RELOADED);
    assert_eq!(node.exchange(&log_in("new")), "STORED\r\nSTORED\r\n");
    assert!(node.exchange(&log_in("old")).starts_with("CLIENT_ERROR"), "the old password is gone");
}

#[test]
fn a_broken_file_of_users_leaves_the_old_ones() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "users", "ann:old\n");
    let node = Node::start(&["-Y", &path]);
    fs::write(&path, "nonsense\n").unwrap();
    reload(&node, "reload refused, nothing changed");
    assert!(node.log().contains("line 1"), "{}", node.log());
    assert_eq!(node.exchange(&log_in("old")), "STORED\r\nSTORED\r\n");
}

#[test]
fn the_log_level_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "log_level = \"info\"\n");
    let node = Node::start(&["--config", &path]);
    fs::write(&path, "log_level = \"warn\"\nthreads = 2\n").unwrap();
    reload(&node, "only after a restart");
    let log = node.log();
    assert!(log.contains("changed, but takes effect only after a restart"), "warnings are still logged: {log}");
    assert!(!log.contains(RELOADED), "information no longer is: {log}");

    fs::write(&path, "log_level = \"info\"\n").unwrap();
    reload(&node, RELOADED);
    assert!(node.log().contains("log_level"), "the change is named: {}", node.log());
}

#[test]
fn a_client_changes_how_much_is_logged() {
    let node = Node::start(&[]);
    assert_eq!(node.exchange("verbosity 1\r\n"), "OK\r\n");
    // This connection is told of, and the next, which turns it off again.
    node.exchange("mn\r\n");
    assert_eq!(node.exchange("verbosity 0\r\n"), "OK\r\n");
    node.exchange("mn\r\n");
    reload(&node, RELOADED);
    assert_eq!(node.log().matches(" opened ").count(), 2, "{}", node.log());
    assert!(node.exchange("stats settings\r\n").contains("STAT verbosity 0\r\n"));
}

#[test]
fn the_memory_limit_changes() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "memory = 64\n");
    let node = Node::start(&["--config", &path]);
    assert!(limit(&node) <= 64 * MIB, "{}", limit(&node));
    fs::write(&path, "memory = 128\n").unwrap();
    reload(&node, RELOADED);
    assert!(limit(&node) > 100 * MIB, "{}", limit(&node));
}

#[test]
fn a_limit_that_a_client_has_set_outlives_a_reload() {
    let node = Node::start(&["-m", "64"]);
    assert_eq!(node.exchange("cache_memlimit 128\r\n"), "OK\r\n");
    reload(&node, RELOADED);
    assert!(limit(&node) > 100 * MIB, "{}", limit(&node));
}

#[test]
fn what_needs_a_restart_is_named_and_left_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "backlog = 50\n");
    let node = Node::start(&["--config", &path]);
    fs::write(&path, "backlog = 60\n[[listener]]\naddress = \"127.0.0.1:0\"\n").unwrap();
    reload(&node, RELOADED);
    for option in ["backlog", "listener"] {
        let named = node.log().lines().any(|line| line.contains("only after a restart") && line.contains(option));
        assert!(named, "{option}: {}", node.log());
    }
    assert!(node.exchange("stats settings\r\n").contains("STAT tcp_backlog 50\r\n"));
}

/// What a connection reads until it is closed.
fn rest(mut connection: TcpStream) -> String {
    let mut text = String::new();
    connection.read_to_string(&mut text).expect("it is closed in order");
    text
}

#[test]
fn more_connections_are_admitted_and_idle_ones_closed_from_then_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "max_connections = 1\n");
    let node = Node::start(&["--config", &path]);
    let mut first = node.connect();
    first.write_all(b"mn\r\n").unwrap();
    let mut answer = [0; 4];
    first.read_exact(&mut answer).unwrap();
    assert_eq!(rest(node.connect()), "ERROR Too many open connections\r\n");

    fs::write(&path, "max_connections = 2\nidle_timeout = \"1s\"\n").unwrap();
    reload(&node, RELOADED);
    let settings = node.exchange("stats settings\r\n");
    for line in ["STAT maxconns 2\r\n", "STAT idle_timeout 1\r\n"] {
        assert!(settings.contains(line), "{line} in {settings}");
    }
    // It was open before, and says nothing any more; its worker had no reason to turn.
    assert_eq!(rest(first), "");
    assert!(!node.log().contains("only after a restart"), "{}", node.log());
}

#[test]
fn what_clients_may_do_changes_for_those_that_are_connected() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "");
    let mut node = Node::start(&["--config", &path]);
    assert_eq!(node.exchange("flush_all\r\n"), "OK\r\n");
    let mut connected = node.connect();
    let mut ask = |request: &str, answer: &str| {
        connected.write_all(request.as_bytes()).unwrap();
        let mut said = vec![0; answer.len()];
        connected.read_exact(&mut said).unwrap();
        assert_eq!(String::from_utf8_lossy(&said), answer);
    };
    ask("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    let switches = "disable_flush_all = true\ndisable_dumping = true\ndisable_watch = true\nenable_shutdown = true\n";
    fs::write(&path, switches).unwrap();
    reload(&node, RELOADED);
    ask("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n");
    ask("lru_crawler metadump all\r\n", "ERROR metadump not allowed\r\n");
    ask("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n");
    fs::write(&path, "enable_shutdown = true\n").unwrap();
    node.signal(Signal::SIGHUP);
    node.wait_for(|| node.log().matches(RELOADED).count() == 2, "it reloads again");
    ask("flush_all\r\n", "OK\r\n");
    assert!(!node.log().contains("only after a restart"), "{}", node.log());
    connected.write_all(b"shutdown\r\n").unwrap();
    assert!(node.wait().success());
}

/// The keys of the options of a node that the reference says to change on SIGHUP, but for files of certificates and of users with
/// rights, which have tests of their own.
fn live() -> BTreeSet<String> {
    const ELSEWHERE: [&str; 2] = ["Proxy\n", "TLS\n"];
    let reference = printed(&mut moneta(&["config", "--reference"]));
    let of_node = reference.split("\n## ").filter(|section| !ELSEWHERE.iter().any(|name| section.starts_with(name)));
    let options = of_node.flat_map(|section| section.split("\n### ").skip(1));
    let live = options.filter(|option| option.split("\n\n").nth(1).is_some_and(|line| line.ends_with("reload")));
    live.filter_map(|option| option.lines().next()).filter(|key| *key != "users").map(str::to_owned).collect()
}

#[test]
fn every_option_that_the_reference_says_to_change_changes() {
    let folder = tempfile::tempdir().unwrap();
    let users = file(folder.path(), "users", "ann:pass\n");
    let path = file(folder.path(), "moneta.toml", &format!("auth_file = \"{users}\"\n"));
    let other = file(folder.path(), "others", "bob:pass\n");
    let changed = [
        ("address_bytes", "\"99m\"".into()),
        ("address_connections", "99".into()),
        ("address_operations", "99".into()),
        ("auth_file", format!("\"{other}\"")),
        ("client_memory", "\"99m\"".into()),
        ("disable_dumping", "true".into()),
        ("disable_flush_all", "true".into()),
        ("disable_watch", "true".into()),
        ("drain_timeout", "\"9s\"".into()),
        ("dump_timeout", "\"9s\"".into()),
        ("enable_shutdown", "true".into()),
        ("hot_keys", "\"off\"".into()),
        ("idle_timeout", "\"900s\"".into()),
        ("lame_duck", "\"1s\"".into()),
        ("log_level", "\"debug\"".into()),
        ("login_attempts", "9".into()),
        ("login_failures", "9".into()),
        ("login_timeout", "\"9s\"".into()),
        ("max_bytes", "\"99m\"".into()),
        ("max_connections", "99".into()),
        ("max_operations", "99".into()),
        ("memory", "\"99m\"".into()),
        ("miss_curve", "\"off\"".into()),
        ("output_limit", "\"99k\"".into()),
        ("slow_log_bytes", "\"99k\"".into()),
        ("slow_log_time", "\"99ms\"".into()),
        ("verbose", "1".into()),
    ];
    let told = changed.iter().map(|(key, _)| (*key).to_owned());
    assert_eq!(told.collect::<BTreeSet<_>>(), live());
    let node = Node::start(&["--config", &path]);
    let lines: Vec<String> = changed.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    fs::write(&path, lines.concat()).unwrap();
    reload(&node, RELOADED);
    let log = node.log();
    assert!(!log.contains("only after a restart"), "{log}");
    // Ten have a line each, and one line has the others.
    let more = log.lines().find(|line| line.contains("more changed")).expect("it is told");
    let named = |key: &str| log.lines().any(|line| line.contains("changed") && line.contains(key));
    assert!(more.contains(&format!("more={}", changed.len() - 10)), "{more}");
    assert!(changed.iter().all(|(key, _)| named(key)), "{log}");
}

#[test]
fn a_mistake_in_the_file_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "memory = 64\n");
    let node = Node::start(&["--config", &path]);
    fs::write(&path, "memory = 128\nthreads = 0\n").unwrap();
    reload(&node, "reload refused, nothing changed");
    assert!(node.log().contains("moneta.toml:2"), "the place is named: {}", node.log());
    assert!(limit(&node) <= 64 * MIB, "{}", limit(&node));
}

#[test]
fn a_flag_still_wins_after_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let path = file(folder.path(), "moneta.toml", "");
    let node = Node::start(&["--config", &path, "-m", "64"]);
    fs::write(&path, "memory = 128\n").unwrap();
    reload(&node, RELOADED);
    assert!(limit(&node) <= 64 * MIB, "{}", limit(&node));
}

/// A relay of two regions of one node each, whose options are in `relay.toml`.
fn relay(folder: &std::path::Path, own: &str) -> (Process, String, [Node; 2]) {
    let nodes = ["1", "2"].map(|region| Node::start(&["--cluster", "--region-id", region, "-m", "16m"]));
    let topologies = [0, 1].map(|place| {
        let text =
            format!("epoch = 1\n[[replica]]\nname = \"a\"\nzone = \"a\"\nnodes = [\"{}\"]\n", nodes[place].address());
        file(folder, &format!("region-{place}.toml"), &text)
    });
    let (config, state) = (file(folder, "relay.toml", own), folder.join("state").display().to_string());
    let admin = format!("127.0.0.1:{}", steady_port());
    let [from, to] = &topologies;
    let arguments = ["relay", "--config", &config, "--from", from, "--to", to, "--region", "1", "--state-dir", &state];
    let relay = Process::start(moneta(&arguments).args(["--admin", &admin, "--patience", "60", "--zone", "a"]));
    relay.until("it is ready", || page(&admin, "/readyz").starts_with("HTTP/1.1 200"));
    (relay, admin, nodes)
}

fn page(admin: &str, path: &str) -> String {
    let Ok(mut stream) = TcpStream::connect(admin) else { return String::new() };
    let mut text = String::new();
    let asked = write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    asked.and_then(|()| stream.read_to_string(&mut text)).map(|_| text).unwrap_or_default()
}

#[test]
fn a_relay_takes_other_options_and_opens_its_audit_log_again() {
    let folder = tempfile::tempdir().unwrap();
    let audit = folder.path().join("audit.jsonl");
    let options = |more: &str| format!("audit_log = \"{}\"\n{more}", audit.display());
    let (relay, admin, nodes) = relay(folder.path(), &options("rate = \"9m\"\n"));
    let config = folder.path().join("relay.toml");
    let rate = || {
        let text = page(&admin, "/relay");
        let body = text.split("\r\n\r\n").nth(1).and_then(|body| serde_json::from_str::<serde_json::Value>(body).ok());
        body.and_then(|page| page["streams"][0]["rate"].as_u64())
    };
    relay.until("the rate is the stream's", || rate() == Some(9 * MIB));
    // A mistake changes nothing.
    fs::write(&config, options("rate = \"3m\"\nlag_max = \"never\"\n")).unwrap();
    relay.signal(Signal::SIGHUP);
    relay.until_it_says("reload refused, nothing changed");
    assert_eq!(rate(), Some(9 * MIB));
    fs::rename(&audit, folder.path().join("audit.1")).unwrap();
    fs::write(&config, options("rate = \"5m\"\nlag_max = \"1s\"\nlog_level = \"debug\"\nregion_name = \"eu\"\n"))
        .unwrap();
    relay.signal(Signal::SIGHUP);
    relay.until_it_says("reloaded");
    relay.until("the rate is the stream's", || rate() == Some(5 * MIB));
    assert!(relay.stderr().contains("option=\"region_name\"") && relay.stderr().contains("only after a restart"));
    relay.until("the audit log is opened again", || {
        fs::read_to_string(&audit)
            .is_ok_and(|text| text.contains("\"option\":\"rate\"") && text.contains("\"reloaded\""))
    });
    let in_force = |name: &str| {
        let table = printed(&mut moneta(&["config", "--from", &admin]));
        let line = table.lines().find(|line| line.split_whitespace().next() == Some(name)).expect("it is listed");
        line.split_whitespace().nth(1).expect("a value").to_owned()
    };
    assert_eq!((in_force("lag_max").as_str(), in_force("log_level").as_str()), ("1s", "debug"));
    // It is behind for as long as the node says nothing, by what is in force.
    nodes[0].signal(Signal::SIGSTOP);
    let is_behind = || page(&admin, "/readyz").contains("s behind the other region");
    relay.until("it is behind", is_behind);
    let said = printed(&mut moneta(&["set-option", &admin, "lag_max", "1h"]));
    assert!(said.contains("lag_max is 1h (set by 127.0.0.1 at"), "{said}");
    relay.until("that long is allowed", || !is_behind());
    nodes[0].signal(Signal::SIGCONT);
    for (arguments, why) in [
        (&["rate", "6m", "--save"][..], "nothing can be saved"),
        (&["region", "3"], "takes effect at a restart"),
        (&["ack", "one"], "takes effect at a restart of this process"),
        (&["users", "/u"], "who may do what"),
        (&["lag_max", "0s"], "it must be"),
        (&["rate", "--unset"], "was not set by hand"),
        (&["lag_maxx", "1s"], "did you mean `lag_max`?"),
    ] {
        let said = refused(&mut moneta(&[&["set-option", &admin], arguments].concat()), 1);
        assert!(said.contains(why), "{arguments:?}: {said}");
    }
    // What was set by hand outlives a reload, until the file says something else of it.
    relay.signal(Signal::SIGHUP);
    relay.until("a reload", || relay.stderr().matches("reloaded").count() >= 3);
    assert_eq!(in_force("lag_max"), "1h");
    fs::write(&config, options("lag_max = \"2s\"\n")).unwrap();
    relay.signal(Signal::SIGHUP);
    relay.until("the file counts", || in_force("lag_max") == "2s");
}

#[test]
fn a_control_plane_shows_its_options_and_has_them_set() {
    let folder = tempfile::tempdir().unwrap();
    let (data, login) = (folder.path().join("data").display().to_string(), file(folder.path(), "login", "etcd:one\n"));
    let command = format!("command:cat '{login}'");
    let control =
        Node::run(&mut moneta(&["control", "--data", &data, "--listen", "127.0.0.1:0", "--login-file", &command]));
    let admin = control.screen.iter().find_map(|line| line.strip_prefix("listening on http://")).expect("an address");
    let said = printed(&mut moneta(&["set-option", admin, "lame_duck", "3s"]));
    assert!(said.contains("lame_duck is 3s (set by 127.0.0.1 at"), "{said}");
    let table = printed(&mut moneta(&["config", "--from", admin]));
    assert!(table.lines().any(|line| line.starts_with("renew_every") && line.contains("30s")), "{table}");
    // What a command says has no file to look at.
    fs::write(&login, "etcd:two\n").unwrap();
    control.signal(Signal::SIGHUP);
    control.wait_for_log("login_file: another secret is in force");
}
