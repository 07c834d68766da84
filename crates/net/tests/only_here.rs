//! Guards against a connection that is opened, read or written past this crate: it would stay plain when all others are
//! protected, and nothing would say so.

use std::fs;
use std::path::{Path, PathBuf};

/// What only this crate names, outside of tests: calls by their path, and traits and crates whose only use is to connect.
const NAMES: [&str; 10] = [
    "TcpStream::connect",
    "UnixStream::connect",
    "TcpSocket::new",
    "ToSocketAddrs",
    "to_socket_addrs",
    "mio::net::TcpStream",
    "mio::net::UnixStream",
    "socket2::",
    "ureq::",
    "rustls",
];
/// Of `rustix::net`.
const CALLS: [&str; 12] = [
    "accept",
    "accept_with",
    "acceptfrom",
    "acceptfrom_with",
    "connect",
    "recv",
    "recvfrom",
    "recvmsg",
    "send",
    "sendmsg",
    "sendto",
    "shutdown",
];
/// What is never shipped and plays clients: those that misbehave, and fleets of thousands.
const TOOLS: [&str; 2] = ["campaigns", "testkit"];

/// The names that a text takes from `rustix::net`, by `use` or by path.
fn of_rustix(text: &str) -> Vec<&str> {
    let uses = text.split("rustix::net::").skip(1);
    uses.flat_map(|rest| match rest.strip_prefix('{') {
        Some(list) => list.split('}').next().unwrap_or_default().split(',').map(str::trim).collect(),
        None => vec![rest.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or_default()],
    })
    .collect()
}

/// What a text names that only this crate may.
fn forbidden(text: &str) -> Vec<&str> {
    let shipped = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let names = NAMES.into_iter().filter(|name| shipped.contains(name));
    names.chain(of_rustix(shipped).into_iter().filter(|name| CALLS.contains(name))).collect()
}

fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_test = path.file_stem().is_some_and(|name| name == "tests" || name == "testing");
        if path.is_dir() && !is_test {
            sources(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_test {
            found.push(path);
        }
    }
}

#[test]
fn no_other_crate_connects_receives_or_sends() {
    let crates = Path::new("..");
    let (mut files, mut found) = (Vec::new(), Vec::new());
    for entry in fs::read_dir(crates).expect("it is there").flatten() {
        let name = entry.file_name();
        if name != "net" && !TOOLS.iter().any(|tool| name == *tool) {
            sources(&entry.path().join("src"), &mut files);
        }
    }
    assert!(files.len() > 300, "the sources are elsewhere: {} files", files.len());
    for path in files {
        let text = fs::read_to_string(&path).expect("it is text");
        let names = forbidden(&text);
        if !names.is_empty() {
            found.push(format!("{}: {}", path.display(), names.join(", ")));
        }
    }
    assert!(found.is_empty(), "take `moneta_net` for this:\n{}", found.join("\n"));
}

/// TLS has one home, so that a change of the library's interface is a change of one crate. `certificates` makes keys, no
/// connections.
#[test]
fn no_other_crate_depends_on_the_library_for_tls() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it lies among the others");
    let depends = |text: &str| text.lines().any(|line| line.split(['=', '.']).next().is_some_and(is_of_tls));
    let mut found: Vec<_> = fs::read_dir(crates)
        .expect("it is there")
        .flatten()
        .filter(|entry| fs::read_to_string(entry.path().join("Cargo.toml")).is_ok_and(|text| depends(&text)))
        .map(|entry| entry.file_name())
        .collect();
    found.sort();
    assert_eq!(found, ["net"]);
    assert!(depends("tokio-rustls = \"0.26\"") && depends("rustls.workspace = true") && !depends("ureq = \"3\""));
}

/// Whether a crate's name is of rustls, or of what stands on it.
fn is_of_tls(name: &str) -> bool {
    let name = name.trim().trim_matches('"');
    name == "rustls" || name.starts_with("rustls-") || name.ends_with("-rustls")
}

#[test]
fn what_is_forbidden_is_seen_however_it_is_written() {
    assert_eq!(forbidden("use rustix::net::{\n    AddressFamily, connect, socket_with, sockopt,\n};"), ["connect"]);
    assert_eq!(forbidden("let _ = rustix::net::send(&socket, bytes, flags);"), ["send"]);
    assert_eq!(forbidden("use rustix::net::{SendFlags, getsockname};"), [""; 0]);
    assert_eq!(forbidden("let stream = std::net::TcpStream::connect(address)?;"), ["TcpStream::connect"]);
    assert_eq!(forbidden("let config: Arc<rustls::ClientConfig> = config;"), ["rustls"]);
    assert_eq!(forbidden("fn f() {}\n#[cfg(test)]\nmod tests {\n    UnixStream::connect(path)"), [""; 0]);
}
