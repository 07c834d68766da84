//! The binary under test: run to its end, or as a node that is stopped whatever happens to the test.

// Each test file is a separate program and uses a part of this one.
#![allow(dead_code, unused_imports)]

pub mod clock;
pub mod plane;

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Command, ExitStatus};

pub use moneta_net::ports;
use moneta_testkit::process;
pub use moneta_testkit::process::{Memcached, PATIENCE, Process, Signal, output, printed, refused, steady_port, until};

/// First word of the first screen's last line.
const LAST_LINE: &str = "stop ";

/// The binary, with none of the test's environment variables for it.
pub fn moneta(arguments: &[&str]) -> Command {
    let mut command = process::clean(env!("CARGO_BIN_EXE_moneta"));
    command.args(arguments);
    command
}

/// A node that serves; killed when dropped.
pub struct Node {
    process: Process,
    /// The lines of its first screen.
    pub screen: Vec<String>,
}

impl Node {
    /// Starts `moneta serve` on a free port of 127.0.0.1 and waits for its first screen.
    pub fn start(arguments: &[&str]) -> Self {
        Self::run(moneta(&["serve", "-p", "0", "--admin", "127.0.0.1:0"]).args(arguments))
    }

    /// Starts `command`, which must be a `serve` or a `proxy`.
    pub fn run(command: &mut Command) -> Self {
        let process = Process::start(command);
        process.until("a whole first screen", || {
            let printed = process.stdout();
            printed.ends_with('\n') && printed.lines().last().is_some_and(|line| line.starts_with(LAST_LINE))
        });
        let screen = process.stdout().lines().map(String::from).collect();
        Self { process, screen }
    }

    /// What its log holds by now.
    pub fn log(&self) -> String {
        self.process.stderr()
    }

    /// Waits until a line of the log holds `part`.
    pub fn wait_for_log(&self, part: &str) {
        self.process.until_it_says(part);
    }

    /// Waits until the topology of this epoch takes effect.
    pub fn wait_for_topology(&self, epoch: u32) {
        let is_taken = |line: &str| line.contains("topology taken") && line.contains(&format!("epoch={epoch} "));
        self.wait_for(|| self.log().lines().any(is_taken), "the topology is not taken");
    }

    /// Waits until `holds` does; else the test fails and says `why`, with the log.
    pub fn wait_for(&self, holds: impl Fn() -> bool, why: &str) {
        self.process.until(why, holds);
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
    pub fn pid(&self) -> u32 {
        self.process.id()
    }

    /// The most resident memory that it has had, bytes.
    pub fn peak_bytes(&self) -> u64 {
        self.process.peak_bytes().expect("it runs")
    }

    /// Sends a signal. Of SIGSTOP also waits for the effect.
    pub fn signal(&self, signal: Signal) {
        match signal {
            Signal::SIGSTOP => self.process.stop(),
            other => self.process.signal(other),
        }
    }

    /// Waits for its end.
    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
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
    String::from_utf8_lossy(&reply).into_owned()
}

/// A file with `content` in `folder`, as an argument.
pub fn file(folder: &Path, name: &str, content: &str) -> String {
    let path = folder.join(name);
    fs::write(&path, content).expect("the file can be written");
    path.to_str().expect("temporary folders have plain names").into()
}
