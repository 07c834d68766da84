//! What a proxy connects to: nodes that speak TLS and want certificates or a log-in. Silent failures that these guard: a proxy that
//! goes on in plain text, one that believes any certificate, one that takes a bad node for a good one, and one that loses requests
//! when certificates, secrets or the way to a node change.

#[path = "outward/clocks.rs"]
mod clocks;
mod common;
#[allow(dead_code)]
#[path = "tls/files.rs"]
mod files;

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use moneta_certificates::{Authority, Issued, Wanted};
use moneta_cluster_client::{Client, Connector, Outward, PemSource, Set, Tls, TlsConfig, Topology};

use common::{Node, Process, connect, moneta, output, printed, refused, steady_port, until};
use files::Files;

const ADMIN: &[&str] = &["-t", "1", "--admin", "127.0.0.1:0", "--admin-tls", "off"];

/// A node of a cluster with the files `NAME.pem` and `NAME.key`, on `listen`; clients show certificates.
fn node(files: &Files, name: &str, listen: &str, more: &[&str]) -> Node {
    Node::run(node_command(files, name, listen).args(more))
}

fn node_command(files: &Files, name: &str, listen: &str) -> Command {
    let (certificate, key, ca) =
        (files.name(&format!("{name}.pem")), files.name(&format!("{name}.key")), files.name("ca.pem"));
    let of_node = ["serve", "--cluster", "-m", "16m", "--listen", listen, "-p", "0"];
    let tls = ["--tls-cert", &certificate, "--tls-key", &key, "--tls-ca", &ca, "--tls-clients", "require"];
    let mut command = moneta(&of_node);
    command.args(ADMIN).args(tls);
    command
}

/// A proxy over the topology in `topology.toml`, which speaks plainly with its clients.
fn proxy(files: &Files, more: &[&str]) -> Node {
    Node::run(proxy_command(files).args(more))
}

fn proxy_command(files: &Files) -> Command {
    let topology = files.name("topology.toml");
    let of_proxy = ["proxy", "--listen", "notls:127.0.0.1", "-p", "0", "--topology", &topology, "--zone", "a"];
    let mut command = moneta(&of_proxy);
    command.args(ADMIN);
    command
}

/// The flags of a proxy that shows `proxy.pem`.
fn shown(files: &Files) -> Vec<String> {
    let flags = [("--tls-cert", "proxy.pem"), ("--tls-key", "proxy.key"), ("--tls-ca", "ca.pem")];
    flags.iter().flat_map(|(flag, name)| [(*flag).to_owned(), files.name(name)]).collect()
}

fn strs(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

fn put(files: &Files, name: &str, issued: &Issued) {
    files.write(&format!("{name}.pem"), &issued.certificate);
    files.write(&format!("{name}.key"), &issued.key);
}

fn issue(files: &mut Files, name: &str) {
    let issued = files.authority.issue(&Wanted::hosts(["127.0.0.1"])).expect("a certificate");
    put(files, name, &issued);
}

/// Zones of one node each.
fn topology(files: &Files, epoch: u32, nodes: &[(&str, String)]) {
    let replica =
        |(zone, address): &(&str, String)| format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={address}\"]\n");
    let text: String = nodes.iter().map(replica).collect();
    files.write("topology.toml", &format!("epoch = {epoch}\n{text}"));
}

fn port(node: &Node) -> u16 {
    node.listening().iter().find_map(|address| address.rsplit_once(':')?.1.parse().ok()).expect("it listens on TCP")
}

fn tcp(node: &Node) -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], port(node)))
}

fn place(node: &Node) -> String {
    tcp(node).to_string()
}

fn admin(node: &Node) -> String {
    let line = node.screen.iter().find(|line| line.contains("http://")).expect("it has an admin side");
    let rest = line.split("http://").nth(1).expect("an address");
    rest.split(['/', ' ']).next().expect("an address").to_owned()
}

/// What `moneta proxy status --json` says.
fn status(proxy: &Node) -> serde_json::Value {
    let output = output(&mut moneta(&["proxy", "status", &admin(proxy), "--json"]));
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}

fn nodes(proxy: &Node) -> Vec<serde_json::Value> {
    status(proxy)["apps"][0]["nodes"].as_array().cloned().unwrap_or_default()
}

fn up(proxy: &Node) -> usize {
    nodes(proxy).iter().filter(|node| node["state"] == "up" && node["connections"].as_u64() > Some(0)).count()
}

