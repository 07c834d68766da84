//! Servers under test as processes, and what the kernel says of them.

use std::future::Future;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use moneta_bench::affinity::spawn_pinned;
use moneta_bench::process::Process;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::time::sleep;

use super::plan::{Plan, Spent};
use super::request;

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// How often it is looked whether a server is ready.
const LOOK: Duration = Duration::from_millis(10);

/// A server that runs; killed when dropped.
pub(super) struct Running {
    child: Child,
    process: Process,
}

impl Running {
    /// Starts `command` on `cpus`; none: any.
    pub(super) fn start(command: Command, cpus: &[usize]) -> io::Result<Self> {
        let child = spawn_pinned(command, cpus).map_err(io::Error::other)??;
        let process = Process::new(child.id());
        Ok(Self { child, process })
    }

    /// Waits until `path` is answered by 200.
    pub(super) async fn until_ready(&mut self, address: SocketAddr, path: &str) -> io::Result<()> {
        let began = Instant::now();
        while !request::ask(address, "GET", path, "").await.is_ok_and(|(status, _)| status == 200) {
            if began.elapsed() > PATIENCE || self.child.try_wait()?.is_some() {
                return Err(io::Error::other("the server is not ready"));
            }
            sleep(LOOK).await;
        }
        Ok(())
    }

    /// CPU that it has used.
    pub(super) fn cpu(&self) -> io::Result<Duration> {
        self.process.cpu_time().map_err(io::Error::other)
    }

    /// What it spends while something is done.
    pub(super) async fn spent<T>(&self, what: impl Future<Output = T>) -> io::Result<(Spent, T)> {
        let (began, before) = (Instant::now(), self.cpu()?);
        let done = what.await;
        let (time, cpu) = (began.elapsed(), self.cpu()? - before);
        let memory = self.process.memory().map_err(io::Error::other)?;
        Ok((Spent { cpu, time, resident: memory.resident, peak: memory.peak }, done))
    }

    /// Ends it in order.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGTERM).map_err(std::io::Error::from)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A control plane that runs.
pub(super) struct Control {
    pub(super) running: Running,
    pub(super) address: SocketAddr,
    folder: Arc<TempDir>,
    /// Open, so that it can write there.
    _screen: BufReader<ChildStdout>,
}

impl Control {
    pub(super) fn start(plan: &Plan) -> io::Result<Self> {
        Self::start_in(plan, Arc::new(tempfile::tempdir()?))
    }

    pub(super) fn start_in(plan: &Plan, folder: Arc<TempDir>) -> io::Result<Self> {
        let mut command = Command::new(&plan.moneta);
        command.args(["control", "--listen", "127.0.0.1:0", "--renew-every", &plan.period.as_secs().to_string()]);
        match plan.options.is_empty() {
            true => command.arg("--data").arg(folder.path()),
            false => command.args(&plan.options),
        };
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut running = Running::start(command, &plan.server_cpus)?;
        let mut screen = running.child.stdout.take().map(BufReader::new).ok_or(io::ErrorKind::NotFound)?;
        let lines = screen.by_ref().lines().map_while(std::result::Result::ok);
        let address = lines.filter_map(|line| line.strip_prefix("listening on http://")?.parse().ok()).next();
        match address {
            Some(address) => Ok(Self { running, address, folder, _screen: screen }),
            None => Err(io::Error::other("the control plane does not say where it listens")),
        }
    }

    pub(super) async fn until_ready(&mut self) -> io::Result<()> {
        self.running.until_ready(self.address, "/readyz").await
    }

    pub(super) fn folder(&self) -> Arc<TempDir> {
        Arc::clone(&self.folder)
    }
}

/// Raises the limit on descriptors as far as it goes: of this process, and of those that it starts.
pub(super) fn raise_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
