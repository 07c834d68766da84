//! A proxy is cut off from nodes, and what it takes meanwhile costs others nothing: neither what all copies hold, nor that others
//! read what is newest.

use std::io::{Read, Write};
use std::path::PathBuf;

use nix::sys::signal::Signal;

use crate::common::{connect, file, moneta, output};
use crate::fleet::{Fleet, NODE_TIMEOUT, Proxy, ZONES};
use crate::forwarder::{Forwarder, Mode};

/// As many as overflowed the default memory of hints, with keys so long.
const LOST_WRITES: usize = 36_000;
const KEY_LENGTH: usize = 240;
/// Keys that are stored through another proxy.
const KEYS: usize = 500;

/// The ways of one proxy to the nodes, apart from those of others.
struct Ways {
    forwarders: Vec<Forwarder>,
    topology: PathBuf,
}

impl Ways {
    fn to(fleet: &Fleet, name: &str) -> Self {
        let forwarders: Vec<Forwarder> = fleet.addresses.iter().copied().map(Forwarder::to).collect();
        let replicas = ZONES.iter().zip(&forwarders);
        let replicas = replicas.map(|(zone, forwarder)| {
            format!("[[replica]]\nzone = \"{zone}\"\nnodes = [\"0={}\"]\n", forwarder.address)
        });
        let text = format!("epoch = 1\n{}", replicas.collect::<String>());
        Self { forwarders, topology: file(fleet.folder.path(), name, &text).into() }
    }

    fn proxy(&self, zone: &str) -> Proxy {
        let topology = self.topology.to_str().expect("plain");
        let arguments = ["--topology", topology, "--zone", zone, "--threads", "1", "--node-timeout", NODE_TIMEOUT];
        let flush = ["--disable-flush-all", "--eject-share", "100"];
        Proxy::run(moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0"]).args(arguments).args(flush))
    }
}

/// Sends all those writes at once; how many were answered with an error.
fn lose_writes(proxy: &Proxy) -> usize {
    let mut stream = connect(proxy.process.address());
    let mut answers = stream.try_clone().expect("another handle");
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        answers.read_to_string(&mut text).expect("it answers");
        text.matches("SERVER_ERROR").count()
    });
    for number in 0..LOST_WRITES {
        let set = format!("set {number:0>KEY_LENGTH$} 0 0 1\r\nx\r\n");
        stream.write_all(set.as_bytes()).expect("it reads");
    }
    stream.write_all(b"quit\r\n").expect("it reads");
    reader.join().expect("no panic")
}

#[test]
fn a_proxy_cut_off_from_all_nodes_takes_nothing_from_them_when_it_is_back() {
    let fleet = Fleet::start();
    let good = fleet.proxy("b", &[]);
    let mut client = good.client();
    (0..KEYS).for_each(|number| assert!(client.set(&format!("key{number}"))));
    let ways = Ways::to(&fleet, "cut_off.toml");
    let proxy = ways.proxy("a");
    assert!(proxy.client().set("known"));
    ways.forwarders.iter().for_each(|forwarder| forwarder.set(Mode::Hangs));
    // The first ones get through: the ways are cut a moment later.
    let lost = lose_writes(&proxy);
    assert!(lost > LOST_WRITES - 1000, "{lost}");
    ways.forwarders.iter().for_each(|forwarder| forwarder.set(Mode::Pass));
    proxy.wait_until_whole();
    // It had rounds in which it would have told the nodes.
    let mut later = proxy.client();
    (0..20).for_each(|number| {
        assert!(later.set(&format!("later{number}")));
        std::thread::sleep(std::time::Duration::from_millis(100));
    });
    for (number, zone) in ZONES.iter().enumerate() {
        let node = fleet.node(number);
        let held = |key: &String| client.fits(key, &node.exchange(&format!("get {key}\r\n")));
        let left = client.keys().iter().filter(|key| held(key)).count();
        assert_eq!(left, KEYS, "of the node of zone {zone}");
    }
}

/// The proxy of zone c reaches its near node, which another proxy does not.
#[test]
fn what_one_proxy_could_not_give_a_node_is_not_shown_by_another_one() {
    let fleet = Fleet::start();
    let near = fleet.proxy("c", &[]);
    let ways = Ways::to(&fleet, "half.toml");
    let half = ways.proxy("a");
    let mut client = half.client();
    (0..KEYS).for_each(|number| assert!(client.set(&format!("key{number}"))));
    let old = client.keys();
    half.process.wait_for(|| fleet.holds_all(2, &client), "all copies have them");
    ways.forwarders[2].set(Mode::Hangs);
    old.iter().for_each(|key| assert!(client.set(key)));
    assert!(!fleet.holds_all(2, &client), "the near node has not got them");
    let shown = || {
        let mut reader = near.client();
        old.iter().filter(|key| client.fits(key, &reader.ask(&format!("get {key}")))).count()
    };
    near.process.wait_for(|| shown() == KEYS, "it has heard of it");
    assert!(!fleet.holds_all(2, &client), "by reads of other copies");
    ways.forwarders[2].set(Mode::Pass);
    half.wait_until_whole();
    assert!(fleet.holds_all(2, &client));
}

/// Without a word of it, reads of these keys go to other zones until the proxy ends, and nothing says why.
#[test]
fn keys_that_stay_in_doubt_are_told_of_until_the_node_lists_its_keys() {
    let folder = tempfile::tempdir().expect("a folder");
    let secret = |is_on: bool| file(folder.path(), "node.toml", &format!("disable_dumping = {is_on}\n"));
    let fleet = Fleet::with([&[], &[], &["--config", &secret(true)]]);
    let proxy = fleet.proxy("a", &["--hint-memory", "1024"]);
    let mut client = proxy.client();
    (0..KEYS).for_each(|number| assert!(client.set(&format!("key{number}"))));
    proxy.process.wait_for(|| fleet.holds_all(2, &client), "all copies have them");
    let status = || output(&mut moneta(&["proxy", "status", proxy.admin()]));
    assert_eq!(status().status.code(), Some(0));
    fleet.forwarders[2].set(Mode::Hangs);
    client.keys().iter().for_each(|key| assert!(client.set(key)));
    fleet.forwarders[2].set(Mode::Pass);
    proxy.wait_until_whole();
    proxy.process.wait_for(|| proxy.page("/readyz").contains("stay in doubt"), "it does not say so");
    let told = status();
    let screen = String::from_utf8_lossy(&told.stdout).into_owned();
    assert_eq!(told.status.code(), Some(1), "{screen}");
    assert!(screen.contains("keys stay in doubt: the keys of"), "{screen}");
    assert!(!fleet.holds_all(2, &client));
    secret(false);
    fleet.node(2).signal(Signal::SIGHUP);
    proxy.process.wait_for(|| fleet.holds_all(2, &client), "they are compared");
    proxy.process.wait_for(|| status().status.code() == Some(0), "it ends");
    assert!(!proxy.page("/readyz").contains("doubt"));
}
