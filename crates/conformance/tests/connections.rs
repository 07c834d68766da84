//! Many, idle, slow and silent connections: what each costs, and that none slows another.

use anyhow::{Result, ensure};
use moneta_conformance::client::{Address, Client};
use moneta_conformance::open_files::allow_open_files;
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::server::Server;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const IDLE_CONNECTIONS: u64 = 10_000;
/// What an idle connection may cost in resident memory.
const IDLE_CONNECTION_BYTES: u64 = 4096;
const LARGE_VALUE: usize = 500_000;
const UNREAD_REQUESTS: usize = 4_000;
/// A client that does not read may cost this much: buffers in both directions, and the values its replies come from.
const UNREAD_BYTES: u64 = 32 << 20;

#[test]
fn ten_thousand_idle_connections_cost_at_most_four_kibibytes_each() -> Result<()> {
    allow_open_files(2 * IDLE_CONNECTIONS)?;
    let options = Options { max_connections: Some(IDLE_CONNECTIONS as u32 + 100), ..Options::default() };
    let server = Server::start_subject(&options)?;
    let mut client = server.connect()?;
    // Each has spoken before it idles, as those of a connection pool have.
    client.set("k", b"v")?;
    let before = server.resident_bytes()?;
    let mut idle = Vec::new();
    for _ in 0..IDLE_CONNECTIONS {
        let mut client = server.connect()?;
        ensure!(client.get("k")?.as_deref() == Some(b"v".as_slice()));
        idle.push(client);
    }
    let after = server.resident_bytes()?;
    let each = after.saturating_sub(before) / IDLE_CONNECTIONS;
    println!("{each} bytes each: resident memory went from {before} to {after}");
    ensure!(client.get("k")?.as_deref() == Some(b"v".as_slice()));
    ensure!(client.stat("curr_connections")? > IDLE_CONNECTIONS);
    if server.kind() == Kind::Moneta {
        ensure!(each <= IDLE_CONNECTION_BYTES, "an idle connection costs {each} bytes: from {before} to {after}");
    }
    for client in idle.iter_mut().step_by(997) {
        ensure!(client.get("k")?.as_deref() == Some(b"v".as_slice()), "an idle connection does not wake up");
    }
    Ok(())
}

#[test]
fn a_client_that_never_reads_is_held_at_a_bounded_buffer_while_others_are_served() -> Result<()> {
    // One thread, so that the slow client and the other one share it.
    let server = Server::start_subject(&Options { threads: Some(1), ..Options::default() })?;
    let mut other = server.connect()?;
    ensure!(other.set("large", &vec![b'x'; LARGE_VALUE])? == "STORED");
    ensure!(other.get("large")?.is_some());
    let before = server.resident_bytes()?;
    let mut slow = server.connect()?;
    let requests = b"get large\r\n".repeat(UNREAD_REQUESTS);
    slow.set_nonblocking(true)?;
    let mut sent = 0;
    let mut most = before;
    for number in 0..500 {
        if let Ok(count) = slow.write_some(&requests[sent..]) {
            sent += count;
        }
        let value = number.to_string();
        ensure!(other.set("small", value.as_bytes())? == "STORED");
        ensure!(other.get("small")?.as_deref() == Some(value.as_bytes()));
        most = most.max(server.resident_bytes()?);
    }
    println!(
        "resident memory went from {before} to at most {most} for {} MB asked for",
        UNREAD_REQUESTS * LARGE_VALUE / 1_000_000
    );
    ensure!(most - before <= UNREAD_BYTES, "one unread connection took the server from {before} to {most}");
    Ok(())
}

#[test]
fn a_client_that_reads_late_gets_every_reply() -> Result<()> {
    const REQUESTS: usize = 200;
    let server = Server::start_subject(&Options { threads: Some(1), ..Options::default() })?;
    let mut client = server.connect()?;
    let value = vec![b'x'; 100_000];
    ensure!(client.set("large", &value)? == "STORED");
    client.send(&b"get large\r\n".repeat(REQUESTS))?;
    std::thread::sleep(Duration::from_millis(300));
    for number in 0..REQUESTS {
        let head = client.line()?;
        ensure!(head == "VALUE large 0 100000", "reply {number} begins with {head}");
        ensure!(client.bytes(value.len())? == value, "reply {number} has another value");
        ensure!(client.bytes(7)? == b"\r\nEND\r\n", "reply {number} ends in another way");
    }
    Ok(())
}

#[test]
fn connections_over_the_limit_are_told_so_and_closed() -> Result<()> {
    const LIMIT: usize = 100;
    let server = Server::start_subject(&Options { max_connections: Some(LIMIT as u32), ..Options::default() })?;
    let mut open: Vec<Client> = Vec::new();
    let mut refused = None;
    for _ in 0..2 * LIMIT {
        let mut client = server.connect()?;
        client.send(b"mn\r\n")?;
        let reply = client.line()?;
        if reply != "MN" {
            refused = Some((client, reply));
            break;
        }
        open.push(client);
    }
    let (mut client, reply) =
        refused.ok_or_else(|| anyhow::anyhow!("{} connections are open over a limit of {LIMIT}", open.len()))?;
    ensure!(reply == "ERROR Too many open connections", "{reply}");
    client.until_closed()?;
    ensure!(open.len() >= LIMIT / 2, "only {} connections were let in", open.len());
    ensure!(open[0].ask("mn\r\n")? == "MN", "those that are in stay in");
    drop(open);
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(60) {
        let mut client = server.connect()?;
        // A refused client may be reset before its request is written.
        if client.ask("mn\r\n").is_ok_and(|reply| reply == "MN") {
            return Ok(());
        }
    }
    anyhow::bail!("no connection is let in after others have left")
}

#[test]
fn a_silent_connection_is_closed_and_a_talking_one_is_not() -> Result<()> {
    let server = Server::start_subject(&Options { idle_timeout_seconds: Some(2), ..Options::default() })?;
    let (mut silent, mut talking) = (server.connect()?, server.connect()?);
    ensure!(silent.ask("mn\r\n")? == "MN");
    silent.set_read_limit(Duration::from_millis(200));
    let start = Instant::now();
    let mut spoke = Instant::now();
    loop {
        let pause = spoke.elapsed();
        spoke = Instant::now();
        if !talking.ask("mn\r\n").is_ok_and(|reply| reply == "MN") {
            // A busy machine may have held this thread up for so long that the connection was silent, too.
            ensure!(pause + spoke.elapsed() > Duration::from_secs(1), "a talking connection was closed");
            talking = server.connect()?;
        }
        match silent.read_some(&mut [0; 1]) {
            Ok(0) => return Ok(()),
            Ok(_) => anyhow::bail!("the server spoke to a silent client"),
            Err(_) => ensure!(start.elapsed() < Duration::from_secs(60), "a silent connection is still open"),
        }
    }
}

#[test]
fn a_unix_socket_serves_with_the_mode_asked_for() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("socket");
    let server =
        Server::start_subject(&Options { unix_socket: Some((path.clone(), "0700".into())), ..Options::default() })?;
    ensure!(server.address() == &Address::Unix(path.clone()));
    let mut client = server.connect()?;
    ensure!(client.set("k", b"v")? == "STORED");
    ensure!(client.get("k")?.as_deref() == Some(b"v".as_slice()));
    let mode = std::fs::metadata(&path)?.permissions().mode() & 0o777;
    ensure!(mode == 0o700, "the socket has mode {mode:o}");
    Ok(())
}
