//! The processes: two nodes in each zone, and proxies in two of them.

use std::fmt::Write;
use std::io::{Read, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::Command;

use nix::sys::signal::Signal;

use crate::common::{Node, moneta, printed};
use crate::network::{Network, address};

pub const ZONES: [&str; 3] = ["a", "b", "c"];
const NODES: usize = 2;
/// Zones with a proxy, and clients.
const PROXIES: usize = 2;
/// The largest item that the last node takes; the others take 1 MiB.
pub const SMALLEST_ITEM_MAX: usize = 900_000;
const PROXY_PORT: u16 = 21200;
const PROXY_ADMIN: u16 = 21300;

pub struct Fleet<'n> {
    network: &'n Network,
    nodes: Vec<Option<Node>>,
    proxies: Vec<Node>,
    folder: tempfile::TempDir,
}

impl<'n> Fleet<'n> {
    pub fn start(network: &'n Network) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut fleet = Self { network, nodes: Vec::new(), proxies: Vec::new(), folder };
        let mut text = "epoch = 1\n".to_owned();
        for (zone, name) in ZONES.iter().enumerate() {
            let nodes: Vec<String> =
                (0..NODES).map(|slot| format!("\"{slot}={}\"", serves(zone * NODES + slot))).collect();
            let _ = write!(text, "[[replica]]\nzone = \"{name}\"\nnodes = [{}]\n", nodes.join(", "));
        }
        std::fs::write(fleet.topology(), text).expect("the topology is written");
        for number in 0..ZONES.len() * NODES {
            fleet.nodes.push(Some(fleet.run(number)));
        }
        (0..fleet.nodes.len()).for_each(|number| fleet.wait_until_ready(number));
        for (zone, name) in ZONES.iter().enumerate().take(PROXIES) {
            let hints = fleet.folder.path().join(format!("hints-{zone}"));
            let mut command = fleet.moneta(name, "proxy", PROXY_PORT, PROXY_ADMIN, 7 + zone);
            command.arg("--topology").arg(fleet.topology()).arg("--hint-dir").arg(hints).args(["--zone", name]);
            fleet.proxies.push(Node::run(&mut command));
        }
        fleet
    }

    pub fn topology(&self) -> PathBuf {
        self.folder.path().join("topology.toml")
    }

    fn moneta(&self, zone: &str, verb: &str, port: u16, admin: u16, writer: usize) -> Command {
        let own = address(ZONES.iter().position(|other| *other == zone).expect("a zone"));
        let mut command = self.network.command(zone, env!("CARGO_BIN_EXE_moneta"));
        command.arg(verb).args(["--listen", &own, "--port", &port.to_string(), "--threads", "1"]);
        command.args(["--admin-open", "--admin", &format!("{own}:{admin}"), "--writer-id", &writer.to_string()]);
        command
    }

    fn run(&self, number: usize) -> Node {
        let (zone, slot) = (number / NODES, (number % NODES) as u16);
        let mut command = self.moneta(ZONES[zone], "serve", 21100 + slot, 21400 + slot, 1 + number);
        let tier = format!("{}:300m", self.tier(number).display());
        command.args(["--cluster", "-m", "64", "--flash", &tier]).arg("--catch-up").arg(self.topology());
        if number + 1 == ZONES.len() * NODES {
            command.args(["-I", &SMALLEST_ITEM_MAX.to_string()]);
        }
        Node::run(&mut command)
    }

    fn tier(&self, number: usize) -> PathBuf {
        let folder = self.folder.path().join(format!("ssd-{number}"));
        std::fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    pub fn name(&self, number: usize) -> String {
        format!("{}{}", ZONES[number / NODES], number % NODES)
    }

    /// Where proxies serve, by zone.
    pub fn proxies(&self) -> Vec<(&'static str, String)> {
        (0..PROXIES).map(|zone| (ZONES[zone], format!("{}:{PROXY_PORT}", address(zone)))).collect()
    }

    /// The admin ports of all nodes and proxies.
    pub fn admins(&self) -> Vec<String> {
        let proxies = (0..PROXIES).map(|zone| format!("{}:{PROXY_ADMIN}", address(zone)));
        (0..self.nodes.len()).map(admin).chain(proxies).collect()
    }

    /// How often the proxies have ejected a node.
    pub fn ejections(&self) -> u64 {
        let of_proxy = |zone: usize| {
            let text = page(&format!("{}:{PROXY_ADMIN}", address(zone)), "/metrics");
            sum(&text, "moneta_cluster_node_ejections_total{") as u64
        };
        (0..PROXIES).map(of_proxy).sum()
    }

    /// A proxy in a zone that has no node; it ends with the value. Behind it: where it serves.
    pub fn outside(&self, zone: &str) -> (Node, String) {
        let own = address(ZONES.len());
        let mut command = self.network.command(zone, env!("CARGO_BIN_EXE_moneta"));
        command.arg("proxy").args(["--listen", &own, "--port", &PROXY_PORT.to_string(), "--threads", "1"]);
        command.args(["--admin", "off", "--writer-id", "9", "--disable-flush-all", "--zone", ZONES[0]]);
        command.args(["--hint-memory", "1m"]).arg("--topology").arg(self.topology());
        (Node::run(&mut command), format!("{own}:{PROXY_PORT}"))
    }

    pub fn kill(&mut self, number: usize) {
        let mut node = self.nodes[number].take().expect("it runs");
        node.signal(Signal::SIGKILL);
        node.wait();
    }

    pub fn bring_back(&mut self, number: usize) {
        self.nodes[number] = Some(self.run(number));
    }

    /// Another machine in the same slot: it has nothing.
    pub fn replace(&mut self, number: usize) {
        self.kill(number);
        std::fs::remove_dir_all(self.tier(number)).expect("its data can be removed");
        self.bring_back(number);
    }

    fn wait_until_ready(&self, number: usize) {
        crate::until("a node is never ready", || page(&admin(number), "/readyz").contains(" 200 "));
    }

    /// Waits until all nodes are ready, and proxies have nothing left to give them.
    pub fn settle(&self) {
        (0..self.nodes.len()).for_each(|number| self.wait_until_ready(number));
        for zone in 0..PROXIES {
            let admin = format!("{}:{PROXY_ADMIN}", address(zone));
            crate::until("a proxy keeps hints", || {
                let text = page(&admin, "/metrics");
                let is_up = sum(&text, "moneta_cluster_node_up{") == (ZONES.len() * NODES) as f64;
                is_up && sum(&text, "moneta_cluster_hints{") == 0.0
            });
        }
    }

    /// `moneta verify` finds no difference between any two copies.
    pub fn verify(&self) {
        for slot in 0..NODES {
            for (other, zone) in ZONES.iter().enumerate().skip(1) {
                let said = printed(moneta(&["verify"]).args([serves(slot), serves(other * NODES + slot)]));
                assert!(said.contains("Equal"), "slot {slot}, a and {zone}: {said}");
            }
        }
    }
}

/// The sum of a metric's samples on a page.
fn sum(page: &str, name: &str) -> f64 {
    let lines = page.lines().filter(|line| line.starts_with(name));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok()).sum()
}

fn serves(number: usize) -> String {
    format!("{}:{}", address(number / NODES), 21100 + number % NODES)
}

fn admin(number: usize) -> String {
    format!("{}:{}", address(number / NODES), 21400 + number % NODES)
}

fn page(admin: &str, path: &str) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect(admin)?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
        let mut text = String::new();
        stream.read_to_string(&mut text)?;
        Ok(text)
    };
    ask().unwrap_or_default()
}
