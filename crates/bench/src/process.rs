//! A process seen from the operating system: its CPU time and its memory.

use std::time::Duration;

use nix::time::ClockId;
use nix::unistd::Pid;
use serde::Serialize;

use crate::error::{BenchError, Result};

/// Resident memory of a process, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Memory {
    /// Now (`VmRSS`).
    pub resident: u64,
    /// At its highest (`VmHWM`).
    pub peak: u64,
}

/// CPU time split the way the kernel reports it, in clock ticks turned into time; the split is coarse, the sum is not used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Split {
    /// In the program.
    pub user: Duration,
    /// In the kernel on its behalf.
    pub system: Duration,
}

/// Bytes a process has caused to move between memory and devices, as the kernel counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Traffic {
    /// Read from devices on its behalf.
    pub read: u64,
    /// Written: past the page cache when they were handed over, into the page cache when a page became dirty.
    pub written: u64,
}

/// A process to watch, by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    id: u32,
}

impl Process {
    /// The process with this id.
    pub fn new(id: u32) -> Self {
        Self { id }
    }

    /// The process that listens on a TCP port of this machine, if its open files can be seen here.
    pub fn listening_on(port: u16) -> Option<Self> {
        const LISTEN: &str = "0A";
        let tables =
            ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
        // The second field is the local address, with the port in hexadecimal; the fourth the state, the tenth the inode: proc(5).
        let inode = tables.iter().flat_map(|table| table.lines()).find_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_it = fields.get(1)?.ends_with(&format!(":{port:04X}")) && *fields.get(3)? == LISTEN;
            if is_it { fields.get(9).map(|inode| format!("socket:[{inode}]")) } else { None }
        })?;
        let ids = std::fs::read_dir("/proc").ok()?.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
        let has_it = |id: &u32| {
            let files = std::fs::read_dir(format!("/proc/{id}/fd")).into_iter().flatten();
            files.flatten().any(|file| std::fs::read_link(file.path()).is_ok_and(|link| *link == *inode))
        };
        ids.into_iter().find(has_it).map(Self::new)
    }

    /// Its id.
    pub fn id(self) -> u32 {
        self.id
    }

    /// CPU time of all its threads, those that have ended included, user and system together.
    ///
    /// Read from the process' CPU-time clock (clock_getcpuclockid(3)), which the scheduler advances in nanoseconds. The obvious
    /// sources fall short: /proc/PID/stat counts in ticks of 10 ms, /proc/PID/schedstat covers the main thread alone, and a
    /// sum over /proc/PID/task loses the threads that have ended.
    ///
    /// # Errors
    /// [`BenchError::System`] when the process is gone.
    pub fn cpu_time(self) -> Result<Duration> {
        let read = || ClockId::pid_cpu_clock_id(Pid::from_raw(self.id as i32))?.now();
        read()
            .map(Duration::from)
            .map_err(|error| BenchError::system(format!("read the CPU time of process {}", self.id), error))
    }

    /// CPU time in user and system mode, from /proc/PID/stat.
    ///
    /// # Errors
    /// [`BenchError::System`] when the process is gone.
    pub fn split(self) -> Result<Split> {
        let stat = self.proc_file("stat")?;
        // The second field, the command's name, may hold anything, but only it ends in a parenthesis.
        let fields: Vec<&str> = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace().collect();
        // utime and stime are fields 14 and 15 of proc(5); the first after the name is field 3.
        let ticks = |index: usize| fields.get(index).and_then(|field| field.parse::<u64>().ok());
        match (ticks(11), ticks(12)) {
            (Some(user), Some(system)) => Ok(Split { user: from_ticks(user), system: from_ticks(system) }),
            _ => Err(BenchError::system(format!("read /proc/{}/stat", self.id), std::io::ErrorKind::InvalidData)),
        }
    }

    /// Its resident memory.
    ///
    /// # Errors
    /// [`BenchError::System`] when the process is gone.
    pub fn memory(self) -> Result<Memory> {
        let status = self.proc_file("status")?;
        Ok(Memory { resident: status_bytes(&status, "VmRSS:"), peak: status_bytes(&status, "VmHWM:") })
    }

    /// Bytes of its resident memory that are no file's: what it would take with no page cache at all.
    ///
    /// # Errors
    /// [`BenchError::System`] when the process is gone.
    pub fn anonymous(self) -> Result<u64> {
        Ok(status_bytes(&self.proc_file("status")?, "RssAnon:"))
    }

    /// Bytes it has read from and written to devices, from /proc/PID/io.
    ///
    /// # Errors
    /// [`BenchError::System`] when the process is gone or belongs to another user.
    pub fn traffic(self) -> Result<Traffic> {
        let io = self.proc_file("io")?;
        let bytes = |name: &str| {
            let line = io.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|bytes| bytes.trim().parse().ok()).unwrap_or(0)
        };
        Ok(Traffic { read: bytes("read_bytes:"), written: bytes("write_bytes:") })
    }

    fn proc_file(self, name: &str) -> Result<String> {
        let path = format!("/proc/{}/{name}", self.id);
        std::fs::read_to_string(&path).map_err(|error| BenchError::system(format!("read {path}"), error))
    }
}

