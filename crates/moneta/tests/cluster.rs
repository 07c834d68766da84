//! `moneta cluster` from its first start to its end, with a node that is killed between.
//! What starts processes in the background and loses sight of one leaves it on the machine, or starts it twice on one SSD tier.

mod common;

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use moneta_net::{Connector, HttpClient, Outward, PemSource, Tls, TlsConfig};

use common::{Node, moneta, output, ports, printed, refused};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const NAMES: [&str; 9] = ["a0", "a1", "b0", "b1", "c0", "c1", "proxy-a", "proxy-b", "proxy-c"];
/// Far more than anything takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A cluster's folder, whose processes end with the test.
struct Folder(tempfile::TempDir);

impl Folder {
    fn path(&self) -> &Path {
        self.0.path()
    }

    fn cluster(&self, verb: &str, more: &[&str]) -> std::process::Command {
        moneta(&[&["cluster", verb, "--dir", self.path().to_str().unwrap()], more].concat())
    }

    fn pid(&self, name: &str) -> Option<Pid> {
        let text = fs::read_to_string(self.path().join(format!("{name}.pid"))).ok()?;
        Some(Pid::from_raw(text.trim().parse().unwrap()))
    }

    fn pids(&self) -> Vec<Option<Pid>> {
        NAMES.iter().map(|name| self.pid(name)).collect()
    }

    /// The line of `status` about a process.
    fn line(&self, name: &str) -> String {
        let output = output(&mut self.cluster("status", &[]));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text.lines().find(|line| line.split_whitespace().nth(1) == Some(name));
        line.unwrap_or_else(|| panic!("no {name} in {text}")).to_owned()
    }

    /// Where a process serves.
    fn address(&self, name: &str) -> String {
        self.line(name).split_whitespace().nth(2).unwrap().to_owned()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that fails must not leave processes.
        for pid in self.pids().into_iter().chain([self.pid("control")]).flatten() {
            let path = self.path().as_os_str().as_encoded_bytes();
            let ours = fs::read(format!("/proc/{pid}/cmdline"))
                .is_ok_and(|line| line.windows(path.len()).any(|window| window == path));
            if ours {
                let _ = kill(pid, Signal::SIGKILL);
            }
        }
    }
}

