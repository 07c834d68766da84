//! A proxy is killed in the middle of writes.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::process::Command;
use std::sync::mpsc;

use moneta_certificates::{Authority, Wanted};
use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::common::{Node, connect, file, moneta, output, steady_port};
use crate::fleet::{Fleet, NODE_TIMEOUT, Proxy, ZONES};
use crate::forwarder::Forwarder;

#[test]
fn a_proxy_killed_in_the_middle_of_writes_loses_none_that_it_acknowledged() {
    let fleet = Fleet::start();
    let other = fleet.proxy("b", &[]);
    for round in 0..3 {
        let proxy = fleet.proxy("a", &[]);
        let mut client = proxy.client();
        let (sender, begun) = mpsc::channel();
        let writer = std::thread::spawn(move || {
            let mut stored = 0;
            // Until the proxy is gone: then the outcome of one write is unknown.
            for key in 0.. {
                let key = format!("r{round}k{}", key % 200);
                if !client.set(&key) {
                    break;
                }
                stored += 1;
                if stored == 100 {
                    sender.send(()).expect("the test waits");
                }
            }
            (client, stored)
        });
        begun.recv().expect("it writes");
        drop(proxy);
        let (mut client, stored) = writer.join().expect("it ends with its connection");
        assert!(stored >= 100);
        // Two copies have each of them, and the third one may still be about to take its last ones.
        for key in client.keys() {
            let copies = (0..ZONES.len())
                .filter(|&node| client.fits(&key, &fleet.node(node).exchange(&format!("get {key}\r\n"))))
                .count();
            assert!(copies >= 2 || client.is_unknown(&key), "{copies} copies have {key}");
        }
        client.move_to(other.process.address());
        for key in client.keys() {
            // Of a key that was new, the write without an answer may not have come to pass.
            assert!(client.is_unknown(&key) || client.check(&key), "{key} is there by another proxy");
            assert!(client.set(&key) && client.check(&key), "{key} can be written by another proxy");
        }
    }
    assert_eq!(ZONES.map(|zone| other.ejections(zone)), [0.0; 3]);
    assert_eq!(other.metric("cluster_hints", ""), 0.0);
}

/// Three copies that a proxy was killed over, when it had given its last writes to the first one alone.
struct Torn {
    fleet: Fleet,
    admins: Vec<String>,
    keys: Vec<String>,
    /// Further options of proxies.
    flags: Vec<String>,
    _files: Option<Protected>,
}

impl Torn {
    const KEYS: usize = 20;

    fn new() -> Self {
        let nodes: Vec<Proxy> = (0..3).map(|number| Proxy::run(&mut node(number, "0"))).collect();
        let admins = nodes.iter().map(|node| node.admin().to_owned()).collect();
        let fleet = Fleet::of(nodes.into_iter().map(|node| Some(node.process)).collect());
        Self { fleet, admins, keys: Vec::new(), flags: Vec::new(), _files: None }.torn()
    }

    /// The same of nodes with SSDs, which want TLS and a log-in of those who come by the topology.
    fn protected() -> Self {
        let files = Protected::new();
        let ports = [(); 3].map(|()| steady_port());
        let nodes = ports.iter().enumerate().map(|(number, port)| Some(files.node(number, *port)));
        let addresses = ports.map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let fleet = Fleet::at(nodes.collect(), addresses.to_vec());
        let flags = files.flags();
        Self { fleet, admins: Vec::new(), keys: Vec::new(), flags, _files: Some(files) }.torn()
    }

    fn proxy(&self, zone: &str, timeout: &str, more: &[&str]) -> Proxy {
        let flags = self.flags.iter().map(String::as_str);
        self.fleet.patient_proxy(zone, timeout, &flags.chain(more.iter().copied()).collect::<Vec<_>>())
    }