/// A line of /proc/PID/status that counts KiB; 0 where it is missing.
fn status_bytes(status: &str, name: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map_or(0, |kibibytes| kibibytes * 1024)
}

/// The kernel reports times in `USER_HZ`, which is 100 on every architecture Linux still supports but Alpha and IA-64.
fn from_ticks(ticks: u64) -> Duration {
    Duration::from_millis(ticks * 10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    struct Kill(Child);

    impl Drop for Kill {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }

    #[test]
    fn cpu_time_of_a_busy_child_grows_and_of_an_idle_one_does_not() {
        let spawn = |program: &str, argument: &str| {
            Kill(Command::new(program).arg(argument).stdout(Stdio::null()).spawn().unwrap())
        };
        let busy = spawn("yes", "x");
        let idle = spawn("sleep", "600");
        let busy = (Process::new(busy.0.id()), busy);
        let idle = (Process::new(idle.0.id()), idle);
        let (busy_before, waited) = (busy.0.cpu_time().unwrap(), Instant::now());
        while busy.0.cpu_time().unwrap() < busy_before + Duration::from_millis(30) {
            assert!(waited.elapsed() < Duration::from_secs(60), "a busy process got no CPU time for a minute");
            std::thread::sleep(Duration::from_millis(5));
        }
        let idle_before = idle.0.cpu_time().unwrap();
        std::thread::sleep(Duration::from_millis(30));
        assert!(idle.0.cpu_time().unwrap() - idle_before < Duration::from_millis(20));
        assert!(busy.0.split().unwrap().user + busy.0.split().unwrap().system > Duration::ZERO);
    }

    #[test]
    fn a_listener_is_found_by_its_port() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        assert_eq!(Process::listening_on(port), Some(Process::new(std::process::id())));
        drop(listener);
        assert_eq!(Process::listening_on(port), None);
    }

    #[test]
    fn memory_of_this_process_is_plausible() {
        let memory = Process::new(std::process::id()).memory().unwrap();
        assert!(memory.resident > 100 * 1024 && memory.peak >= memory.resident, "{memory:?}");
    }

    #[test]
    fn what_this_process_writes_is_counted() {
        let before = Process::new(std::process::id()).traffic().unwrap().written;
        // A temporary folder may be in memory, and then nothing is written to a device.
        let folder = tempfile::tempdir_in(".").unwrap();
        std::fs::write(folder.path().join("file"), vec![1; 1 << 20]).unwrap();
        assert!(Process::new(std::process::id()).traffic().unwrap().written >= before + (1 << 20));
    }

    #[test]
    fn a_process_that_is_gone_is_an_error() {
        let mut child = Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        assert!(Process::new(child.id()).memory().is_err());
    }
}
