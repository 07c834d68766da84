//! A server under test: one that runs already, or one started here and ended on every way out.

use std::fmt;
use std::fs::File;
use std::process::{Child, Command, Stdio};
use std::str::FromStr;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::address::{Address, Subject};
use crate::affinity::spawn_pinned;
use crate::control::Control;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::placement::{Placement, names_nodes, place};
use crate::process::Process;

/// How long a server may take until it answers `version`.
const STARTUP: Duration = Duration::from_secs(60);
/// How long a server may take to end after SIGTERM; then it is killed.
const SHUTDOWN: Duration = Duration::from_secs(3);
/// How many free ports are tried.
const PORT_ATTEMPTS: usize = 5;
const TICK: Duration = Duration::from_millis(10);

/// Where a server comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// It runs already, here.
    Running(Address),
    /// It is started with this command line; `{port}` or `{socket}`, `{batch_port}`, `{admin_port}` and `{memory}` are replaced,
    /// and what names nodes ([`crate::compare::Nodes::name_in`]).
    Started(String),
}

impl FromStr for Origin {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        if text.contains("{port}") || text.contains("{socket}") || names_nodes(text) {
            return Ok(Self::Started(text.to_owned()));
        }
        match text.parse() {
            Ok(address) if !text.contains(' ') => Ok(Self::Running(address)),
            _ => Err("expected an address, or a command line with {port} or {socket} in it".to_owned()),
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Running(address) => address.fmt(formatter),
            Self::Started(line) => formatter.write_str(line),
        }
    }
}

impl Origin {
    /// A short name for tables: the program, or the address.
    pub fn name(&self) -> String {
        match self {
            Self::Running(address) => address.to_string(),
            Self::Started(line) => {
                let program = line.split_whitespace().next().unwrap_or_default();
                program.rsplit('/').next().unwrap_or_default().to_owned()
            }
        }
    }

    /// Whether it stands for nodes, or its command line names some.
    pub fn names_nodes(&self) -> bool {
        matches!(self, Self::Started(line) if names_nodes(line))
    }

    /// Whether the command line takes the memory limit from `{memory}`.
    pub fn takes_memory(&self) -> bool {
        matches!(self, Self::Started(line) if line.contains("{memory}"))
    }
}

/// A server that answers.
#[derive(Debug)]
pub struct Server {
    placement: Placement,
    process: Option<Process>,
    started: Option<Started>,
}

/// A child process with the folder for its socket and its messages.
#[derive(Debug)]
struct Started {
    child: Child,
    directory: TempDir,
}

impl Server {
    /// Starts or finds the server and waits until it answers `version`.
    ///
    /// # Errors
    /// [`BenchError::Start`] when it does not come up, [`BenchError::Connection`] when one said to run does not answer.
    pub fn open(origin: &Origin, memory: Option<u64>, cpus: &[usize]) -> Result<Self> {
        match origin {
            Origin::Running(address) => {
                let mut control = Control::connect(address)?;
                control.version()?;
                let process = local_process(&mut control).or_else(|| Process::listening_on(address.local_port()?));
                Ok(Self { placement: Placement::only(address.clone()), process, started: None })
            }
            Origin::Started(line) => Self::start_with_retries(line, memory, cpus),
        }
    }

    /// Another program may take the free port between its choice and the server's start; then a new one is chosen.
    fn start_with_retries(line: &str, memory: Option<u64>, cpus: &[usize]) -> Result<Self> {
        for _ in 1..PORT_ATTEMPTS {
            match Self::start(line, memory, cpus) {
                Err(BenchError::Start { reason, .. }) if reason.to_lowercase().contains("in use") => {}
                result => return result,
            }
        }
        Self::start(line, memory, cpus)
    }

