//! What processes leave in the cluster's folder: files of process numbers, and logs.

use std::fs;
use std::path::Path;

use nix::unistd::Pid;

/// The process number in a file, if it is of a process that was started with `mark` as an argument: another one may have the number
/// of one that was killed.
pub fn pid_of(file: &Path, mark: &Path) -> Option<Pid> {
    let pid: i32 = fs::read_to_string(file).ok()?.trim().parse().ok()?;
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let mark = mark.as_os_str().as_encoded_bytes();
    arguments.split(|byte| *byte == 0).any(|argument| argument == mark).then_some(Pid::from_raw(pid))
}

/// The last line of a log that says something.
pub fn last_line(log: &Path) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it has logged nothing").to_owned()
}