/// What a server answers to a few commands, the last of which is `quit`.
fn ask(address: &str, commands: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(format!("{commands}quit\r\n").as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let from = Instant::now();
    while !holds() {
        assert!(from.elapsed() < PATIENCE, "{what}");
        sleep(Duration::from_millis(50));
    }
}

/// Who reaches a cluster with TLS: shows the certificate of a name in its folder, or none.
fn who(folder: &Path, name: Option<&str>) -> Outward {
    let file = |name: String| Some(PemSource::File(folder.join("tls").join(name)));
    let tls = Tls::load(TlsConfig {
        certificate: name.and_then(|name| file(format!("{name}.pem"))),
        key: name.and_then(|name| file(format!("{name}.key"))),
        authorities: file("ca.pem".to_owned()),
        ..TlsConfig::default()
    });
    let connector = tls.and_then(|tls| tls.connector()).expect("the files are there");
    Outward { connector: Connector::Tls(connector), ..Outward::default() }
}

/// The status of a page, or why there is none.
fn page(who: &Outward, admin: &str, path: &str) -> Result<u16, String> {
    let endpoint = who.to(admin.parse().unwrap()).patient(PATIENCE);
    HttpClient::new(endpoint).get(path).send().map(|answer| answer.status()).map_err(|error| error.to_string())
}

/// What a server answers, up to `lines` lines or its end, or why it does not.
fn ask_over(who: &Outward, address: &str, commands: &str, lines: usize) -> Result<String, String> {
    let mut stream = who.to(address.parse().unwrap()).patient(PATIENCE).connect().map_err(|error| error.to_string())?;
    stream.write_all(commands.as_bytes()).map_err(|error| error.to_string())?;
    let (mut answer, mut piece) = (Vec::new(), [0; 4096]);
    while answer.iter().filter(|byte| **byte == b'\n').count() < lines {
        match stream.read(&mut piece) {
            // What came before the end counts, however it ends.
            Ok(0) => break,
            Err(_) if !answer.is_empty() => break,
            Ok(bytes) => answer.extend_from_slice(&piece[..bytes]),
            Err(error) => return Err(error.to_string()),
        }
    }
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// Commands that strangers must not have, one for each right, and those that need none.
const COMMANDS: [&str; 17] = [
    "version",
    "get greeting",
    "mg greeting v",
    "set greeting 0 0 1\r\nx",
    "delete greeting",
    "flush_all",
    "stats",
    "stats settings",
    "lru_crawler metadump all",
    "lru_crawler mgdump all",
    "watch fetchers",
    "changes",
    "board",
    "mf",
    "mn",
    "verbosity 1",
    "refresh_certs",
];

/// Whatever a stranger asks is refused, or not answered at all.
fn is_kept_out(who: &Outward, address: &str) {
    // One that speaks no TLS is told so, in TLS.
    let is_alert = |answer: &str| answer.starts_with('\u{15}') && answer.len() <= 7;
    let refusals = ["CLIENT_ERROR unauthenticated", "CLIENT_ERROR bad authentication token format"];
    let answer = ask_over(who, address, &(COMMANDS.join("\r\n") + "\r\n"), COMMANDS.len()).unwrap_or_default();
    let is_refusal = answer.split_terminator("\r\n").all(|line| refusals.contains(&line));
    assert!(is_refusal || is_alert(&answer), "{address}: {answer:?}");
    // In binary: GET of `a`, STAT and NOOP.
    for opcode in [0u8, 0x10, 0x0a] {
        let key: &[u8] = if opcode == 0 { b"a" } else { b"" };
        let header = [0x80, opcode, 0, key.len() as u8, 0, 0, 0, 0, 0, 0, 0, key.len() as u8];
        let request = [&header[..], &[0; 12], key].concat();
        let Ok(mut stream) = who.to(address.parse().unwrap()).patient(PATIENCE).connect() else { continue };
        let mut answer = vec![0; 24];
        let is_answered = stream.write_all(&request).is_ok() && stream.read_exact(&mut answer).is_ok();
        // Status 0x20: it has to log in.
        assert!(!is_answered || answer[6..8] == [0, 0x20], "{address} {opcode}: {answer:?}");
    }
}

#[test]
fn a_cluster_over_tls_tells_strangers_that_it_lives_and_nothing_else() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let screen = printed(&mut folder.cluster("up", &["--tls", "--port", "0", "--memory", "16m", "--flash", "129m"]));
    let status = printed(&mut folder.cluster("status", &[]));
    assert_eq!(status.lines().filter(|line| line.ends_with("ready")).count(), NAMES.len(), "{status}");
    for name in [
        "tls/ca.key",
        "tls/app.key",
        "app.login",
        "users-of-nodes.toml",
        "users-of-proxies.toml",
        "users-of-control.toml",
    ] {
        let file = fs::metadata(folder.path().join(name)).unwrap();
        assert_eq!(std::os::unix::fs::PermissionsExt::mode(&file.permissions()) & 0o777, 0o600, "{name}");
    }

    let plan: toml::Table = fs::read_to_string(folder.path().join("plan.toml")).unwrap().parse().unwrap();
    let ports = |key: &str| -> Vec<String> {
        let processes = plan["processes"].as_array().unwrap().iter();
        processes.map(|process| format!("127.0.0.1:{}", process[key].as_integer().unwrap())).collect()
    };
    let (serving, admins) = (ports("port"), ports("admin"));
    let [stranger, app, proxy, operator] =
        [None, Some("app"), Some("proxy-a"), Some("operator")].map(|name| who(folder.path(), name));
    let plain = Outward::default();
    // The control plane knows all of them, and tells the operator alone.
    let control = format!("127.0.0.1:{}", plan["control"].as_integer().unwrap());
    let instances = "/v1/default/instances";
    assert_eq!(page(&stranger, &control, "/healthz"), Ok(200));
    assert_eq!(
        [&stranger, &app, &proxy, &operator].map(|who| page(who, &control, instances)),
        [401, 401, 403, 200].map(Ok)
    );
    assert!(page(&plain, &control, instances).is_err());
    until("all are up", || printed(&mut folder.cluster("status", &[])).contains("instances: 9 UP"));
    for (address, admin) in serving.iter().zip(&admins) {
        assert_eq!(["/healthz", "/readyz"].map(|path| page(&stranger, admin, path)), [Ok(200), Ok(200)]);
        for path in ["/", "/metrics", "/stats", "/changes", "/proxy", "/nothing"] {
            assert_eq!(page(&stranger, admin, path), Ok(401), "{path}");
            assert!(page(&plain, admin, path).is_err(), "{path}");
        }
        assert_eq!(page(&operator, admin, "/metrics"), Ok(200));
        is_kept_out(&stranger, address);
        is_kept_out(&plain, address);
    }
    // Each of those who are known has what it needs, where it needs it.
    let (nodes, proxies) = serving.split_at(6);
    for (process, admin) in NAMES.iter().zip(&admins) {
        // Of nodes the app is none of the users; of proxies, one without a right to look at them.
        let of_app = if process.starts_with("proxy") { 403 } else { 401 };
        assert_eq!(page(&app, admin, "/stats"), Ok(of_app), "{process}");
    }
    for node in nodes {
        is_kept_out(&app, node);
        let of_operator = ask_over(&operator, node, "get greeting\r\nset greeting 0 0 1\r\nx\r\n", 2);
        let refusals = "CLIENT_ERROR not allowed: read\r\nCLIENT_ERROR not allowed: write\r\n";
        assert_eq!(of_operator.as_deref(), Ok(refusals));
        let of_proxy = ask_over(&proxy, node, "get greeting\r\nverbosity 1\r\n", 2);
        assert_eq!(of_proxy.as_deref(), Ok("END\r\nCLIENT_ERROR not allowed: operate\r\n"));
    }
    let of_app = ask_over(&app, &proxies[0], "set greeting 0 0 5\r\nhello\r\nflush_all\r\nstats\r\n", 3);
    let refusals = "CLIENT_ERROR not allowed: flush\r\nCLIENT_ERROR not allowed: stats\r\n";
    assert_eq!(of_app, Ok(format!("STORED\r\n{refusals}")));
    // By its secret, without a certificate.
    assert!(screen.contains("app.login"), "{screen}");
    let log_in = fs::read_to_string(folder.path().join("app.login")).unwrap();
    let log_in = log_in.trim().replacen(':', " ", 1);
    let log_in = format!("set log 0 0 {}\r\n{log_in}\r\n", log_in.len());
    until("each zone has it", || {
        let has = |proxy: &String| {
            let answer = ask_over(&stranger, proxy, &format!("{log_in}get greeting\r\nmn\r\nmn\r\n"), 4);
            answer.is_ok_and(|text| text.starts_with("STORED\r\nVALUE greeting 0 5\r\nhello\r\nEND\r\n"))
        };
        proxies.iter().all(has)
    });
    let refused = log_in.replace("app ", "app x");
    assert!(ask_over(&stranger, &proxies[0], &refused, 1).is_ok_and(|text| !text.contains("STORED")));

    // The operator's commands find their way; nodes that come back read what they missed as users.
    let said = printed(&mut folder.cluster("roll", &[]));
    assert!(said.contains("6 nodes restarted"), "{said}");
    for (name, admin) in NAMES.iter().zip(&admins) {
        let who = Outward { connector: operator.connector.clone(), ..Outward::default() };
        let endpoint = who.to(admin.parse().unwrap()).patient(PATIENCE);
        let metrics = HttpClient::new(endpoint).get("/metrics").send().unwrap().text().unwrap();
        let refused = |line: &&str| line.starts_with("moneta_user_refusals_total{");
        let refused: Vec<&str> = metrics.lines().filter(refused).collect();
        let unexpected = |line: &&&str| line.contains("user=\"proxy\"") || line.contains("user=\"node\"");
        assert_eq!(refused.iter().filter(unexpected).count(), 0, "{name}: {refused:?}");
    }
    printed(&mut folder.cluster("down", &[]));
}

#[test]
fn a_cluster_starts_loses_a_node_gets_it_back_and_ends() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let said = refused(&mut folder.cluster("status", &[]), 1);
    assert!(said.contains("no cluster in"), "{said}");

    let sizes = ["--port", "0", "--memory", "16m", "--flash", "129m"];
    let screen = printed(&mut folder.cluster("up", &sizes));
    for name in NAMES {
        assert!(screen.contains(name), "{screen}");
    }
    let began = folder.pids();
    assert!(began.iter().all(Option::is_some), "{began:?}");
    let status = printed(&mut folder.cluster("status", &[]));
    assert_eq!(status.lines().filter(|line| line.ends_with("ready")).count(), NAMES.len(), "{status}");

    let control = || folder.line("control");
    until("the control plane knows all", || control().ends_with("instances: 9 UP"));

    // Each zone has what any proxy was told, and one node of it.
    let proxies = ["proxy-a", "proxy-b", "proxy-c"].map(|name| folder.address(name));
    assert_eq!(ask(&proxies[0], "set greeting 0 0 5\r\nhello\r\n"), "STORED\r\n");
    for proxy in &proxies {
        until("each zone has it", || ask(proxy, "get greeting\r\n") == "VALUE greeting 0 5\r\nhello\r\nEND\r\n");
    }
    let nodes: Vec<String> = NAMES[..6].iter().map(|name| folder.address(name)).collect();
    let holds = |node: &String| ask(node, "get greeting\r\n").starts_with("VALUE");
    until("three nodes have it", || nodes.iter().filter(|node| holds(node)).count() == 3);
    let home = nodes.iter().position(holds).unwrap();

    // Up again starts nothing, and takes no other sizes.
    printed(&mut folder.cluster("up", &[]));
    assert_eq!(folder.pids(), began);
    let said = refused(&mut folder.cluster("up", &["--memory", "32m"]), 1);
    assert!(said.contains("has its ports and sizes"), "{said}");

    let killed = NAMES[home];
    kill(folder.pid(killed).unwrap(), Signal::SIGKILL).unwrap();
    until("it is told to be gone", || folder.line(killed).ends_with("does not run"));
    assert_eq!(output(&mut folder.cluster("status", &[])).status.code(), Some(1));
    assert_eq!(ask(&proxies[0], "set greeting 0 0 3\r\nyou\r\n"), "STORED\r\n");

    printed(&mut folder.cluster("up", &[]));
    let again = folder.pids();
    let changed: Vec<&str> =
        NAMES.iter().zip(began.iter().zip(&again)).filter(|(_, (a, b))| a != b).map(|(name, _)| *name).collect();
    assert_eq!(changed, [killed], "only what did not run was started");
    assert!(folder.line(killed).ends_with("ready"));
    // Its zone's proxy has the write for it, or fills it in when it is read.
    let near = &proxies[home / 2];
    until("it has what it missed", || {
        ask(near, "get greeting\r\n").contains("\r\nyou\r\n")
            && ask(&nodes[home], "get greeting\r\n").contains("\r\nyou\r\n")
    });

    let said = printed(&mut folder.cluster("down", &[]));
    assert!(said.starts_with("10 processes ended."), "{said}");
    assert!(folder.pids().iter().all(Option::is_none));
    for pid in again.into_iter().flatten() {
        assert!(fs::read_link(format!("/proc/{pid}/exe")).is_err(), "process {pid} is still there");
    }
    assert!(printed(&mut folder.cluster("down", &[])).starts_with("0 processes ended."));
    for name in &NAMES[..6] {
        let log = fs::read_to_string(folder.path().join(format!("{name}.log"))).unwrap();
        assert!(log.trim_end().lines().last().unwrap().contains("the store is closed"), "{log}");
    }

    // What was written is there after a start from the folder alone.
    printed(&mut folder.cluster("up", &[]));
    assert!(ask(&nodes[home], "get greeting\r\n").contains("\r\nyou\r\n"));
    printed(&mut folder.cluster("down", &[]));
}

