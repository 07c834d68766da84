//! Any bytes on any connection: an error or a close for that client, nothing else.
//!
//! Guards against a server that dies, loses step or keeps memory because of what one client sent.

use anyhow::{Result, ensure};
use moneta_conformance::client::Client;
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::server::Server;
use std::time::{Duration, Instant};

const GARBAGE_CONNECTIONS: usize = 400;
const GARBAGE_BYTES: usize = 5_000;

fn start(options: &Options) -> Result<Server> {
    Server::start_subject(options)
}

/// Random bytes, with the words and the magic byte that lead deeper into a parser.
fn garbage(rng: &mut fastrand::Rng) -> Vec<u8> {
    let words: [&[u8]; 12] = [
        b"get ",
        b"set k 0 0 5\r\n",
        b"ms k 5 ",
        b"\r\n",
        b"\n",
        b"\0",
        b" noreply",
        b"mg k v ",
        b"incr k ",
        b"\x80\x01",
        b"-1",
        b"99999999999",
    ];
    let mut bytes = if rng.bool() { vec![0x80] } else { Vec::new() };
    while bytes.len() < GARBAGE_BYTES && rng.u32(..200) != 0 {
        match rng.u32(..4) {
            0 => bytes.extend_from_slice(words[rng.usize(..words.len())]),
            1 => bytes.extend_from_slice(&[0; 8]),
            _ => bytes.extend((0..rng.usize(1..20)).map(|_| rng.u8(..))),
        }
    }
    bytes
}

#[test]
fn garbage_disturbs_no_other_connection() -> Result<()> {
    let mut server = start(&Options::default())?;
    let mut healthy = server.connect()?;
    let seed = moneta_conformance::seed();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut open = Vec::new();
    for number in 0..GARBAGE_CONNECTIONS {
        let mut client = server.connect()?;
        // The server may close, and reset, while this is being written.
        let _ = client.send(&garbage(&mut rng));
        open.push(client);
        let (key, value) = (format!("healthy{number}"), number.to_string());
        let stored = healthy.set(&key, value.as_bytes())?;
        ensure!(stored == "STORED", "seed {seed}: after {number} connections of garbage: {stored}");
        ensure!(
            healthy.get(&key)?.as_deref() == Some(value.as_bytes()),
            "seed {seed}: after {number} connections of garbage"
        );
    }
    drop(open);
    ensure!(server.is_running()?, "seed {seed}: the server is gone");
    ensure!(server.connect()?.set("k", b"v")? == "STORED", "seed {seed}: no new connection is served");
    Ok(())
}

#[test]
fn a_client_that_sends_a_byte_at_a_time_is_served() -> Result<()> {
    let server = start(&Options::default())?;
    let mut client = server.connect()?;
    for byte in b"set slow 5 0 10\r\n0123456789\r\nget slow\r\nmg slow v f\r\n" {
        client.send(&[*byte])?;
    }
    let lines = client.lines_until("VA 10 f5")?;
    ensure!(lines == ["STORED", "VALUE slow 5 10", "0123456789", "END", "VA 10 f5"], "{lines:?}");
    ensure!(client.line()? == "0123456789");
    Ok(())
}

#[test]
fn a_value_over_the_limit_is_refused_and_the_stream_stays_in_step() -> Result<()> {
    let server = start(&Options { item_kibibytes: Some(512), ..Options::default() })?;
    let mut client = server.connect()?;
    let large = vec![b'x'; 600 * 1024];
    ensure!(client.set("k", b"old")? == "STORED");
    ensure!(client.set("k", &large)? == "SERVER_ERROR object too large for cache");
    ensure!(client.get("k")?.is_none(), "a refused set drops the old value");
    ensure!(client.set("k", b"new")? == "STORED", "the stream is out of step");
    client.send(&[format!("ms k {} q\r\n", large.len()).as_bytes(), &large, b"\r\nmn\r\n"].concat())?;
    let lines = client.lines_until("MN")?;
    ensure!(lines == ["SERVER_ERROR object too large for cache", "MN"], "{lines:?}");
    Ok(())
}

#[test]
fn a_value_of_the_largest_default_size_is_stored() -> Result<()> {
    let server = start(&Options::default())?;
    let mut client = server.connect()?;
    let large: Vec<u8> = (0..1_000_000_u32).map(|number| number as u8).collect();
    ensure!(client.set("large", &large)? == "STORED");
    ensure!(client.get("large")? == Some(large));
    Ok(())
}