fn ask(proxy: &Node, request: &str) -> String {
    common::exchange(connect(tcp(proxy)), request)
}

/// Writes and reads through a proxy until it is told to stop; counts what went well, and keeps the first reply that did not.
struct Load {
    stop: AtomicBool,
    done: AtomicU64,
}

impl Load {
    fn during(proxy: &Node, act: impl FnOnce(&Self)) {
        let load = Self { stop: AtomicBool::new(false), done: AtomicU64::new(0) };
        let address = tcp(proxy);
        thread::scope(|scope| {
            let clients: Vec<_> = (0..2)
                .map(|client| {
                    scope.spawn({
                        let load = &load;
                        move || load.run(address, client)
                    })
                })
                .collect();
            load.goes_on();
            act(&load);
            load.goes_on();
            load.stop.store(true, Ordering::Relaxed);
            let failures: Vec<String> =
                clients.into_iter().filter_map(|client| client.join().expect("no panic")).collect();
            assert!(failures.is_empty(), "{failures:?}");
        });
    }

    /// Waits for some hundred further requests.
    fn goes_on(&self) {
        let enough = self.done.load(Ordering::Relaxed) + 200;
        let begun = std::time::Instant::now();
        while self.done.load(Ordering::Relaxed) < enough {
            assert!(begun.elapsed() < files::PATIENCE, "no request is answered any more");
            thread::sleep(Duration::from_millis(5));
        }
    }