#[test]
fn up_starts_a_node_whose_slot_another_process_has_by_now() {
    let folder = Folder(tempfile::tempdir().unwrap());
    printed(&mut folder.cluster("up", &["--port", "0", "--memory", "16m", "--flash", "129m"]));
    until("the control plane knows all", || folder.line("control").ends_with("instances: 9 UP"));
    // It is to have items from before: those of a node that has ended in order are on its SSD tier.
    let nodes = ["a0", "a1"].map(|name| folder.address(name));
    for node in &nodes {
        assert_eq!(ask(node, "set greeting 0 0 5\r\nhello\r\n"), "STORED\r\n");
    }
    kill(folder.pid("a0").unwrap(), Signal::SIGTERM).unwrap();
    until("it has ended", || folder.line("a0").ends_with("does not run"));
    let (control, state) = (format!("http://{}", folder.address("control")), folder.path().join("spare.state"));
    let place = ["--cluster", "--app", "default", "--replica", "a", "--slot", "a0", "--zone", "a", "--threads", "1"];
    let spare = Node::start(&[&place[..], &["--control", &control, "--state-dir", state.to_str().unwrap()]].concat());
    spare.wait_for_log("the slot is this process's");

    let screen = printed(&mut folder.cluster("up", &[]));
    let spares: Vec<&str> = screen.lines().filter(|line| line.contains("a spare: another process has")).collect();
    assert!(spares.len() == 1 && spares[0].contains(" a0 "), "{screen}");
    let line = folder.line("a0");
    assert!(line.contains("not ready: ") && line.contains("a spare: "), "{line}");
    // Where that process ends the slot is the node's again, which then reads what it missed.
    drop(spare);
    until("it has its slot", || folder.line("a0").ends_with("ready"));
    let screen = printed(&mut folder.cluster("up", &[]));
    assert!(!screen.contains("a spare: "), "{screen}");
    printed(&mut folder.cluster("down", &[]));
}