    fn torn(mut self) -> Self {
        // It gives no node up before it is killed.
        let proxy = self.proxy("a", "60s", &MEND);
        let mut client = proxy.client();
        self.keys = (0..Self::KEYS).map(|number| format!("key{number}")).collect();
        self.keys.iter().for_each(|key| assert!(client.set(key)));
        proxy.process.wait_for(|| (0..3).all(|number| self.fleet.holds_all(number, &client)), "all copies have them");
        // One that ends in good order leaves nothing to be compared.
        let mut ended = self.proxy("c", NODE_TIMEOUT, &MEND);
        ended.process.signal(Signal::SIGTERM);
        assert!(ended.process.wait().success());
        self.fleet.forwarders[1..].iter().for_each(Forwarder::half_open);
        let request = |(number, key): (usize, &String)| match number % 2 {
            0 => format!("set {key} 0 0 3\r\nnew\r\n"),
            _ => format!("delete {key}\r\n"),
        };
        let begin = |request: String| {
            let mut stream = connect(proxy.process.address());
            stream.write_all(request.as_bytes()).expect("it reads");
            stream
        };
        let waiting: Vec<_> = self.keys.iter().enumerate().map(request).map(begin).collect();
        proxy.process.wait_for(|| self.new_on(0) == Self::KEYS, "the near copy has taken them");
        drop((proxy, waiting));
        assert_eq!([1, 2].map(|node| self.new_on(node)), [0, 0]);
        self
    }

    fn is_new(number: usize, answer: &str) -> bool {
        match number % 2 {
            0 => answer.contains("\r\nnew\r\n"),
            _ => answer == "END\r\n",
        }
    }

    /// Keys that are on a node as the killed proxy wrote them last.
    fn new_on(&self, node: usize) -> usize {
        let ask = |key: &String| self.fleet.look(node, &format!("get {key}\r\n"));
        self.keys.iter().enumerate().filter(|(number, key)| Self::is_new(*number, &ask(key))).count()
    }
}

fn node(number: usize, port: &str) -> Command {
    let writer = (number + 1).to_string();
    let arguments = ["serve", "-p", port, "--admin", "127.0.0.1:0", "--cluster", "--threads", "1", "-m", "64"];
    let mut command = moneta(&arguments);
    command.args(["--writer-id", &writer]);
    command
}

/// Files of nodes that want TLS and a log-in, and their SSDs.
struct Protected(TempDir);

impl Protected {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        let mut authority = Authority::new("of the test").expect("an authority");
        let issued = authority.issue(&Wanted::hosts(["127.0.0.1"])).expect("a certificate");
        for (name, text) in [("ca", authority.certificate()), ("cert", &issued.certificate), ("key", &issued.key)] {
            file(files.0.path(), name, text);
        }
        let rights = "read,write,flush,list,replicate,stats";
        let added = output(&mut moneta(&["user", "add", &files.path("users"), "proxy", "--rights", rights]));
        let secret = String::from_utf8(added.stdout).expect("text");
        file(files.0.path(), "login", &format!("proxy:{}\n", secret.trim()));
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(files.0.path().join("login"), mode).expect("it is ours");
        files
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().expect("plain").to_owned()
    }

    /// A node. The test looks into it through a listener of its own.
    fn node(&self, number: usize, port: u16) -> Node {
        let listener = "[[listener]]\naddress = \"127.0.0.1:0\"\ntls = \"off\"\nusers = \"off\"\n";
        let config = file(self.0.path(), "node.toml", listener);
        let ssd = format!("{}:160m", self.path(&format!("ssd{number}")));
        let mut command = node(number, &port.to_string());
        command.args(["--config", &config, "--flash", &ssd, "--users", &self.path("users")]);
        command.args(["--tls-cert", &self.path("cert"), "--tls-key", &self.path("key"), "--admin-tls", "off"]);
        Node::run(&mut command)
    }

    /// What a proxy needs to reach them.
    fn flags(&self) -> Vec<String> {
        let files = [("--tls-ca", "ca"), ("--login-file", "login")];
        files.iter().flat_map(|(flag, name)| [(*flag).to_owned(), self.path(name)]).collect()
    }
}

/// A proxy that has said nothing for some seconds is gone.
const MEND: [&str; 2] = ["--mend-after", "2s"];

