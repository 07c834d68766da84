//! Real members of etcd.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use moneta_ledger::Etcd;
use moneta_net::{Connector, Endpoint, HostPort, LogIn};
use moneta_testkit::process::{PATIENCE, Process, TlsFiles, clean, steady_port};
use tempfile::TempDir;

/// One member.
struct Place {
    name: String,
    client: u16,
    peer: u16,
}

/// Members on this machine, in folders that go with them.
pub struct Cluster {
    places: Vec<Place>,
    processes: Vec<Option<Process>>,
    connector: Connector,
    log_in: LogIn,
    tls: Option<TlsFiles>,
    folder: TempDir,
}

impl Cluster {
    pub fn start(members: usize) -> Self {
        Self::start_with(members, false)
    }

    pub fn start_with(members: usize, with_tls: bool) -> Self {
        let folder = TempDir::new().expect("a temporary folder");
        let tls = with_tls.then(|| TlsFiles::write(folder.path()).expect("certificates"));
        let connector = tls.as_ref().map_or(Connector::Plain, |tls| tls.connector().expect("an authority"));
        let place = |number| Place { name: format!("m{number}"), client: steady_port(), peer: steady_port() };
        let places: Vec<Place> = (0..members).map(place).collect();
        let processes = places.iter().map(|_| None).collect();
        let mut cluster = Self { places, processes, connector, log_in: LogIn::None, tls, folder };
        (0..members).for_each(|number| cluster.begin(number));
        cluster
    }

    /// One member for all tests of this program, which ends with it.
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<Cluster> = OnceLock::new();
        // A process is asked to end when the thread ends that began it: this one goes on.
        SHARED.get_or_init(|| {
            let (sender, receiver) = std::sync::mpsc::channel();
            std::thread::spawn(move || {
                let cluster = Self::start(1);
                // What is static is never dropped: its folder is removed by a process that sees this one end.
                let mut remover = clean("sh");
                remover.args(["-c", "read -r _; until rm -rf \"$0\"; do sleep 0.1; done"]).arg(cluster.folder.path());
                remover.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
                let mut remover = remover.spawn().expect("there is a shell");
                let _held = remover.stdin.take();
                let _ = sender.send(cluster);
                let _ = remover.wait();
                loop {
                    std::thread::park();
                }
            });
            receiver.recv().expect("it starts")
        })
    }

    /// Where no other ledger is.
    pub fn new_root() -> String {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        format!("/test/{}/", COUNT.fetch_add(1, Ordering::Relaxed))
    }

    fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// Starts a member, for the first time or again.
    pub fn begin(&mut self, number: usize) {
        let (place, scheme) = (&self.places[number], self.scheme());
        let peers: Vec<String> =
            self.places.iter().map(|place| format!("{}=http://127.0.0.1:{}", place.name, place.peer)).collect();
        // It goes with the test program, however that ends.
        let mut command = clean("setpriv");
        command.args(["--pdeathsig", "KILL", "etcd"]);
        let data = self.folder.path().join(&place.name);
        command.args(["--name", &place.name, "--log-level", "error", "--logger", "zap"]);
        command.arg("--data-dir").arg(&data);
        command.args(["--listen-client-urls", &format!("{scheme}://127.0.0.1:{}", place.client)]);
        command.args(["--advertise-client-urls", &format!("{scheme}://127.0.0.1:{}", place.client)]);
        command.args(["--listen-peer-urls", &format!("http://127.0.0.1:{}", place.peer)]);
        command.args(["--initial-advertise-peer-urls", &format!("http://127.0.0.1:{}", place.peer)]);
        command.args(["--initial-cluster", &peers.join(",")]);
        if let Some(tls) = &self.tls {
            command.arg("--cert-file").arg(&tls.certificate).arg("--key-file").arg(&tls.key);
        }
        self.processes[number] = Some(Process::start(&mut command));
    }

    pub fn process(&self, number: usize) -> &Process {
        self.processes[number].as_ref().expect("it runs")
    }

    /// Ends a member as a kill does.
    pub fn kill(&mut self, number: usize) {
        drop(self.processes[number].take());
    }

    pub fn log_in(&mut self, log_in: LogIn) {
        self.log_in = log_in;
    }

    pub fn endpoints(&self) -> Vec<Endpoint> {
        let endpoint = |place: &Place| {
            let mut endpoint = Endpoint::from(moneta_net::Address::Tcp(HostPort::new("127.0.0.1", place.client)));
            endpoint.connector = self.connector.clone();
            endpoint.log_in = self.log_in.clone();
            endpoint
        };
        self.places.iter().map(endpoint).collect()
    }

    /// Opens a ledger once the cluster answers.
    pub fn open(&self, root: &str) -> Etcd {
        let begun = Instant::now();
        loop {
            match pollster::block_on(Etcd::open(self.endpoints(), root)) {
                Ok(opened) => return opened,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "etcd does not answer: {error}"),
            }
        }
    }

    /// `etcdctl` at the first member.
    pub fn control(&self, arguments: &[&str]) -> String {
        let mut command = Command::new("etcdctl");
        command.env("ETCDCTL_API", "3").arg("--endpoints").arg(format!(
            "{}://127.0.0.1:{}",
            self.scheme(),
            self.places[0].client
        ));
        if let Some(tls) = &self.tls {
            command.arg("--cacert").arg(Path::new(&tls.authority));
        }
        let output = command.args(arguments).output().expect("etcdctl runs");
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// The member that leads, if there is one that says so.
    pub fn leader(&self) -> Option<usize> {
        (0..self.places.len()).filter(|number| self.processes[*number].is_some()).find(|number| {
            let mut command = Command::new("etcdctl");
            let place = format!("{}://127.0.0.1:{}", self.scheme(), self.places[*number].client);
            command.env("ETCDCTL_API", "3").args([
                "--endpoints",
                &place,
                "--command-timeout",
                "2s",
                "--dial-timeout",
                "2s",
            ]);
            let Ok(output) = command.args(["endpoint", "status", "-w", "fields"]).output() else { return false };
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let field = |name: &str| {
                let line = text.lines().find(|line| line.starts_with(&format!("\"{name}\"")))?;
                Some(line.split_once(':')?.1.trim().to_owned())
            };
            field("MemberID").is_some_and(|member| field("Leader") == Some(member))
        })
    }
}
