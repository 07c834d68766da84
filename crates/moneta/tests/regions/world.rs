//! Two regions: nodes, proxies, the links between them, and the relays.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use crate::common::clock::Clocks;
use crate::common::{Node, Process, Signal, connect, file, moneta, steady_port, until};
use crate::link::Link;

/// What lies between the regions of a test that does not measure.
pub const ROUND_TRIP: Duration = Duration::from_millis(80);
/// Copies in each region of a test that does not measure, of a node each.
const COPIES: usize = 2;

/// One region, with the way to its nodes from outside.
pub struct Region {
    /// Its number.
    pub id: usize,
    pub nodes: Vec<Option<Node>>,
    pub addresses: Vec<SocketAddr>,
    /// Ports of their admin sides.
    admins: Vec<u16>,
    pub links: Vec<Link>,
    pub proxy: Node,
    /// More options of its nodes.
    options: Vec<String>,
    folder: PathBuf,
    clock: RegionClock,
}

/// What the clocks of a region's processes show.
#[derive(Clone, Default)]
struct RegionClock {
    /// `None`: as it is.
    clocks: Option<Arc<Clocks>>,
    /// Seconds by which they are ahead.
    ahead: i64,
}

impl RegionClock {
    fn set<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        match &self.clocks {
            Some(clocks) => clocks.of(command, self.ahead),
            None => command,
        }
    }
}

fn node(
    region: usize,
    copy: usize,
    (port, admin): (u16, u16),
    folder: &Path,
    (options, clock): (&[String], &RegionClock),
) -> Node {
    let (region_id, writer, port) = (region.to_string(), copy.to_string(), port.to_string());
    let admin = format!("127.0.0.1:{admin}");
    let place = |name: String| folder.join(name).to_str().expect("plain").to_owned();
    let (ssd, inside) = (place(format!("ssd-{region}-{copy}")), place(format!("inside-{region}.toml")));
    let options = options.iter().map(|option| option.replace("{ssd}", &ssd).replace("{topology}", &inside));
    let common = ["--cluster", "--region-id", &region_id, "--writer-id", &writer, "--threads", "1", "-m", "64"];
    Node::run(clock.set(moneta(&["serve", "-p", &port, "--admin", &admin]).args(common).args(options)))
}

fn topology(folder: &Path, name: &str, addresses: impl Iterator<Item = SocketAddr>, admins: &[u16]) -> String {
    let mut text = "epoch = 1\n".to_owned();
    for (copy, (address, admin)) in addresses.zip(admins).enumerate() {
        text.push_str(&format!("[[replica]]\nname = \"copy{copy}\"\nzone = \"zone{copy}\"\n[[replica.nodes]]\n"));
        text.push_str(&format!("slot = \"n0\"\naddress = \"{address}\"\nadmin = \"127.0.0.1:{admin}\"\n"));
    }
    file(folder, name, &text)
}

impl Region {
    fn start(id: usize, copies: usize, folder: &Path, options: &[&str], clock: RegionClock) -> Self {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        let ports: Vec<u16> = (0..copies).map(|_| steady_port()).collect();
        let addresses: Vec<SocketAddr> = ports.iter().map(|port| SocketAddr::from(([127, 0, 0, 1], *port))).collect();
        let admins: Vec<u16> = (0..copies).map(|_| steady_port()).collect();
        let inside = topology(folder, &format!("inside-{id}.toml"), addresses.iter().copied(), &admins);
        let start = |copy: usize| Some(node(id, copy, (ports[copy], admins[copy]), folder, (&options, &clock)));
        let nodes: Vec<_> = (0..copies).map(start).collect();
        let links: Vec<Link> = addresses.iter().map(|address| Link::to(*address, ROUND_TRIP)).collect();
        topology(folder, &format!("outside-{id}.toml"), links.iter().map(|link| link.address), &admins);
        let hints = folder.join(format!("hints-{id}"));
        let (region_id, hints) = (id.to_string(), hints.to_str().expect("plain").to_owned());
        let arguments = ["--topology", &inside, "--zone", "zone0", "--region-id", &region_id, "--hint-dir", &hints];
        let more = ["--threads", "1", "--node-timeout", "2s"];
        let mut command = moneta(&["proxy", "-p", "0", "--admin", "127.0.0.1:0"]);
        let proxy = Node::run(clock.set(command.args(arguments).args(more)));
        Self { id, nodes, addresses, admins, links, proxy, options, folder: folder.to_owned(), clock }
    }

    /// Kills a node at once.
    pub fn kill(&mut self, copy: usize) {
        drop(self.nodes[copy].take());
    }

    /// Starts a node where it was.
    pub fn restart(&mut self, copy: usize) {
        let ports = (self.addresses[copy].port(), self.admins[copy]);
        self.nodes[copy] = Some(node(self.id, copy, ports, &self.folder, (&self.options, &self.clock)));
    }

    /// Asks the proxy, as a client does.
    pub fn ask(&self, request: &str) -> String {
        ask(self.proxy.address(), request)
    }

    /// Sets a key, until the proxy has taken it.
    pub fn set(&self, key: &str, value: &str) {
        let request = format!("set {key} 0 0 {}\r\n{value}", value.len());
        until("a write is taken", || self.ask(&request) == "STORED\r\n");
    }

    pub fn delete(&self, key: &str) {
        until("a delete is taken", || ["DELETED\r\n", "NOT_FOUND\r\n"].contains(&&*self.ask(&format!("delete {key}"))));
    }

    /// What a copy holds of a key, with its version and its end: `None` while it does not answer.
    pub fn held(&self, copy: usize, key: &str) -> Option<String> {
        let answer = try_ask(self.addresses[copy], &format!("mg {key} v V D Y")).ok()?;
        (!answer.starts_with("SERVER_ERROR")).then_some(answer)
    }
}