    fn run(&self, address: SocketAddr, client: usize) -> Option<String> {
        let mut writer = connect(address);
        let mut reader = BufReader::new(writer.try_clone().expect("another handle"));
        let mut line = || {
            let mut line = String::new();
            reader.read_line(&mut line).map(|_| line).unwrap_or_else(|error| error.to_string())
        };
        for number in 0u64.. {
            if self.stop.load(Ordering::Relaxed) {
                return None;
            }
            let value = format!("{number:08}");
            if let Err(error) = write!(writer, "set k{client} 0 0 8\r\n{value}\r\nget k{client}\r\n") {
                return Some(error.to_string());
            }
            let replies = [line(), line(), line(), line()];
            if replies.iter().map(|reply| reply.trim_end()).ne([
                "STORED",
                &format!("VALUE k{client} 0 8"),
                &value,
                "END",
            ]) {
                return Some(format!("{replies:?}"));
            }
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        None
    }
}

#[test]
fn a_proxy_speaks_tls_to_its_nodes_and_one_without_a_certificate_reaches_none() {
    let mut files = Files::new();
    ["node", "proxy"].into_iter().for_each(|name| issue(&mut files, name));
    let (a, b) = (node(&files, "node", "127.0.0.1", &[]), node(&files, "node", "127.0.0.1", &[]));
    topology(&files, 1, &[("a", place(&a)), ("b", place(&b))]);
    let good = proxy(&files, &strs(&shown(&files)));
    good.wait_for(|| up(&good) == 2, "both nodes are up");
    assert_eq!(ask(&good, "set key 0 0 5\r\nvalue\r\nget key\r\n"), "STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n");
    // Neither with the authority alone, which the nodes refuse, nor in plain text.
    let ca = files.name("ca.pem");
    for (more, why) in [(&["--tls-ca", &ca][..], "ertificate"), (&[], "127.0.0.1")] {
        let bad = proxy(&files, more);
        let trouble = |node: &serde_json::Value| node["trouble"].as_str().is_some_and(|trouble| trouble.contains(why));
        bad.wait_for(|| nodes(&bad).iter().filter(|node| trouble(node)).count() == 2, "it says why");
        assert!(ask(&bad, "get key\r\n").starts_with("SERVER_ERROR"));
    }
}

#[test]
fn a_node_that_shows_a_bad_certificate_is_left_out_and_shown_and_the_others_answer() {
    let mut files = Files::new();
    ["good", "proxy"].into_iter().for_each(|name| issue(&mut files, name));
    let other_name = files.authority.issue(&Wanted::hosts(["other.example"])).expect("a certificate");
    let day = Duration::from_secs(86_400);
    let holds = SystemTime::now().checked_sub(2 * day).zip(SystemTime::now().checked_sub(day));
    let expired = files.authority.issue(&Wanted { holds, ..Wanted::hosts(["127.0.0.1"]) }).expect("a certificate");
    let stranger = Authority::new("another").and_then(|mut other| other.issue(&Wanted::hosts(["127.0.0.1"])));
    put(&files, "other", &other_name);
    put(&files, "expired", &expired);
    put(&files, "stranger", &stranger.expect("a certificate"));
    let zones = ["a", "b", "c", "d"].into_iter().zip(["good", "other", "expired", "stranger"]);
    let running: Vec<_> = zones.map(|(zone, name)| (zone, node(&files, name, "127.0.0.1", &[]))).collect();
    topology(&files, 1, &running.iter().map(|(zone, node)| (*zone, place(node))).collect::<Vec<_>>());
    let proxy = proxy(&files, &[&strs(&shown(&files))[..], &["--ack", "one"]].concat());
    let troubles =
        || nodes(&proxy).iter().map(|node| node["trouble"].as_str().unwrap_or("").to_owned()).collect::<Vec<_>>();
    let wanted = ["", "not valid for name", "expired", "UnknownIssuer"];
    let is_told = |told: &[String]| {
        told.len() == 4
            && wanted
                .iter()
                .zip(told)
                .all(|(wanted, told)| told.contains(wanted) && wanted.is_empty() == told.is_empty())
    };
    proxy.wait_for(|| is_told(&troubles()), "it says what is wrong with each");
    assert_eq!(ask(&proxy, "set key 0 0 5\r\nvalue\r\nget key\r\n"), "STORED\r\nVALUE key 0 5\r\nvalue\r\nEND\r\n");
    // The log has it at the change, and not with each attempt.
    let told = proxy.log().lines().filter(|line| line.contains("expired")).count();
    assert!((1..20).contains(&told), "{told} lines: {}", proxy.log());
}

#[test]
fn zones_move_to_tls_one_by_one_under_load() {
    let mut files = Files::new();
    ["node", "proxy"].into_iter().for_each(|name| issue(&mut files, name));
    let ports = [(); 4].map(|()| steady_port());
    let node_at = |plain: u16, tls: u16| node(&files, "node", &format!("notls:127.0.0.1:{plain},127.0.0.1:{tls}"), &[]);
    let _running = [node_at(ports[0], ports[1]), node_at(ports[2], ports[3])];
    let plain = |port: u16| format!("notls:127.0.0.1:{port}");
    let tls = |port: u16| format!("127.0.0.1:{port}");
    topology(&files, 1, &[("a", plain(ports[0])), ("b", plain(ports[2]))]);
    let proxy = proxy(&files, &strs(&shown(&files)));
    proxy.wait_for(|| up(&proxy) == 2, "both nodes are up in plain text");
    Load::during(&proxy, |load| {
        let steps = [[tls(ports[1]), plain(ports[2])], [tls(ports[1]), tls(ports[3])]];
        for (epoch, [a, b]) in (2..).zip(steps) {
            topology(&files, epoch, &[("a", a.clone()), ("b", b.clone())]);
            proxy.wait_for_topology(epoch);
            proxy.wait_for(|| up(&proxy) == 2 && nodes(&proxy).iter().any(|node| node["node"] == a), "both are up");
            load.goes_on();
        }
    });
    let hints = nodes(&proxy).iter().map(|node| node["hints"].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(hints, 0);
}

/// Other words for the same way: nothing is to be missed or asked anew.
#[test]
fn the_prefix_of_nodes_changes_zone_by_zone_under_load() {
    let mut files = Files::new();
    ["node", "proxy"].into_iter().for_each(|name| issue(&mut files, name));
    let (a, b) = (node(&files, "node", "127.0.0.1", &[]), node(&files, "node", "127.0.0.1", &[]));
    let protected = |node: &Node| format!("tls:{}", place(node));
    topology(&files, 1, &[("a", place(&a)), ("b", place(&b))]);
    let proxy = proxy(&files, &strs(&shown(&files)));
    proxy.wait_for(|| up(&proxy) == 2, "both nodes are up");
    Load::during(&proxy, |load| {
        for (epoch, zones) in
            (2..).zip([[protected(&a), place(&b)], [protected(&a), protected(&b)], [place(&a), place(&b)]])
        {
            let [of_a, of_b] = zones;
            topology(&files, epoch, &[("a", of_a), ("b", of_b)]);
            proxy.wait_for_topology(epoch);
            load.goes_on();
        }
    });
    let hints = nodes(&proxy).iter().map(|node| node["hints"].as_u64().expect("a number")).sum::<u64>();
    assert_eq!(hints, 0);
}

/// Certificates of a proxy and of its nodes are replaced, also by those of another authority, and no request fails.
#[test]
fn certificates_rotate_under_load() {
    let mut files = Files::new();
    ["node", "proxy"].into_iter().for_each(|name| issue(&mut files, name));
    let ports = [steady_port(), steady_port()];
    let start = |port: u16| node(&files, "node", &format!("127.0.0.1:{port}"), &[]);
    let mut running = ports.map(|port| Some(start(port)));
    topology(&files, 1, &[("a", format!("127.0.0.1:{}", ports[0])), ("b", format!("127.0.0.1:{}", ports[1]))]);
    let proxy = proxy(&files, &strs(&shown(&files)));
    proxy.wait_for(|| up(&proxy) == 2, "both nodes are up");
    let reloads = |node: &Node| files::metric(node, "tls_reloads_total{result=\"applied\"}");
    let mut other = Authority::new("the next").expect("an authority");
    Load::during(&proxy, |load| {
        let both = [files.authority.certificate(), other.certificate()].concat();
        let [of_node, of_proxy] = [(); 2].map(|()| other.issue(&Wanted::hosts(["127.0.0.1"])).expect("a certificate"));
        let steps: [&dyn Fn(); 3] = [
            &|| files.write("ca.pem", &both),
            &|| {
                put(&files, "node", &of_node);
                put(&files, "proxy", &of_proxy);
            },
            &|| files.write("ca.pem", other.certificate()),
        ];
        for step in steps {
            let processes = || running.iter().flatten().chain([&proxy]);
            let before: Vec<f64> = processes().map(reloads).collect();
            step();
            for (process, before) in processes().zip(before) {
                process.wait_for(|| reloads(process) > before, "the files are not read again");
            }
            load.goes_on();
        }
        // Connections are made anew, by what is in force now.
        for (place, port) in ports.into_iter().enumerate() {
            running[place] = None;
            running[place] = Some(start(port));
            proxy.wait_for(|| up(&proxy) == 2, "it connects anew");
            load.goes_on();
        }
    });
}

#[test]
fn a_log_in_and_its_secret_are_replaced_under_load() {
    let mut files = Files::new();
    ["node", "proxy"].into_iter().for_each(|name| issue(&mut files, name));
    files.write("users", "old:one\nnew:two\n");
    files.write("login", "old:one\n");
    for name in ["users", "login"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(files.path(name), mode).expect("it is ours");
    }
    let (users, login) = (files.name("users"), files.name("login"));
    let ports = [steady_port(), steady_port()];
    let start = |port: u16| node(&files, "node", &format!("127.0.0.1:{port}"), &["-Y", &users]);
    let mut running = ports.map(|port| Some(start(port)));
    topology(&files, 1, &[("a", format!("127.0.0.1:{}", ports[0])), ("b", format!("127.0.0.1:{}", ports[1]))]);
    let proxy = proxy(&files, &[&strs(&shown(&files))[..], &["--login-file", &login]].concat());
    proxy.wait_for(|| up(&proxy) == 2, "it logs in to both nodes");
    Load::during(&proxy, |load| {
        files.write("login", "new:two\n");
        proxy.wait_for_log("another secret is in force");
        files.write("users", "new:two\n");
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(files.path("users"), mode).expect("it is ours");
        // Connections are made anew, where the secret of before is none any more.
        for (place, port) in ports.into_iter().enumerate() {
            running[place] = None;
            running[place] = Some(start(port));
            proxy.wait_for(|| up(&proxy) == 2, "it logs in anew");
            load.goes_on();
        }
    });
    // One that is wrong is told, and tried now and then.
    files.write("login", "new:three\n");
    let stranger = self::proxy(&files, &[&strs(&shown(&files))[..], &["--login-file", &login]].concat());
    let refused =
        |node: &serde_json::Value| node["trouble"].as_str().is_some_and(|why| why.contains("refuses the log-in"));
    stranger.wait_for(|| nodes(&stranger).iter().filter(|node| refused(node)).count() == 2, "it says why");
    assert!(ask(&stranger, "get key\r\n").starts_with("SERVER_ERROR"));
}

/// What reads its files once alone goes on with open connections, and fails at the next one after a rotation.
#[test]
fn a_relay_and_a_command_that_runs_on_follow_secrets_and_authorities() {
    let mut files = Files::new();
    issue(&mut files, "node");
    let (users, login, ca) = (files.name("users.toml"), files.name("login"), files.name("ca.pem"));
    let user = |arguments: &[&str]| printed(&mut moneta(&[&["user"], arguments].concat())).trim().to_owned();
    let first = user(&["add", &users, "mover", "--rights", "read,write,list,replicate,stats"]);
    let write_login = |secret: &str| files.write("login", &format!("mover:{secret}\n"));
    write_login(&first);
    let (certificate, key) = (files.name("node.pem"), files.name("node.key"));
    let ports = [(); 2].map(|()| (steady_port(), steady_port()));
    let start = |region: usize| {
        let (port, admin) = ports[region];
        let (port, admin, region) = (port.to_string(), format!("127.0.0.1:{admin}"), (region + 1).to_string());
        let of_node =
            ["serve", "--cluster", "-m", "16m", "-t", "1", "-p", &port, "--admin", &admin, "--region-id", &region];
        Node::run(moneta(&of_node).args(["--tls-cert", &certificate, "--tls-key", &key, "--users", &users]))
    };
    let mut nodes = [0, 1].map(|region| Some(start(region)));
    for (region, (port, admin)) in ports.iter().enumerate() {
        let node = format!("slot = \"n0\"\naddress = \"127.0.0.1:{port}\"\nadmin = \"127.0.0.1:{admin}\"\n");
        let text = format!("epoch = 1\n[[replica]]\nname = \"a\"\nzone = \"a\"\n[[replica.nodes]]\n{node}");
        files.write(&format!("region-{region}.toml"), &text);
    }
    let known = ["--tls-ca", &ca, "--login-file", &login];
    let (from, to, state) = (files.name("region-0.toml"), files.name("region-1.toml"), files.name("state"));
    let of_relay = ["relay", "--from", &from, "--to", &to, "--region", "1", "--state-dir", &state, "--zone", "a"];
    let relay = Process::start(moneta(&of_relay).args(["--admin", "127.0.0.1:0", "--node-timeout", "2s"]).args(known));
    let source = format!("127.0.0.1:{}", ports[0].1);
    let feed = Process::start(moneta(&["feed", &source, "--follow"]).args(known));
    // Of a process that has just begun to follow.
    let ask = |region: usize, arguments: &[&str]| {
        let server = format!("127.0.0.1:{}", ports[region].0);
        output(moneta(arguments).args(["--server", &server]).args(known))
    };
    let crosses = |key: &str| {
        until("the key is taken", || ask(0, &["set", key, "value"]).status.success());
        relay.until("the key crosses", || ask(1, &["get", key]).stdout.starts_with(b"value"));
        feed.until("the key is told", || feed.stdout().contains(key));
    };
    crosses("before");
    for turn in 1..=2 {
        let next = user(&["rotate", &users, "mover"]);
        for node in nodes.iter().flatten() {
            node.wait_for(|| node.log().matches("users read again").count() >= turn, "the users are not read again");
        }
        write_login(&next);
        for process in [&relay, &feed] {
            let taken = || process.stderr().matches("another secret").count() >= turn;
            process.until("the secret is not read again", taken);
        }
    }
    // The nodes show certificates of another authority from now on; and connections are made anew.
    let mut other = Authority::new("the next").expect("an authority");
    files.write("ca.pem", other.certificate());
    relay.until_it_says("TLS: what has changed is in force");
    feed.until_it_says("TLS: what was read again is in force");
    let next = other.issue(&Wanted::hosts(["127.0.0.1"])).expect("a certificate");
    put(&files, "node", &next);
    for (region, node) in nodes.iter_mut().enumerate() {
        *node = None;
        *node = Some(start(region));
    }
    crosses("after");
    assert!(!relay.has_ended() && !feed.has_ended());
}

/// Without users, the certificate's name says who has changed something.
#[test]
fn what_is_done_by_a_certificate_alone_is_in_the_audit_log() {
    let mut files = Files::new();
    issue(&mut files, "node");
    let operator = files.authority.issue(&Wanted::hosts(["ops.example"])).expect("a certificate");
    put(&files, "ops", &operator);
    let (ca, audit) = (files.name("ca.pem"), files.name("audit.jsonl"));
    let (certificate, key) = (files.name("node.pem"), files.name("node.key"));
    let node =
        Node::run(
            moneta(&["serve", "-t", "1", "-m", "16m", "-p", "0", "--admin", "127.0.0.1:0", "--audit-log", &audit])
                .args(["--tls-cert", &certificate, "--tls-key", &key, "--tls-ca", &ca, "--tls-clients", "require"]),
        );
    let line = node.screen.iter().find_map(|line| line.split("https://").nth(1)).expect("it has an admin side");
    let admin = line.split(['/', ' ']).next().expect("an address");
    let own = [files.name("ops.pem"), files.name("ops.key")];
    let known = ["--tls-ca", &ca, "--tls-cert", &own[0], "--tls-key", &own[1]];
    printed(moneta(&["set-option", admin, "idle_timeout", "7m"]).args(known));
    let lines = || std::fs::read_to_string(&audit).unwrap_or_default();
    node.wait_for(
        || lines().contains("\"who\":\"ops.example\",\"from\":\"127.0.0.1\",\"command\":\"/options/idle_timeout\""),
        "the command is not noted",
    );
    node.wait_for(
        || lines().contains("\"what\":\"option_changed\",\"who\":\"ops.example\",\"option\":\"idle_timeout\""),
        "who changed the option is not noted",
    );
    // Who only looks is not noted.
    let looked = lines().matches("\"what\":\"command\"").count();
    printed(moneta(&["config", "--from", admin]).args(known));
    assert_eq!(lines().matches("\"what\":\"command\"").count(), looked);
}

#[test]
fn commands_and_the_rust_client_reach_nodes_over_tls_and_nothing_goes_without() {
    let mut files = Files::new();
    ["a", "b", "proxy"].into_iter().for_each(|name| issue(&mut files, name));
    let [a, b] = ["a", "b"].map(|name| node(&files, name, "127.0.0.1", &[]));
    let (from, into) = (place(&a), place(&b));
    topology(&files, 1, &[("a", from.clone())]);
    let shown = shown(&files);
    let with = |arguments: &[&str]| moneta(&[arguments, &strs(&shown)].concat());
    // The Rust client writes what the commands find.
    let pem = |name: &str| Some(PemSource::File(files.path(name)));
    let config = TlsConfig {
        certificate: pem("proxy.pem"),
        key: pem("proxy.key"),
        authorities: pem("ca.pem"),
        ..TlsConfig::default()
    };
    let connector = Connector::Tls(Tls::load(config).unwrap().connector().unwrap());
    let outward = Outward { connector, ..Outward::default() };
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let text = std::fs::read_to_string(files.path("topology.toml")).unwrap();
    let client = |outward: Outward| {
        let builder = Client::builder("app").topology(Topology::from_toml(&text).unwrap()).outward(outward);
        runtime.block_on(builder.node_timeout(Duration::from_secs(20)).connect()).unwrap()
    };
    let one = client(outward);
    until("the Rust client writes", || runtime.block_on(one.set("k", "over tls", Set::default())).is_ok());
    let stranger = client(Outward::default());
    assert!(runtime.block_on(stranger.set("k", "in the clear", Set::default())).is_err());
    assert!(printed(&mut with(&["get", "k", "--server", &from])).contains("over tls"));

    let load = ["--requests", "500", "--keys", "100", "--connections", "2", "--threads", "1"];
    let bench = [&["bench", "--server", &from][..], &load].concat();
    printed(&mut with(&bench));
    refused(&mut moneta(&bench), 1);

    // A node whose lower tier is that node.
    let below = format!("remote:{from}");
    let above =
        ["serve", "--listen", "notls:127.0.0.1", "-p", "0", "-t", "1", "-m", "16m", "--admin", "off", "--l2", &below];
    let hit = "VALUE k 0 8\r\nover tls\r\nEND\r\n";
    let above_in_tls = Node::run(&mut with(&above));
    above_in_tls.wait_for(|| ask(&above_in_tls, "get k\r\n") == hit, "it reads nothing from its lower tier");
    let above_in_the_clear = Node::run(&mut moneta(&above));
    assert_ne!(ask(&above_in_the_clear, "get k\r\n"), hit);

    // What the other node lacks comes by the feed.
    assert!(!output(&mut with(&["verify", &from, &into])).status.success());
    let mut feed =
        Process::start(&mut with(&["feed", &format!("notls:{}", admin(&a)), "--into", &into, "--from", "5m"]));
    until("the feed arrives", || output(&mut with(&["get", "k", "--server", &into])).stdout.starts_with(b"over tls"));
    until("all is there", || output(&mut with(&["verify", &from, &into])).status.success());
    feed.signal(common::Signal::SIGTERM);
    feed.wait();
    refused(&mut moneta(&["verify", &from, &into]), 2);
}
