//! Storage commands with a malformed line, to a real node and through a real proxy: the answers of memcached 1.6.45, a connection
//! that stays in step, and no value that is run as a command.

#[path = "../../protocol/tests/refused_storage/mod.rs"]
mod refused_storage;

use anyhow::{Context, Result, ensure};
use moneta_conformance::options::{Kind, Options};
use moneta_conformance::proxied::Proxied;
use moneta_conformance::server::{Server, subject_kind};
use refused_storage::{BLOCK, Case, TAKEN, Then, cases};

/// A block that no buffer holds: skipped, it takes no memory.
const LARGE: usize = 64 << 20;

#[test]
fn a_node_skips_what_it_refuses() -> Result<()> {
    if subject_kind()? == Kind::Memcached {
        return Ok(());
    }
    skips_what_it_refuses(&Server::start_subject(&Options::default())?)
}

#[test]
fn a_proxy_skips_what_it_refuses() -> Result<()> {
    skips_what_it_refuses(&Proxied::start(Kind::Moneta, &Options::default())?.server)
}

fn skips_what_it_refuses(server: &Server) -> Result<()> {
    let mut keeper = server.connect()?;
    ensure!(keeper.ask("set held 0 0 1\r\nx\r\n")? == "STORED");
    for case in cases() {
        refused(server, &case).with_context(|| format!("{:?}", case.sent))?;
        let held = keeper.ask_until("get held\r\n", "END")?;
        ensure!(held == ["VALUE held 0 1", "x", "END"], "{:?} was run: {held:?}", case.sent);
    }
    for (line, answer) in TAKEN {
        let mut client = server.connect()?;
        ensure!(client.ask_until("delete k noreply\r\nmn\r\n", "MN")? == ["MN"]);
        let mut lines = client.ask_until(&format!("{line}\r\n{BLOCK}\r\nmn\r\n"), "MN")?;
        lines.pop();
        ensure!(lines.concat() == *answer, "{line:?} was answered by {lines:?}");
    }
    large_blocks_are_skipped(server)
}

fn refused(server: &Server, case: &Case) -> Result<()> {
    let mut client = server.connect()?;
    client.send(format!("{}mn\r\n", case.sent).as_bytes())?;
    let mut lines = match case.then {
        Then::InStep => client.lines_until("MN")?,
        Then::Closes => String::from_utf8(client.until_closed()?)?.lines().map(str::to_owned).collect(),
    };
    if case.then == Then::InStep {
        lines.pop();
    }
    ensure!(lines.concat() == case.answer && lines.len() <= 1, "was answered by {lines:?}");
    Ok(())
}

fn large_blocks_are_skipped(server: &Server) -> Result<()> {
    let before = resident(server)?;
    for line in ["set k -1 0", "set k 0 1.5", "add k x 0"] {
        let mut client = server.connect()?;
        client.send(format!("{line} {LARGE} noreply\r\n").as_bytes())?;
        let piece = vec![b'x'; 1 << 20];
        for _ in 0..LARGE / piece.len() {
            client.send(&piece)?;
        }
        ensure!(client.ask("\r\nmn\r\n")? == "MN", "{line}");
    }
    let grown = resident(server)?.saturating_sub(before);
    ensure!(grown < LARGE / 4, "{grown} bytes more are resident after blocks of {LARGE}");
    Ok(())
}

/// Bytes of the process that are in memory.
fn resident(server: &Server) -> Result<usize> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse::<usize>()? << 10)
}
