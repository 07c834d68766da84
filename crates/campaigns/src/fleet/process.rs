//! The control plane as a process, and what the kernel says of it.

use std::fs;
use std::future::Future;
use std::io::{self, BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, SysconfVar, sysconf};
use tempfile::TempDir;
use tokio::time::sleep;

use super::plan::{Plan, Spent};
use super::request;

/// How long a start may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// A control plane that runs; killed when dropped.
pub(super) struct Control {
    child: Child,
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
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
        let mut screen = child.stdout.take().map(BufReader::new).ok_or(io::ErrorKind::NotFound)?;
        let lines = screen.by_ref().lines().map_while(std::result::Result::ok);
        let address = lines.filter_map(|line| line.strip_prefix("listening on http://")?.parse().ok()).next();
        match address {
            Some(address) => Ok(Self { child, address, folder, _screen: screen }),
            None => Err(io::Error::other("the control plane does not say where it listens")),
        }
    }

    pub(super) async fn until_ready(&mut self) -> io::Result<()> {
        let began = Instant::now();
        while !request::ask(self.address, "GET", "/readyz", "").await.is_ok_and(|(status, _)| status == 200) {
            if began.elapsed() > PATIENCE || self.child.try_wait()?.is_some() {
                return Err(io::Error::other("the control plane is not ready"));
            }
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    pub(super) fn folder(&self) -> Arc<TempDir> {
        Arc::clone(&self.folder)
    }

    fn proc(&self, file: &str) -> PathBuf {
        Path::new("/proc").join(self.child.id().to_string()).join(file)
    }

    /// CPU that it has used.
    pub(super) fn cpu(&self) -> io::Result<Duration> {
        let text = fs::read_to_string(self.proc("stat"))?;
        // After the name, which may have anything in it.
        let fields: Vec<u64> =
            text.rsplit(')').next().unwrap_or_default().split(' ').map(|field| field.parse().unwrap_or(0)).collect();
        let ticks = fields.get(12).zip(fields.get(13)).map_or(0, |(user, system)| user + system);
        let a_second = sysconf(SysconfVar::CLK_TCK).ok().flatten().and_then(|ticks| u64::try_from(ticks).ok());
        Ok(Duration::from_millis(ticks * 1_000 / a_second.unwrap_or(100)))
    }

    fn bytes(&self, field: &str) -> io::Result<u64> {
        let text = fs::read_to_string(self.proc("status"))?;
        let line = text.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        let kib = line.trim_start_matches(':').trim().trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        Ok(kib << 10)
    }

    /// What it spends while something is done.
    pub(super) async fn spent<T>(&self, what: impl Future<Output = T>) -> io::Result<(Spent, T)> {
        let (began, before) = (Instant::now(), self.cpu()?);
        let done = what.await;
        let (time, cpu) = (began.elapsed(), self.cpu()? - before);
        Ok((Spent { cpu, time, resident: self.bytes("VmRSS")?, peak: self.bytes("VmHWM")? }, done))
    }

    /// Ends it in order.
    pub(super) fn end(&mut self) -> io::Result<()> {
        let pid = Pid::from_raw(self.child.id().cast_signed());
        kill(pid, Signal::SIGTERM).map_err(std::io::Error::from)?;
        self.child.wait()?;
        Ok(())
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Raises the limit on descriptors as far as it goes: of this process, and of those that it starts.
pub(super) fn raise_descriptors() {
    if let Ok((_, hard)) = getrlimit(Resource::RLIMIT_NOFILE) {
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}