    fn start(line: &str, memory: Option<u64>, cpus: &[usize]) -> Result<Self> {
        let failed = |reason: String| BenchError::Start { command: line.to_owned(), reason };
        let directory = TempDir::new().map_err(|error| BenchError::system("create a temporary folder", error))?;
        let (placement, line) = place(line, memory, directory.path())?;
        let words = shlex::split(&line).filter(|words| !words.is_empty());
        let words = words.ok_or_else(|| failed("its quotes do not match".to_owned()))?;
        let messages = File::create(directory.path().join("stderr"))
            .map_err(|error| BenchError::system("create a file", error))?;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(messages);
        let child = spawn_pinned(command, cpus)?.map_err(|error| failed(error.to_string()))?;
        let process = Process::new(child.id());
        let mut server = Self { placement, process: Some(process), started: Some(Started { child, directory }) };
        server.wait_until_ready().map_err(|error| match error {
            BenchError::Start { reason, .. } => failed(reason),
            other => other,
        })?;
        Ok(server)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let start = Instant::now();
        loop {
            interrupt::check()?;
            let answer = Control::connect(self.address()).and_then(|mut control| control.version());
            // Looked at after the answer, which may have come from another program on the same port.
            let ended = self.started.as_mut().and_then(|started| started.child.try_wait().ok().flatten());
            match (answer, ended) {
                (_, Some(status)) => return Err(self.not_ready(format!("it ended with {status}"))),
                (Ok(_), None) => return Ok(()),
                (Err(error), None) if start.elapsed() > STARTUP => return Err(self.not_ready(error.to_string())),
                (Err(_), None) => {}
            }
            std::thread::sleep(TICK);
        }
    }

    fn not_ready(&self, reason: String) -> BenchError {
        let path = self.started.as_ref().map(|started| started.directory.path().join("stderr"));
        let messages = path.and_then(|path| std::fs::read_to_string(path).ok()).unwrap_or_default();
        let reason = if messages.is_empty() { reason } else { format!("{reason}; it said: {}", messages.trim()) };
        BenchError::Start { command: String::new(), reason }
    }

    /// Where it listens.
    pub fn address(&self) -> &Address {
        &self.placement.online
    }

    /// Where its listener with the batch policy is; the only one of a server that has none.
    pub fn batch(&self) -> &Address {
        self.placement.batch.as_ref().unwrap_or(&self.placement.online)
    }

    /// Where its admin listener is, if its command line says so with `{admin_port}`.
    pub fn admin(&self) -> Option<&Address> {
        self.placement.admin.as_ref()
    }

    /// Ends a server that was started here with `signal` and waits until it is gone, killing it after `patience`; how long it
    /// took.
    ///
    /// # Errors
    /// [`BenchError::System`] when it cannot be waited for, or had to be killed.
    pub fn end(mut self, signal: Signal, patience: Duration) -> Result<Duration> {
        let Some(Started { child, .. }) = &mut self.started else { return Ok(Duration::ZERO) };
        let start = Instant::now();
        // The child has not been waited for, so its id cannot belong to another process.
        let pid = Pid::from_raw(child.id() as i32);
        kill(pid, signal).map_err(|error| BenchError::system(format!("signal process {pid}"), error))?;
        while start.elapsed() < patience {
            let ended = child.try_wait().map_err(|error| BenchError::system("wait for a server", error))?;
            if ended.is_some() {
                return Ok(start.elapsed());
            }
            std::thread::sleep(TICK);
        }
        Err(BenchError::system(format!("wait {patience:?} for the end of process {pid}"), std::io::ErrorKind::TimedOut))
    }

    /// Its process, when it runs on this machine.
    pub fn process(&self) -> Option<Process> {
        self.process
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(Started { child, .. }) = &mut self.started else { return };
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        // The child has not been waited for, so its id cannot belong to another process.
        let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
        let start = Instant::now();
        while start.elapsed() < SHUTDOWN {
            if !matches!(child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(TICK);
        }
        let _ = child.kill();
        let _ = child.wait();
    }
}

/// The process of a running server, if it reports its id and a process with that id can be seen here.
fn local_process(control: &mut Control) -> Option<Process> {
    let process = Process::new(u32::try_from(control.count("pid").ok()?).ok()?);
    process.memory().ok().filter(|memory| memory.resident > 0).map(|_| process)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tells_addresses_from_command_lines() {
        assert!(matches!("127.0.0.1:11211".parse(), Ok(Origin::Running(_))));
        assert!(matches!("/run/cache.sock".parse(), Ok(Origin::Running(Address::Unix(_)))));
        let started: Origin = "/usr/bin/memcached -p {port} -m {memory}".parse().unwrap();
        assert_eq!((started.name().as_str(), started.takes_memory()), ("memcached", true));
        assert!("memcached -p 11211".parse::<Origin>().is_err());
    }

    #[test]
    fn a_server_that_ends_at_once_is_reported_with_its_last_words() {
        let origin: Origin = "sh -c 'echo no such thing >&2; exit 3' {port}".parse().unwrap();
        let error = Server::open(&origin, None, &[]).unwrap_err().to_string();
        assert!(error.contains("no such thing") && error.contains('3'), "{error}");
    }
}
