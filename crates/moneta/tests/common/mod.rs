//! The binary under test: run to its end, or as a node that is stopped whatever happens to the test.

// Each test file is a separate program and uses a part of this one.
#![allow(dead_code)]

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Seek, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

#[path = "../../src/commands/cluster/ports.rs"]
pub mod ports;

/// How long anything may take; far more than it takes on a loaded machine.
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(10);
/// First word of the first screen's last line.
const LAST_LINE: &str = "stop ";

/// The binary, with none of the test's own environment variables for it.
pub fn moneta(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_moneta"));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MONETA_")) {
        command.env_remove(name);
    }
    command.args(arguments).stdin(Stdio::null());
    command
}

/// Standard output of a run that must succeed.
pub fn printed(command: &mut Command) -> String {
    let output = output(command);
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout)
}

/// Standard error of a run that must be refused with exit status `status`.
pub fn refused(command: &mut Command, status: i32) -> String {
    let Output { status: ended, stdout, stderr } = output(command);
    assert_eq!(ended.code(), Some(status), "stdout: {}, stderr: {}", text(&stdout), text(&stderr));
    text(&stderr)
}

/// What a run that ends by itself prints. One that does not, because it serves where it should refuse, is killed.
pub fn output(command: &mut Command) -> Output {
    let [mut stdout, mut stderr] = [(); 2].map(|()| tempfile::tempfile().expect("a file for what it prints"));
    let into = |file: &File| Stdio::from(file.try_clone().expect("another handle"));
    let command = command.stdin(Stdio::null());
    let mut child = Ended(command.stdout(into(&stdout)).stderr(into(&stderr)).spawn().expect("the binary runs"));
    let status = child.wait(|| "what should have ended goes on".to_owned());
    let read = |file: &mut File| {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).expect("what it printed can be read");
        bytes
    };
    Output { status, stdout: read(&mut stdout), stderr: read(&mut stderr) }
}

/// A process that ends with this value.
pub struct Ended(pub Child);

impl Ended {
    /// Waits for its end, which comes soon; else the test fails and says `why`.
    fn wait(&mut self, why: impl Fn() -> String) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.0.try_wait().expect("it is our child") {
                return status;
            }
            assert!(start.elapsed() < PATIENCE, "{}", why());
            thread::sleep(POLL);
        }
    }
}

