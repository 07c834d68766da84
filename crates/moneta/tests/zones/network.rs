//! Zones as network namespaces, each on a cable to a switch in a further namespace. All of it is gone when the test ends.

use std::fs::File;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, setns, unshare};

use crate::common::Process;

/// A namespace, which lives as long as a process in it.
struct Namespace(Process);

impl Namespace {
    fn new() -> Self {
        let mut command = Command::new("unshare");
        let namespace = Self(Process::start(command.args(["-n", "sleep", "3600"])));
        let own = std::fs::read_link("/proc/self/ns/net").expect("it has one");
        namespace
            .0
            .until("a namespace never begins", || std::fs::read_link(namespace.path()).is_ok_and(|path| path != own));
        namespace
    }

    fn path(&self) -> String {
        format!("/proc/{}/ns/net", self.0.id())
    }

    /// A command that runs in it.
    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.path())).arg(program);
        command
    }

    fn ip(&self, arguments: &str) {
        let status =
            self.command("ip").args(arguments.split(' ')).status().expect("ip is installed: make setup FOR=zones");
        assert!(status.success(), "ip {arguments}: {status}");
    }

    /// Moves the calling thread into it.
    fn enter(&self) {
        let file = File::open(self.path()).expect("the namespace is there");
        setns(file, CloneFlags::CLONE_NEWNET).expect("a thread may enter it");
    }
}

/// The zones and the switch between them.
pub struct Network {
    hub: Namespace,
    zones: Vec<(String, Namespace)>,
}

impl Network {
    pub fn new(zones: &[&str]) -> Self {
        let hub = Namespace::new();
        hub.ip("link set lo up");
        hub.ip("link add switch type bridge");
        hub.ip("link set switch up");
        hub.ip("addr add 10.77.0.1/24 dev switch");
        let zone = |(number, name): (usize, &&str)| {
            let namespace = Namespace::new();
            let process = namespace.0.id();
            hub.ip(&format!("link add cable-{name} type veth peer name eth0 netns {process}"));
            hub.ip(&format!("link set cable-{name} master switch"));
            hub.ip(&format!("link set cable-{name} up"));
            namespace.ip("link set lo up");
            namespace.ip(&format!("addr add {}/24 dev eth0", address(number)));
            namespace.ip("link set eth0 up");
            ((*name).to_owned(), namespace)
        };
        Self { zones: zones.iter().enumerate().map(zone).collect(), hub }
    }

    fn zone(&self, name: &str) -> &Namespace {
        &self.zones.iter().find(|(zone, _)| zone == name).expect("there is such a zone").1
    }

    /// A command that runs in a zone.
    pub fn command(&self, zone: &str, program: &str) -> Command {
        self.zone(zone).command(program)
    }

    /// Moves the calling thread into a zone.
    pub fn enter(&self, zone: &str) {
        self.zone(zone).enter();
    }

    /// Moves the calling thread, and those that it starts, to the switch, from which all zones are reached.
    pub fn enter_hub(&self) {
        self.hub.enter();
    }

    /// Limits what cables carry, both ways, each by itself, and what is carried within a zone. False: this kernel cannot.
    pub fn limit(&self, rate: &str) -> bool {
        let shape = |namespace: &Namespace, device: &str| {
            let words = format!("qdisc add dev {device} root tbf rate {rate} burst 256kb latency 50ms");
            let status = namespace.command("tc").args(words.split(' ')).stderr(Stdio::null()).status();
            status.is_ok_and(|status| status.success())
        };
        self.zones
            .iter()
            .all(|(name, zone)| shape(zone, "eth0") && shape(zone, "lo") && shape(&self.hub, &format!("cable-{name}")))
    }

    /// Cuts a zone off, or connects it again.
    pub fn cut(&self, zone: &str, is_cut: bool) {
        self.hub.ip(&format!("link set cable-{zone} {}", if is_cut { "down" } else { "up" }));
    }
}

/// The address of a zone.
pub fn address(zone: usize) -> String {
    format!("10.77.0.{}", 11 + zone)
}

/// Whether this process may make namespaces.
pub fn is_possible() -> bool {
    std::thread::spawn(|| unshare(CloneFlags::CLONE_NEWNET).is_ok()).join().is_ok_and(|may| may)
}

/// Runs this test again as root of a namespace of users. Where the system has none for this user, it says so and does nothing.
pub fn in_own_namespace() {
    let inside = || {
        let mut command = Command::new("unshare");
        command.args(["--map-root-user", "--net"]).env("MONETA_ZONES_INSIDE", "1");
        command
    };
    let may = inside().arg("true").stderr(Stdio::null()).status().expect("unshare is part of Debian").success();
    if !may || std::env::var_os("MONETA_ZONES_INSIDE").is_some() {
        eprintln!("NOT RUN: this system lets neither this user nor a namespace of users have networks");
        return;
    }
    let program = std::env::current_exe().expect("the test has a path");
    let status = inside().arg(program).args(std::env::args_os().skip(1)).status().expect("it could be run before");
    assert!(status.success(), "the test in a namespace of users: {status}");
}
