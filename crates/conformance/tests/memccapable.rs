//! libmemcached's `memccapable` knows what clients rely on; every one of its tests must pass.

use anyhow::{Context, Result, ensure};
use moneta_conformance::options::{CLIENT, Kind, Options, TlsFiles};
use moneta_conformance::proxied::Proxied;
use moneta_conformance::server::Server;
use moneta_conformance::stacks::Stack;
use moneta_conformance::tunnel;
use moneta_net::Endpoint;
use std::process::Command;

/// `-a` runs this many text tests, `-b` this many binary ones; fewer would mean that its output was not understood.
const TEXT_TESTS: usize = 27;
const BINARY_TESTS: usize = 27;
/// How often a test that failed is tried again.
const ATTEMPTS: usize = 3;

/// Runs `memccapable`, all tests of a protocol or one, and returns its lines, one a test.
fn run(port: u16, protocol: &str, only: Option<&str>) -> Result<Vec<String>> {
    let output = Command::new("memccapable")
        .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-t", "30", protocol])
        .args(only.into_iter().flat_map(|name| ["-T", name]))
        .output()
        .context("cannot run memccapable; it is in Debian's package libmemcached-tools")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text).into_owned();
    print!("{text}");
    Ok(text
        .lines()
        .filter(|line| line.contains("[pass]") || line.contains("[FAIL]") || line.contains("[fail]"))
        .map(str::to_owned)
        .collect())
}

fn passed(line: &str) -> bool {
    line.contains("[pass]")
}

fn every_test_passes(server: &Server, protocol: &str, least: usize) -> Result<()> {
    every_test_passes_at(server.address().port().expect("started on TCP"), protocol, least)
}

fn every_test_passes_at(port: u16, protocol: &str, least: usize) -> Result<()> {
    let lines = run(port, protocol, None)?;
    for failed in lines.iter().filter(|line| !passed(line)) {
        // Some store items for seconds and read them soon after: a test that was held up there may pass by itself.
        let name = failed.split('[').next().unwrap_or_default().trim();
        let passes = (0..ATTEMPTS)
            .any(|_| run(port, protocol, Some(name)).is_ok_and(|again| matches!(&again[..], [line] if passed(line))));
        ensure!(passes, "memccapable {protocol}, {ATTEMPTS} times more: {failed}");
    }
    ensure!(lines.len() >= least, "memccapable {protocol} ran only {} tests: {lines:#?}", lines.len());
    Ok(())
}

#[test]
fn every_text_test_passes() -> Result<()> {
    every_test_passes(&Server::start_subject(&Options::default())?, "-a", TEXT_TESTS)
}

#[test]
fn every_binary_test_passes() -> Result<()> {
    every_test_passes(&Server::start_subject(&Options::default())?, "-b", BINARY_TESTS)
}

#[test]
fn memcached_itself_passes_so_the_reading_of_the_output_is_right() -> Result<()> {
    let server = Server::start(Kind::Memcached, &Options::default())?;
    every_test_passes(&server, "-a", TEXT_TESTS)?;
    every_test_passes(&server, "-b", BINARY_TESTS)
}

#[test]
fn every_test_passes_on_a_proxy_over_three_nodes() -> Result<()> {
    let proxied = Proxied::start(Kind::Moneta, &Options::default())?;
    every_test_passes(&proxied.server, "-a", TEXT_TESTS)?;
    every_test_passes(&proxied.server, "-b", BINARY_TESTS)
}

/// It knows no TLS, so a tunnel speaks it for it, and is a user by its certificate.
#[test]
fn every_test_passes_over_tls_as_a_user() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let files = TlsFiles::write(folder.path())?;
    let users = folder.path().join("users.toml");
    let rights = r#"["read", "write", "flush", "list", "stats", "operate"]"#;
    std::fs::write(&users, format!("[[user]]\nname = \"client\"\ncertificates = [\"{CLIENT}\"]\nrights = {rights}\n"))?;
    let (authority, known) = (files.authority.clone(), files.known()?);
    let arguments = ["--tls-ca".into(), authority.into(), "--tls-clients".into(), "ask".into(), "--users".into()];
    let tiers = arguments.into_iter().chain([users.into()]).collect();
    let server = Server::start_subject(&Options { tls: Some(files), tiers, ..Options::default() })?;
    let through = |connector| {
        let endpoint = Endpoint { connector, ..Endpoint::new(server.address().clone()) };
        tunnel::open(endpoint).map(|address| address.port())
    };
    let port = through(known)?;
    every_test_passes_at(port, "-a", TEXT_TESTS)?;
    every_test_passes_at(port, "-b", BINARY_TESTS)?;
    // A stranger passes none of those that store something.
    let stranger = through(server.connector().clone())?;
    ensure!(!passed(&run(stranger, "-a", Some("ascii set"))?.join("")), "a stranger may set");
    Ok(())
}

mod on {
    moneta_conformance::on_every_stack!(super::every_test_passes_on);
}

/// Most of it is waiting for items to expire, so the two protocols are tried at once, each on a separate node.
fn every_test_passes_on(stack: Stack) -> Result<()> {
    let try_on_a_node = |protocol, least| {
        let node = stack.start(&Options::default())?;
        every_test_passes(&node.server, protocol, least)
    };
    std::thread::scope(|scope| {
        let text = scope.spawn(|| try_on_a_node("-a", TEXT_TESTS));
        let binary = try_on_a_node("-b", BINARY_TESTS);
        text.join().expect("it does not panic").and(binary)
    })
}
