//! A node under every attack that a client can make, all at once: its memory keeps to the sum that docs/operating.md states, and
//! a client that behaves is answered all the while. The silent failure is a node that the system kills.
//!
//! `campaigns hostile` is the same campaign for a machine with nothing else to do; there latencies are judged, here they are
//! only printed.

use anyhow::{Result, ensure};
use moneta_bench::process::Process;
use moneta_campaigns::hostile::{Plan, Report, run};
use moneta_conformance::server::Server;
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

const MIB: u64 = 1024 * 1024;
const CONNECTIONS: usize = 100;
const WORKERS: u64 = 2;
const MEMORY: u64 = 64;
const CLIENT_MEMORY: u64 = 64;
const FLASH_REGION: u64 = 4;

/// What the node may grow by over what it has with all items stored, in MiB: what is held for clients; for each worker what it
/// works on; 4 KiB a connection. The index of the SSD tier and `-m` are in what it grew from; what is not yet may come.
fn growth_max() -> u64 {
    let worker = 1 + 3;
    let flash_buffers = 8 * FLASH_REGION;
    CLIENT_MEMORY + WORKERS * worker + flash_buffers + 1
}

fn attack(login: Option<(String, String)>, arguments: &[OsString]) -> Result<Report> {
    let flash = tempfile::tempdir()?;
    let mut server = Server::start_moneta(|port| {
        let place = format!("{}:512m", flash.path().display());
        let (port, threads) = (port.to_string(), WORKERS.to_string());
        let (memory, client_memory) = (format!("{MEMORY}m"), format!("{CLIENT_MEMORY}m"));
        let region = format!("{FLASH_REGION}m");
        let words =
            ["serve", "-p", &port, "-t", &threads, "-m", &memory, "--client-memory", &client_memory, "--admin", "off"];
        let flash = ["--flash", &place, "--flash-region-size", &region, "--log-level", "error"];
        words.iter().chain(&flash).map(OsString::from).chain(arguments.iter().cloned()).collect()
    })?;
    let report = run(&Plan {
        address: server.address().clone(),
        process: Process::new(server.pid()),
        login,
        connections: CONNECTIONS,
        rate: 200.0,
        quiet: Duration::from_secs(2),
        attack: Duration::from_secs(20),
        rest: Duration::from_secs(4),
    })?;
    println!("{report:#?}\np99 under attack over p99 alone: {:.1}", report.slowdown());
    ensure!(server.is_running()?, "the node has ended");
    Ok(report)
}

fn holds(report: &Report) -> Result<()> {
    let grown = report.resident_most.saturating_sub(report.resident_before) / MIB;
    ensure!(grown <= growth_max(), "resident memory grew by {grown} MiB, more than {}", growth_max());
    let kept = report.resident_after.saturating_sub(report.resident_before) / MIB;
    ensure!(kept <= growth_max() / 2, "{kept} MiB are kept when all is over");
    ensure!(report.attacked.count > 0, "the good client was not answered");
    Ok(())
}

#[test]
fn the_memory_of_a_node_under_attack_keeps_to_its_sum() -> Result<()> {
    holds(&attack(None, &[])?)
}

#[test]
fn the_memory_of_a_node_whose_log_ins_are_attacked_keeps_to_its_sum() -> Result<()> {
    let mut users = tempfile::NamedTempFile::new()?;
    writeln!(users, "alice:wonderland")?;
    let arguments = ["-Y".into(), users.path().into()];
    holds(&attack(Some(("alice".into(), "wonderland".into())), &arguments)?)
}