/// Tells a client to end when it is dropped.
struct Ending<'a>(&'a std::sync::atomic::AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, std::sync::atomic::Ordering::Relaxed);
    }
}

/// Nodes are restarted one after the other while clients read and write: none has an error, and none misses.
#[test]
fn all_nodes_are_restarted_and_no_client_notices() {
    let folder = Folder(tempfile::tempdir().unwrap());
    printed(&mut folder.cluster("up", &["--port", "0", "--memory", "16m", "--flash", "129m"]));
    let began = folder.pids();
    let proxy = folder.address("proxy-b");
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let (mut rounds, mut late) = (0u64, 0);
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                let (key, value) = (format!("key{}", rounds % 100), rounds.to_string());
                let set = format!("set {key} 0 0 {}\r\n{value}\r\nget {key}\r\n", value.len());
                let expected = format!("STORED\r\nVALUE {key} 0 {}\r\n{value}\r\nEND\r\n", value.len());
                let answer = ask(&proxy, &set);
                // On a machine that is loaded, a node may take longer than proxies wait.
                let is_late = answer.contains("no answer from") || answer.contains("copies took it");
                assert!(answer == expected || is_late, "round {rounds}: {answer}, not {expected}");
                late += u64::from(is_late);
                sleep(Duration::from_millis(2));
                rounds += 1;
            }
            assert!(late <= rounds / 20, "{late} of {rounds}");
            rounds
        });
        // Also where the roll fails: the client must end.
        let _ending = Ending(&over);
        let said = printed(&mut folder.cluster("roll", &[]));
        assert!(said.contains("6 nodes restarted") && said.contains("b1: ready again after"), "{said}");
        over.store(true, std::sync::atomic::Ordering::Relaxed);
        assert!(client.join().expect("the client has no errors") > 100);
    });
    let again = folder.pids();
    assert!(NAMES.iter().zip(began.iter().zip(&again)).all(|(name, (a, b))| (a != b) != name.starts_with("proxy")));

    // As for any fleet: by a command for each node of a topology.
    let (dir, moneta_path) = (folder.path().display(), env!("CARGO_BIN_EXE_moneta"));
    let topology = folder.path().join("topology.toml");
    let run = |command: &str| {
        moneta(&["cluster", "roll", "--topology", topology.to_str().unwrap(), "--patience", "60", "--run", command])
    };
    let restart = format!(
        "kill $(cat {dir}/$MONETA_SLOT.pid); while [ -e {dir}/$MONETA_SLOT.pid ]; do sleep 0.05; done; {moneta_path} cluster up --dir {dir} > {dir}/said"
    );
    let said = printed(&mut run(&restart));
    assert!(said.contains("6 nodes restarted"), "{said}");
    assert!(folder.pids().iter().zip(&again).take(6).all(|(a, b)| a != b));
    let said = refused(&mut run("exit 3"), 1);
    assert!(said.contains("the command for a/a0 failed: exit status: 3"), "{said}");
    let said = refused(
        moneta(&["cluster", "roll", "--topology", topology.to_str().unwrap(), "--patience", "1"])
            .args(["--run", "true"]),
        1,
    );
    assert!(said.contains("it is still the process of before"), "{said}");
    printed(&mut folder.cluster("down", &[]));
}