fn try_ask(address: SocketAddr, request: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(format!("{request}\r\nmn\r\n").as_bytes())?;
    let (mut answer, mut buffer) = (Vec::new(), [0; 16 << 10]);
    while !answer.ends_with(b"MN\r\n") {
        match stream.read(&mut buffer)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            count => answer.extend_from_slice(&buffer[..count]),
        }
    }
    answer.truncate(answer.len() - 4);
    String::from_utf8(answer).map_err(|_| std::io::ErrorKind::InvalidData.into())
}

pub fn ask(address: SocketAddr, request: &str) -> String {
    try_ask(address, request).unwrap_or_default()
}

/// A page of an admin port, with its head.
pub fn page(admin: &str, path: &str) -> String {
    let mut stream = connect(admin);
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// A relay that carries a region's changes to the other one.
pub struct RelayProcess {
    process: Process,
    admin: String,
}

impl RelayProcess {
    /// Its page.
    pub fn page(&self, path: &str) -> String {
        page(&self.admin, path)
    }

    pub fn metric(&self, name: &str) -> f64 {
        let text = self.page("/metrics");
        let lines = text.lines().filter(|line| {
            line.starts_with(&format!("moneta_{name}{{")) || line.starts_with(&format!("moneta_{name} "))
        });
        lines.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a number")).sum()
    }

    pub fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        self.process.until(what, holds);
    }

    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// The number of its process.
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// Ends it in order.
    pub fn end(mut self) {
        self.process.signal(Signal::SIGTERM);
        self.process.wait();
    }

    /// Kills it at once.
    pub fn kill(mut self) {
        self.process.kill();
    }
}

/// Two regions; their numbers are 1 and 2.
pub struct World {
    pub regions: [Region; 2],
    pub folder: tempfile::TempDir,
}

impl World {
    /// With options for the nodes of each.
    pub fn start(options: [&[&str]; 2]) -> Self {
        Self::of(COPIES, options)
    }

    /// With so many copies in each.
    pub fn of(copies: usize, options: [&[&str]; 2]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let region = |id: usize| Region::start(id, copies, folder.path(), options[id - 1], RegionClock::default());
        let regions = [region(1), region(2)];
        Self { regions, folder }
    }

    /// With clocks that are ahead by so many seconds in each region, relays into it among them, and on which time may pass.
    pub fn with_clocks(options: [&[&str]; 2], ahead: [i64; 2]) -> (Self, Arc<Clocks>) {
        let folder = tempfile::tempdir().expect("a folder");
        let clocks = Arc::new(Clocks::new(folder.path()));
        let region = |id: usize| {
            let clock = RegionClock { clocks: Some(Arc::clone(&clocks)), ahead: ahead[id - 1] };
            Region::start(id, COPIES, folder.path(), options[id - 1], clock)
        };
        let regions = [region(1), region(2)];
        (Self { regions, folder }, clocks)
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().expect("plain").to_owned()
    }

    /// The relay from the region at one place to the other one. It reads from where the last one was.
    pub fn relay(&self, from: usize, more: &[&str]) -> RelayProcess {
        self.relay_as("", from, more)
    }

    /// The same, one of several, each with folders of its own.
    pub fn relay_as(&self, name: &str, from: usize, more: &[&str]) -> RelayProcess {
        let target = self.regions[1 - from].id;
        let (inside, hints) =
            (self.path(&format!("inside-{target}.toml")), self.path(&format!("relay-hints-{target}{name}")));
        let to = ["--to", &inside, "--hint-dir", &hints, "--node-timeout", "2s"];
        self.relay_with(&format!("{target}{name}"), from, &[&to, more].concat())
    }

    /// One that reads the nodes of a region, or a topic of it, and writes into a topic, or as it is told.
    pub fn relay_with(&self, name: &str, from: usize, more: &[&str]) -> RelayProcess {
        let source = self.regions[from].id;
        let (outside, state) = (self.path(&format!("outside-{source}.toml")), self.path(&format!("state-{name}")));
        let region = source.to_string();
        let arguments = ["--from", &outside, "--region", &region, "--state-dir", &state];
        // One that reads a topic has no nodes to be patient with.
        let reads_topic = more.contains(&"--through") && more.contains(&"--to");
        let patience: &[&str] = if reads_topic { &[] } else { &["--patience", "2"] };
        let arguments = [&arguments[..], &["--admin", "127.0.0.1:0"], patience, more].concat();
        let clock = &self.regions[1 - from].clock;
        let process = Process::start(clock.set(moneta(&["relay"]).args(arguments)));
        process.until_it_says("admin HTTP listening");
        let log = process.stderr();
        let line = log.lines().find(|line| line.contains("admin HTTP listening")).expect("it says so");
        let admin = line.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next()).expect("an address");
        RelayProcess { admin: admin.to_owned(), process }
    }

    /// Both relays.
    pub fn relays(&self, more: &[&str]) -> [RelayProcess; 2] {
        [self.relay(0, more), self.relay(1, more)]
    }

    /// What all copies of both regions hold of a key, each answer once.
    pub fn all_held(&self, key: &str) -> Vec<Option<String>> {
        let mut all: Vec<_> =
            self.regions.iter().flat_map(|region| (0..region.nodes.len()).map(|copy| region.held(copy, key))).collect();
        all.sort();
        all.dedup();
        all
    }

    /// Waits until all copies hold the same of these keys.
    pub fn until_all_agree(&self, keys: &[String]) {
        for key in keys {
            until(&format!("all agree on {key}"), || matches!(&self.all_held(key)[..], [Some(_)]));
        }
    }
}