/// What one copy alone has taken was not answered, and no other process knows of it: a read shows what its zone's copy has until
/// a repair runs, where proxies do not compare.
#[test]
fn what_a_killed_proxy_had_given_to_one_copy_alone_is_repaired() {
    let torn = Torn::new();
    let other = torn.fleet.proxy("b", &["--mend-after", "0"]);
    let mut reader = other.client();
    let old =
        torn.keys.iter().enumerate().filter(|(number, key)| !Torn::is_new(*number, &reader.ask(&format!("get {key}"))));
    assert_eq!(old.count(), Torn::KEYS, "its zone's copy has the old");
    for admin in &torn.admins[1..] {
        let ran = output(&mut moneta(&["repair", &torn.admins[0], admin, "--full", "--lag", "0", "--json"]));
        let text = String::from_utf8_lossy(&ran.stdout);
        let report: serde_json::Value = serde_json::from_str(text.lines().last().expect("a line")).expect("JSON");
        let of = |name: &str| report[name].as_u64();
        assert_eq!([of("older"), of("deleted")], [Some(Torn::KEYS as u64 / 2); 2], "{report}");
    }
    assert_eq!([0, 1, 2].map(|node| torn.new_on(node)), [Torn::KEYS; 3]);
    assert!((0..Torn::KEYS).all(|number| Torn::is_new(number, &reader.ask(&format!("get {}", torn.keys[number])))));
}

/// Without a command: by a proxy that goes on, or by the one that is started in its place.
#[test]
fn what_a_killed_proxy_had_given_to_one_copy_alone_reaches_the_others() {
    mends(&Torn::new());
}

#[test]
fn it_reaches_nodes_with_ssds_that_want_tls_and_a_log_in() {
    mends(&Torn::protected());
}

fn mends(torn: &Torn) {
    let others = ["a", "b"].map(|zone| torn.proxy(zone, NODE_TIMEOUT, &MEND));
    others[0].process.wait_for(|| [0, 1, 2].map(|node| torn.new_on(node)) == [Torn::KEYS; 3], "all copies agree");
    let sum = |name: &str| others.iter().map(|proxy| proxy.metric(name, "")).sum::<f64>();
    others[0].process.wait_for(|| sum("cluster_mended_total") == 2.0 * Torn::KEYS as f64, "it was counted");
    assert_eq!(sum("cluster_gone_total"), 1.0, "one of them compares");
}

#[test]
fn all_copies_agree_after_proxies_were_killed_under_load() {
    let fleet = Fleet::start();
    let others = [fleet.proxy("b", &MEND), fleet.proxy("c", &MEND)];
    let topology = fleet.folder.path().join("topology.toml");
    let topology = topology.to_str().expect("plain");
    for round in 0..3 {
        let proxy = fleet.proxy("a", &MEND);
        let (sender, written) = mpsc::channel();
        let write = |number: usize, to: std::net::SocketAddr| {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut stream = connect(to);
                // Until the proxy is gone.
                for turn in 0.. {
                    let value = "v".repeat(number * 3_000);
                    let request = |key: usize| match (key + turn) % 3 {
                        0 => format!("delete w{number}k{key}\r\n"),
                        _ => format!("set w{number}k{key} 0 0 {}\r\n{value}\r\n", value.len()),
                    };
                    let requests: String = (0..40).map(request).collect();
                    let mut answers = [0; 16 << 10];
                    let is_sent = stream.write_all(requests.as_bytes()).is_ok();
                    let is_open = is_sent && stream.read(&mut answers).is_ok_and(|length| length > 0);
                    // The other proxies' clients end when all have written enough.
                    if !is_open || sender.send(()).is_err() {
                        return;
                    }
                }
            })
        };
        let mut writers: Vec<_> = (0..4).map(|number| write(number, proxy.process.address())).collect();
        writers.push(write(2, others[0].process.address()));
        (0..100).for_each(|_| written.recv().expect("they write"));
        drop(proxy);
        drop(written);
        writers.into_iter().for_each(|writer| writer.join().expect("it ends"));
        for other in ["b", "c"] {
            let agree = || {
                let compared = output(&mut moneta(&["verify", "--topology", topology, "a", other, "--settle", "0.5"]));
                compared.status.success()
            };
            others[0].process.wait_for(agree, &format!("the copies a and {other} agree in round {round}"));
        }
    }
}
