//! Members of etcd, as processes.

use std::process::Command;

use moneta_testkit::process::{Process, clean};
use tempfile::TempDir;

use crate::common::{Signal, printed, steady_port, until};

/// One member: its ports for clients and for the others.
struct Place {
    client: u16,
    peer: u16,
}

/// An etcd on this machine, in folders that go with it.
pub struct Etcd {
    places: Vec<Place>,
    processes: Vec<Option<Process>>,
    folder: TempDir,
}

impl Etcd {
    /// Starts so many members, and waits until they answer.
    pub fn start(members: usize) -> Self {
        let places: Vec<Place> = (0..members).map(|_| Place { client: steady_port(), peer: steady_port() }).collect();
        let processes = places.iter().map(|_| None).collect();
        let mut etcd = Self { places, processes, folder: tempfile::tempdir().expect("a folder") };
        (0..members).for_each(|member| etcd.begin(member));
        until("etcd answers", || etcd.leader().is_some());
        etcd
    }

    /// Starts a member, for the first time or again.
    pub fn begin(&mut self, member: usize) {
        let url = |port: u16| format!("http://127.0.0.1:{port}");
        let name = |member: usize| format!("m{member}");
        let all = self.places.iter().enumerate().map(|(member, place)| format!("{}={}", name(member), url(place.peer)));
        let all = all.collect::<Vec<_>>().join(",");
        let Place { client, peer } = self.places[member];
        // It goes with the test program, however that ends.
        let mut command = clean("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd", "--name", &name(member), "--log-level", "error"]);
        command.args(["--logger", "zap"]).arg("--data-dir").arg(self.folder.path().join(name(member)));
        command.args(["--listen-client-urls", &url(client), "--advertise-client-urls", &url(client)]);
        command.args(["--listen-peer-urls", &url(peer), "--initial-advertise-peer-urls", &url(peer)]);
        command.args(["--initial-cluster", &all]);
        self.processes[member] = Some(Process::start(&mut command));
    }

    /// Ends a member as a kill does.
    pub fn kill(&mut self, member: usize) {
        drop(self.processes[member].take());
    }

    /// Sends a member a signal. Of SIGSTOP also waits for the effect.
    pub fn signal(&self, member: usize, signal: Signal) {
        let process = self.processes[member].as_ref().expect("it runs");
        match signal {
            Signal::SIGSTOP => process.stop(),
            other => process.signal(other),
        }
    }

    /// Has each fsync of a member wait, of all its files or of one below its folder, as on a disk that does not answer; until what is
    /// returned is dropped. Everything else of the member goes on.
    pub fn stick(&self, member: usize, file: Option<&str>) -> Process {
        let process = self.processes[member].as_ref().expect("it runs");
        // A tracer that ends frees what it traces.
        let mut command = clean("setpriv");
        command.args(["--pdeathsig", "KILL", "strace", "-f", "-e", "trace=fdatasync,fsync"]);
        command.args(["-e", "inject=fdatasync,fsync:delay_enter=2000000000", "-o"]);
        let traced = self.folder.path().join("traced");
        let _ = std::fs::remove_file(&traced);
        command.arg(&traced).args(["-p", &process.id().to_string()]);
        if let Some(file) = file {
            command.arg("-P").arg(self.folder.path().join(format!("m{member}")).join(file));
        }
        let tracer = Process::start(&mut command);
        until("it waits for its disk", || std::fs::read_to_string(&traced).is_ok_and(|said| said.contains("sync(")));
        tracer
    }

    /// Where all of them are, as `--etcd` takes it.
    pub fn urls(&self) -> String {
        self.urls_from(0)
    }

    /// The same, that member first.
    pub fn urls_from(&self, first: usize) -> String {
        let (before, after) = self.places.split_at(first);
        let url = |place: &Place| format!("http://127.0.0.1:{}", place.client);
        after.iter().chain(before).map(url).collect::<Vec<_>>().join(",")
    }

    /// The member that leads, if one that runs says so.
    pub fn leader(&self) -> Option<usize> {
        (0..self.places.len()).filter(|member| self.processes[*member].is_some()).find(|member| {
            let own = self.status(*member, "MemberID");
            own.is_some() && own == self.status(*member, "Leader")
        })
    }

    /// Forgets what was overwritten up to now.
    pub fn compact(&self) {
        let revision = self.status(0, "Revision").expect("it has one");
        printed(self.ask(0).args(["compaction", &revision]));
    }

    fn ask(&self, member: usize) -> Command {
        let mut command = Command::new("etcdctl");
        let place = format!("http://127.0.0.1:{}", self.places[member].client);
        command.env("ETCDCTL_API", "3").args(["--endpoints", &place, "--command-timeout", "2s"]);
        command
    }

    /// A field of what a member says of itself, if it says something.
    fn status(&self, member: usize, name: &str) -> Option<String> {
        let output = self.ask(member).args(["endpoint", "status", "-w", "fields"]).output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let line = text.lines().find(|line| line.starts_with(&format!("\"{name}\"")))?;
        Some(line.split_once(':')?.1.trim().to_owned())
    }
}