/// The failure to guard against: each node in RAM is ready as soon as it starts, so that a roll empties all copies.
#[test]
fn nodes_in_ram_are_not_emptied_one_after_the_other() {
    let folder = tempfile::tempdir().unwrap();
    let claimed = ports::claim(4).unwrap();
    let dir = folder.path().display().to_string();
    let [a, a_admin, b, b_admin] = [0, 1, 2, 3].map(|number| format!("127.0.0.1:{}", claimed.ports[number]));
    let topology = folder.path().join("topology.toml");
    let replica = |zone: &str, address: &str, admin: &str| {
        format!(
            "[[replica]]\nzone = \"{zone}\"\nnodes = [{{ slot = \"{zone}\", address = \"{address}\", admin = \"{admin}\" }}]\n"
        )
    };
    let text = format!("epoch = 1\n{}{}", replica("a", &a, &a_admin), replica("b", &b, &b_admin));
    fs::write(&topology, text).unwrap();
    let start = format!(
        "if [ -e {dir}/$MONETA_SLOT.pid ]; then kill $(cat {dir}/$MONETA_SLOT.pid); while [ -e {dir}/$MONETA_SLOT.pid ]; do sleep 0.05; done; fi; \
         env -u MONETA_NODE -u MONETA_HOST -u MONETA_ADMIN -u MONETA_ZONE -u MONETA_REPLICA -u MONETA_SLOT \
         {} serve --daemon --pidfile {dir}/$MONETA_SLOT.pid -p ${{MONETA_NODE##*:}} --admin $MONETA_ADMIN --cluster --threads 1 -m 64 \
         >> {dir}/log 2>&1",
        env!("CARGO_BIN_EXE_moneta")
    );
    let ended = EndAll(folder.path());
    for (slot, node, admin) in [("a", &a, &a_admin), ("b", &b, &b_admin)] {
        let mut command = std::process::Command::new("sh");
        command.args(["-c", &start]).env("MONETA_SLOT", slot).env("MONETA_NODE", node).env("MONETA_ADMIN", admin);
        assert!(command.status().unwrap().success());
        let sets: String = (0..100).map(|key| format!("set key{key} 0 0 1\r\nx\r\n")).collect();
        assert_eq!(ask(node, &sets), "STORED\r\n".repeat(100));
    }
    let holds =
        |node: &str| (0..100).filter(|key| ask(node, &format!("get key{key}\r\n")).starts_with("VALUE")).count();
    let roll = |more: &[&str]| {
        let mut command = moneta(&["cluster", "roll", "--topology", topology.to_str().unwrap(), "--patience", "5"]);
        command.args(more).args(["--run", &start]);
        command
    };
    let said = refused(&mut roll(&[]), 1);
    assert!(said.contains("it holds 0 of 100 items") && said.contains("--lossy"), "{said}");
    assert_eq!((holds(&a), holds(&b)), (0, 100));
    let said = printed(&mut roll(&["--lossy"]));
    assert!(said.contains("2 nodes restarted"), "{said}");
    assert_eq!((holds(&a), holds(&b)), (0, 0));
    drop(ended);
}

