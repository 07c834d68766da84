//! What the kernel knows about a process, and the limits of this one.

use anyhow::{Context, Result, ensure};
use std::fs;

/// Resident memory of a process in bytes (`VmRSS`).
pub fn resident_bytes(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).with_context(|| format!("process {pid} is gone"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).context("no VmRSS line")?;
    let kibibytes: u64 = line.split_whitespace().nth(1).context("VmRSS without a number")?.parse()?;
    Ok(kibibytes * 1024)
}

/// Processor time a process has used, in clock ticks of 10 ms.
pub fn processor_ticks(pid: u32) -> Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The command name may hold spaces; the fields after its closing bracket do not.
    let fields = stat.rsplit_once(')').context("no command name in stat")?.1;
    let mut fields = fields.split_whitespace().skip(11);
    let user: u64 = fields.next().context("no user time")?.parse()?;
    let system: u64 = fields.next().context("no system time")?.parse()?;
    Ok(user + system)
}

/// Whether a process listens on this TCP port, over IPv4.
pub fn listens_on(pid: u32, port: u16) -> Result<bool> {
    const LISTENING: &str = "0A";
    let table = fs::read_to_string("/proc/net/tcp")?;
    let place = format!(":{port:04X}");
    // Fields of proc_net_tcp: the second is the local address, the fourth the state, the tenth the socket's inode.
    let sockets: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 9 && fields[1].ends_with(&place) && fields[3] == LISTENING)
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let files = fs::read_dir(format!("/proc/{pid}/fd")).with_context(|| format!("process {pid} is gone"))?;
    // A file may be closed while this looks.
    let mut open = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    Ok(open.any(|file| sockets.iter().any(|socket| file.as_os_str() == socket.as_str())))
}

/// Raises how many files this process may open (its children inherit it) to at least `wanted`.
///
/// # Errors
/// When the hard limit is lower and may not be raised.
pub fn allow_open_files(wanted: u64) -> Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    ensure!(unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } == 0, "getrlimit failed");
    if limit.rlim_cur >= wanted {
        return Ok(());
    }
    limit.rlim_cur = wanted;
    limit.rlim_max = limit.rlim_max.max(wanted);
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    let result = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    ensure!(result == 0, "this test needs {wanted} open files, but the hard limit is lower: raise `ulimit -Hn`");
    Ok(())
}

/// Sends a signal to a process this one started.
pub fn signal(pid: u32, number: libc::c_int) -> Result<()> {
    let pid = libc::pid_t::try_from(pid)?;
    // SAFETY: kill takes plain integers and touches no memory of ours.
    ensure!(unsafe { libc::kill(pid, number) } == 0, "cannot signal process {pid}");
    Ok(())
}