#[test]
fn a_long_line_without_an_end_closes_the_connection() -> Result<()> {
    let server = start(&Options::default())?;
    let mut client = server.connect()?;
    client.send(&[b'x'; 4096])?;
    ensure!(!client.until_closed()?.starts_with(b"VALUE"));
    Ok(())
}

#[test]
fn a_get_line_may_be_of_any_length() -> Result<()> {
    const KEYS: usize = 10_000;
    let server = start(&Options::default())?;
    let mut client = server.connect()?;
    for number in (0..KEYS).step_by(100) {
        ensure!(client.set(&format!("key-{number}"), number.to_string().as_bytes())? == "STORED");
    }
    let keys: Vec<String> = (0..KEYS).map(|number| format!("key-{number}")).collect();
    let lines = client.ask_until(&format!("get {}\r\n", keys.join(" ")), "END")?;
    ensure!(lines.len() == 2 * KEYS / 100 + 1, "{} lines", lines.len());
    ensure!(lines[2] == "VALUE key-100 0 3" && lines[3] == "100", "{:?}", &lines[..4]);
    Ok(())
}

#[test]
fn wrong_magic_closes_a_binary_connection() -> Result<()> {
    let server = start(&Options::default())?;
    let mut client = server.connect()?;
    let noop = moneta_conformance::binary::Request::new(moneta_conformance::binary::opcode::NOOP, b"", b"", b"");
    ensure!(moneta_conformance::binary::ask(&mut client, &noop)?.status == 0);
    client.send(&[0x42; 24])?;
    client.until_closed()?;
    Ok(())
}

#[test]
fn a_full_server_that_may_not_evict_says_so() -> Result<()> {
    let server = start(&Options { memory_mebibytes: Some(8), refuse_when_full: true, ..Options::default() })?;
    let mut client = server.connect()?;
    let value = vec![b'x'; 10_000];
    for number in 0..4_000 {
        let reply = client.set(&format!("key{number}"), &value)?;
        if reply != "STORED" {
            ensure!(reply == "SERVER_ERROR out of memory storing object", "{reply}");
            ensure!(client.get("key0")?.as_ref() == Some(&value), "something was evicted");
            return Ok(());
        }
    }
    anyhow::bail!("40 MB fit into 8 MiB")
}

#[test]
fn memory_may_be_changed_while_running() -> Result<()> {
    let server = start(&Options { memory_mebibytes: Some(64), ..Options::default() })?;
    let mut client = server.connect()?;
    ensure!(client.ask("cache_memlimit 128\r\n")? == "OK");
    ensure!(client.stat("limit_maxbytes")? == 128 << 20);
    Ok(())
}

#[test]
fn verbosity_answers_ok() -> Result<()> {
    let server = start(&Options::default())?;
    ensure!(server.connect()?.ask("verbosity 1\r\n")? == "OK");
    Ok(())
}

#[test]
fn a_delayed_flush_takes_what_was_stored_before_it() -> Result<()> {
    let server = start(&Options::default())?;
    let mut client = server.connect()?;
    loop {
        client.set("before", b"1")?;
        let asked = Instant::now();
        ensure!(client.ask("flush_all 3\r\n")? == "OK");
        if client.get("before")?.is_some() {
            break;
        }
        // A machine that was held up in between may have let the delay pass: it is asked for anew.
        ensure!(asked.elapsed() > Duration::from_secs(1), "the delay was ignored");
    }
    poll_until_missing(&mut client, "before")?;
    ensure!(client.set("after", b"2")? == "STORED");
    if server.kind() == Kind::Moneta {
        ensure!(client.get("after")?.is_some(), "what was stored after the moment is not to be flushed");
    }
    Ok(())
}

#[test]
fn an_item_is_gone_once_its_time_has_passed() -> Result<()> {
    let server = start(&Options::default())?;
    let mut client = server.connect()?;
    ensure!(client.ask("set short 0 1 1\r\nx\r\n")? == "STORED");
    ensure!(client.ask("set long 0 1000 1\r\nx\r\n")? == "STORED");
    poll_until_missing(&mut client, "short")?;
    ensure!(client.get("long")?.is_some());
    Ok(())
}

/// Waits for a key to go, for about a minute at most.
fn poll_until_missing(client: &mut Client, key: &str) -> Result<()> {
    for _ in 0..600 {
        if client.get(key)?.is_none() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("{key} is still there")
}