/// Ends the nodes whose numbers are in files of a folder.
struct EndAll<'a>(&'a Path);

impl Drop for EndAll<'_> {
    fn drop(&mut self) {
        for slot in ["a", "b"] {
            let pid = fs::read_to_string(self.0.join(format!("{slot}.pid"))).ok();
            if let Some(pid) = pid.and_then(|pid| pid.trim().parse().ok()) {
                let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
            }
        }
    }
}

/// While a process is away its port is free for any program: none that asks the system for one may get it.
#[test]
fn ports_that_stay_are_those_that_the_system_gives_to_none() {
    assert_eq!(ports::outside("32768\t60999\n"), 10_240..32_768);
    assert_eq!(ports::outside("1024 50000"), 50_001..65_535);
    assert_eq!(ports::outside(""), 10_240..32_768);
    let threads: Vec<_> = (0..8).map(|_| std::thread::spawn(|| ports::claim(19).unwrap())).collect();
    let claimed: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
    let ports: HashSet<u16> = claimed.iter().flat_map(|claimed| claimed.ports.iter().copied()).collect();
    assert_eq!(ports.len(), 8 * 19, "none is claimed twice");
    let allowed = ports::outside(&fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap());
    assert!(ports.iter().all(|port| allowed.contains(port)), "{ports:?}");
}

