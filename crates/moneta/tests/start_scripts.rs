//! Guards start scripts written for memcached: a node that they start runs, does what they ask of the process, and says what
//! changes nothing.

mod common;

use std::fs;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use common::{Node, exchange, moneta, output, printed, refused};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, geteuid};

const PATIENCE: Duration = Duration::from_secs(60);

/// Debian 12's memcached.conf, without its comments.
const DEBIAN: &str = "-d\nlogfile /var/log/memcached.log\n-m 64\n-p 11211\n-u memcache\n-l 127.0.0.1\n-P /var/run/memcached/memcached.pid\n";

/// The flags that Debian's wrapper makes of the file, with a port and a place for the number that a test can have.
fn flags_of_debian(pid_file: &str) -> Vec<String> {
    let lines = DEBIAN.lines().filter(|line| line.starts_with('-') && !line.starts_with("-d"));
    let words = lines.flat_map(|line| line.split(' ')).map(|word| match word {
        "11211" => "0".to_owned(),
        word if word.ends_with(".pid") => pid_file.to_owned(),
        // Not every machine has this user.
        "memcache" => "nobody".to_owned(),
        word => word.to_owned(),
    });
    words.collect()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "{what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// A folder that every user may write to.
fn open_folder() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    folder
}

#[test]
fn debians_own_file_starts_a_node() {
    let folder = open_folder();
    let pid_file = folder.path().join("memcached.pid");
    let flags = flags_of_debian(pid_file.to_str().unwrap());
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let mut node = Node::start(&flags);
    assert_eq!(node.exchange("mn\r\n"), "MN\r\n");
    let stats = node.exchange("stats\r\n");
    let pid = stats.lines().find_map(|line| line.strip_prefix("STAT pid ")).expect("it tells its number");
    assert_eq!(fs::read_to_string(&pid_file).unwrap(), format!("{pid}\n"));
    if geteuid().is_root() {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let uids = status.lines().find_map(|line| line.strip_prefix("Uid:")).expect("it has a user");
        assert!(uids.split_whitespace().all(|uid| uid != "0"), "root is given up: {uids}");
    }
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());
    assert!(!pid_file.exists(), "the file goes with the node");
}

#[test]
fn a_user_that_root_cannot_become_is_refused() {
    if geteuid().is_root() {
        assert!(refused(&mut moneta(&["serve", "-u", "no-such-user"]), 1).contains("no user `no-such-user`"));
    }
}

#[test]
fn what_changes_nothing_is_said_in_a_line_each() {
    let flags = [
        "-k",
        "-L",
        "-C",
        "-f",
        "1.25",
        "-n",
        "48",
        "-r",
        "-o",
        "modern,hashpower=20,no_lru_crawler",
        "-o",
        "ext_threads=4",
    ];
    let node = Node::start(&flags);
    assert_eq!(node.exchange("mn\r\n"), "MN\r\n");
    let named = ["-k", "-L", "-C", "-f", "-n", "-o modern", "-o hashpower", "-o no_lru_crawler", "-o ext_threads"];
    named.iter().for_each(|flag| node.wait_for_log(&format!("\"{flag}\"")));
    let log = node.log();
    for flag in named {
        let lines = log.lines().filter(|line| line.contains(&format!("\"{flag}\"")));
        assert_eq!(lines.count(), 1, "{flag}: {log}");
    }
    assert!(!log.contains("\"-r\""), "it is done: {log}");
}

/// A process that the test did not start itself, but knows the number of; killed at the end.
struct Stray(Pid);

impl Drop for Stray {
    fn drop(&mut self) {
        let _ = kill(self.0, Signal::SIGKILL);
    }
}

#[test]
fn a_daemon_listens_when_its_starter_returns() {
    let folder = open_folder();
    let (socket, pid_file) = (folder.path().join("socket"), folder.path().join("pid"));
    let (socket, pid_file) = (socket.to_str().unwrap(), pid_file.to_str().unwrap());
    let flags = ["serve", "-d", "-s", socket, "-P", pid_file, "--admin", "off"];
    let screen = printed(moneta(&flags).stderr(Stdio::null()));
    assert!(screen.contains(socket), "the starter shows the first screen: {screen}");
    let pid = fs::read_to_string(pid_file).expect("the number is there when the starter returns");
    let pid = pid.trim().parse().map(Pid::from_raw).expect("it is a number");
    let _stray = Stray(pid);
    assert_eq!(exchange(common::connect_unix(socket).expect("it listens"), "mn\r\n"), "MN\r\n");
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // Behind the name in brackets: state, parent, process group, session.
    let session = stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(3)).expect("it has a session");
    assert_eq!(session, pid.to_string(), "it leads a session");
    kill(pid, Signal::SIGTERM).expect("it runs");
    until("its file is removed at its end", || !fs::exists(pid_file).unwrap());
}

#[test]
fn a_daemon_that_cannot_start_says_so_by_its_starters_status() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = output(&mut moneta(&["serve", "-d", "-p", &port, "--admin", "off"]));
    assert_eq!(ended.status.code(), Some(1));
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("is another server running? --port"), "{said}");
}

#[test]
fn a_batch_port_that_is_taken_is_named_by_its_option() {
    let taken = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let ended = output(&mut moneta(&["serve", "-p", "0", "--batch-port", &port, "--admin", "off"]));
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert!(said.contains("is another server running? --batch-port takes another"), "{said}");
}

#[test]
fn every_subcommand_tells_its_version_and_what_it_does() {
    assert!(printed(&mut moneta(&["serve", "-V"])).contains(env!("CARGO_PKG_VERSION")));
    let help = printed(&mut moneta(&["--help"]));
    let verify = help.lines().find(|line| line.trim_start().starts_with("verify")).expect("it is listed");
    assert!(verify.contains("Compare two servers"), "{verify}");
}