/// The number of a process that was started here.
pub fn pid(child: &Child) -> Pid {
    Pid::from_raw(child.id().try_into().expect("the kernel's numbers are small"))
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Both fail only when it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A port of 127.0.0.1 for a process that is stopped and started again on it: no other test of this kind takes it, and no
/// connection.
pub fn steady_port() -> u16 {
    static CLAIMED: Mutex<Vec<ports::Claimed>> = Mutex::new(Vec::new());
    let claimed = ports::claim(1).expect("a free port");
    let port = claimed.ports[0];
    CLAIMED.lock().expect("no test panics here").push(claimed);
    port
}

/// A node that serves; killed when dropped.
pub struct Node {
    child: Ended,
    /// The lines of its first screen.
    pub screen: Vec<String>,
    log: tempfile::NamedTempFile,
}

impl Node {
    /// Starts `moneta serve` on a free port of 127.0.0.1 and waits for its first screen.
    pub fn start(arguments: &[&str]) -> Self {
        Self::run(moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0"]).args(arguments))
    }

    /// Starts `command`, which must be a `serve`.
    pub fn run(command: &mut Command) -> Self {
        let log = tempfile::NamedTempFile::new().expect("a file for the log");
        let stderr = File::create(log.path()).expect("the log opens");
        let mut child = Ended(command.stdout(Stdio::piped()).stderr(stderr).spawn().expect("the binary runs"));
        let stdout = child.0.stdout.take().expect("stdout is piped");
        let mut node = Self { child, screen: Vec::new(), log };
        let (sender, lines) = mpsc::channel();
        thread::spawn(move || {
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        while let Ok(line) = lines.recv_timeout(PATIENCE) {
            node.screen.push(line);
            if node.screen.last().is_some_and(|line| line.starts_with(LAST_LINE)) {
                return node;
            }
        }
        panic!("no whole first screen: {:?}, log: {}", node.screen, node.log());
    }

    /// What its log holds by now.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    /// Waits until a line of the log holds `part`.
    pub fn wait_for_log(&self, part: &str) {
        self.wait_for(|| self.log().contains(part), &format!("the log never says `{part}`"));
    }

    /// Waits until the topology of this epoch takes effect.
    pub fn wait_for_topology(&self, epoch: u32) {
        let is_taken = |line: &str| line.contains("topology taken") && line.contains(&format!("epoch={epoch} "));
        self.wait_for(|| self.log().lines().any(is_taken), "the topology is not taken");
    }

    /// Waits until `holds` does; else the test fails and says `why`, with the log.
    pub fn wait_for(&self, holds: impl Fn() -> bool, why: &str) {
        let start = Instant::now();
        while !holds() {
            assert!(start.elapsed() < PATIENCE, "{why}: {}", self.log());
            thread::sleep(POLL);
        }
    }

    /// The addresses it says it listens on.
    pub fn listening(&self) -> Vec<String> {
        let lines = self.screen.iter().filter_map(|line| line.strip_prefix("listening on "));
        lines.map(String::from).collect()
    }

    /// Its first TCP address.
    pub fn address(&self) -> SocketAddr {
        self.listening().iter().find_map(|address| address.parse().ok()).expect("it listens on TCP")
    }

    /// A connection to its first TCP address.
    pub fn connect(&self) -> TcpStream {
        connect(self.address())
    }

    /// Sends `requests` to its first TCP address, and returns all that comes back.
    pub fn exchange(&self, requests: &str) -> String {
        let mut stream = self.connect();
        stream.write_all(requests.as_bytes()).expect("the node reads");
        // Not by `quit`, which a node answers only to those who have logged in.
        stream.shutdown(Shutdown::Write).expect("the connection is open");
        read_all(stream)
    }

    /// The number of its process.
    pub fn pid(&self) -> Pid {
        pid(&self.child.0)
    }

    /// Sends a signal. Of SIGSTOP also waits for the effect: on a busy machine the node's other threads go on for a while.
    pub fn signal(&self, signal: Signal) {
        let pid = pid(&self.child.0);
        kill(pid, signal).expect("the node runs");
        if signal == Signal::SIGSTOP {
            let status = waitpid(pid, Some(WaitPidFlag::WUNTRACED)).expect("it is our child");
            assert_eq!(status, WaitStatus::Stopped(pid, signal));
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        let Self { child, log, .. } = self;
        child.wait(|| format!("the node does not end: {}", fs::read_to_string(log.path()).unwrap_or_default()))
    }
}

/// A connection whose reads end in an error before they hang.
pub fn connect(address: impl ToSocketAddrs) -> TcpStream {
    let stream = TcpStream::connect(address).expect("the node accepts");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream.set_write_timeout(Some(PATIENCE)).expect("a timeout can be set");
    stream
}

/// The same on a Unix socket.
pub fn connect_unix(path: impl AsRef<Path>) -> std::io::Result<UnixStream> {
    let stream = UnixStream::connect(path)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// Sends `requests` and `quit`, and returns all that comes back.
pub fn exchange(mut stream: impl Read + Write, requests: &str) -> String {
    stream.write_all(requests.as_bytes()).and_then(|()| stream.write_all(b"quit\r\n")).expect("the node reads");
    read_all(stream)
}

fn read_all(mut stream: impl Read) -> String {
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).expect("the node answers and closes");
    text(&reply)
}

/// A file with `content` in `folder`, as an argument.
pub fn file(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, content).expect("the file can be written");
    path.to_str().expect("temporary folders have plain names").into()
}