#[test]
fn a_port_that_is_taken_is_named_and_nothing_is_left_behind() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let said = refused(&mut folder.cluster("up", &["--port", &port]), 1);
    assert!(said.contains(&format!("port {port} is taken")), "{said}");
    let said = refused(&mut folder.cluster("up", &["--port", "65530"]), 1);
    assert!(said.contains("there are no 19 ports from 65530 on") || said.contains("is taken"), "{said}");
    let said = refused(&mut folder.cluster("down", &[]), 1);
    assert!(said.contains("no cluster in"), "{said}");
}

#[test]
fn a_process_that_does_not_start_says_why() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let said = refused(&mut folder.cluster("up", &["--port", "0", "--flash", "1m"]), 1);
    assert!(said.contains("a0 does not start: ") && said.contains("too small"), "{said}");
    assert!(folder.pids().iter().all(Option::is_none));
}

#[test]
fn a_roll_is_a_job_that_goes_on_where_its_command_was_killed() {
    let folder = Folder(tempfile::tempdir().unwrap());
    let screen = printed(&mut folder.cluster("up", &["--port", "0", "--memory", "16m", "--flash", "129m"]));
    let control = screen.lines().find(|line| line.trim_start().starts_with("control ")).unwrap();
    let control = control.split_whitespace().nth(1).unwrap().to_owned();
    let job = |arguments: &[&str]| printed(&mut moneta(&[&["job"], arguments, &["--control", &control]].concat()));
    let mut first = common::Process::start(&mut folder.cluster("roll", &[]));
    first.until("the first node is back", || first.stdout().contains("a0: ready again"));
    let id = first.stdout().split([' ', ':']).nth(1).unwrap().to_owned();
    assert!(job(&["pause", &id]).contains("is paused"));
    first.until("it waits", || first.stdout().contains("paused; it goes on"));
    let shown = job(&["show", &id]);
    assert!(shown.contains("paused") && shown.contains("  a0                   done"), "{shown}");
    first.kill();
    let restarted = folder.pid("a0");
    let second = common::Process::start(&mut folder.cluster("roll", &[]));
    second.until("it waits, too", || second.stdout().contains("paused; it goes on"));
    assert!(job(&["resume", &id]).contains("is running"));
    second.until("all nodes are restarted", || second.stdout().contains("6 nodes restarted"));
    assert_eq!(folder.pid("a0"), restarted, "what was restarted is not restarted again");
    let said = first.stdout() + &second.stdout();
    for name in &NAMES[..6] {
        assert_eq!(said.matches(&format!("{name}: ready again")).count(), 1, "{said}");
    }
    assert!(job(&["list"]).contains("done"));
    // A job that is cancelled ends its command; the next one is another job.
    let mut third = common::Process::start(&mut folder.cluster("roll", &[]));
    third.until("it has begun", || third.stdout().contains("job roll-"));
    let next = third.stdout().split([' ', ':']).nth(1).unwrap().to_owned();
    assert_ne!(next, id);
    assert!(job(&["cancel", &next]).contains("is cancelled"));
    assert!(!third.wait().success());
    assert!(third.stderr().contains("was cancelled"), "{}", third.stderr());
    printed(&mut folder.cluster("down", &[]));
}
