//! Guards what a supervisor is told, and that what the node writes is its user's alone.

mod common;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use common::{Node, file, moneta, refused};
use nix::sys::signal::Signal;

/// Receives until a message has a line `wanted`; returns all lines.
fn told(socket: &UnixDatagram, wanted: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    while !lines.iter().any(|line| line == wanted) {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap_or_else(|error| panic!("{error} before {wanted}: {lines:?}"));
        lines.extend(String::from_utf8_lossy(&bytes[..length]).lines().map(String::from));
    }
    lines
}

#[test]
fn a_supervisor_is_told_of_start_service_and_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).expect("a socket");
    socket.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    let mut command = moneta(&["serve", "-p", "0", "--admin", "off"]);
    let mut node = Node::run(command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "4000000"));
    told(&socket, "READY=1");
    // Each is a look at workers that have nothing to do, and turn all the same.
    for _ in 0..3 {
        told(&socket, "WATCHDOG=1");
    }
    node.signal(Signal::SIGTERM);
    told(&socket, "STOPPING=1");
    assert!(node.wait().success());
}

#[test]
fn files_of_the_node_are_its_users_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let place = folder.path().join("tier");
    std::fs::create_dir(&place).expect("a folder");
    let device = format!("{}:24m", place.display());
    let socket = folder.path().join("socket");
    let arguments = ["--flash", &device, "--flash-region-size", "256k", "-I", "64k", "-m", "8"];
    let listen = ["-s", socket.to_str().expect("plain"), "-a", "666", "-l", "127.0.0.1"];
    let mut node = Node::start(&[&arguments[..], &listen[..]].concat());
    let mode = |path: &std::path::Path| std::fs::metadata(path).expect("it is there").mode() & 0o777;
    assert_eq!(mode(&socket), 0o666, "a socket has the mode it was given");
    node.signal(Signal::SIGTERM);
    assert!(node.wait().success());
    let files: Vec<_> = std::fs::read_dir(&place).expect("it can be read").map(|entry| entry.unwrap().path()).collect();
    assert!(files.len() >= 2, "the file and its snapshot: {files:?}");
    for path in files {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
    }
}

#[test]
fn users_that_others_could_write_are_refused_and_passwords_that_all_can_read_are_warned_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let users = file(folder.path(), "users", "ann:secret\n");
    let set_mode = |mode| std::fs::set_permissions(&users, std::fs::Permissions::from_mode(mode)).expect("it is ours");
    for open in [0o602, 0o620] {
        set_mode(open);
        let said = refused(&mut moneta(&["serve", "-p", "0", "--admin", "off", "-Y", &users]), 1);
        assert!(said.contains("auth_file") && said.contains("chmod 600"), "{said}");
    }
    for (mode, warns) in [(0o600, false), (0o640, false), (0o644, true)] {
        set_mode(mode);
        let mut node = Node::start(&["-Y", &users]);
        node.signal(Signal::SIGTERM);
        assert!(node.wait().success());
        assert_eq!(node.log().contains("everybody can read the passwords"), warns, "{mode:o}: {}", node.log());
    }
}
