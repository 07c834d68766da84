//! What the kernel knows of a process.

use std::fs;
use std::io;

/// State of a socket that listens, in `/proc/net/tcp`.
const LISTENING: &str = "0A";

/// Resident memory of process `id` in bytes (`VmRSS`).
///
/// # Errors
/// When the process is gone.
pub fn resident_bytes(id: u32) -> io::Result<u64> {
    status_bytes(id, "VmRSS:")
}

/// The most resident memory that process `id` has had, in bytes (`VmHWM`).
///
/// # Errors
/// When the process is gone.
pub fn peak_bytes(id: u32) -> io::Result<u64> {
    status_bytes(id, "VmHWM:")
}

fn status_bytes(id: u32, name: &str) -> io::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{id}/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    kibibytes.map(|kibibytes| kibibytes * 1024).ok_or_else(|| io::Error::other(format!("process {id} has no {name}")))
}

/// Whether process `id` listens on a TCP port, over IPv4.
///
/// # Errors
/// When the process is gone.
pub fn listens_on(id: u32, port: u16) -> io::Result<bool> {
    let table = fs::read_to_string("/proc/net/tcp")?;
    let place = format!(":{port:04X}");
    // Fields of proc_net_tcp: the second is the local address, the fourth the state, the tenth the socket's inode.
    let sockets: Vec<String> = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.len() > 9 && fields[1].ends_with(&place) && fields[3] == LISTENING)
        .map(|fields| format!("socket:[{}]", fields[9]))
        .collect();
    let files = fs::read_dir(format!("/proc/{id}/fd"))?;
    // A file may be closed while this looks.
    let mut open = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    Ok(open.any(|file| sockets.iter().any(|socket| file.as_os_str() == socket.as_str())))
}
