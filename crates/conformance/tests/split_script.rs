//! `deploy/split/run.sh` starts the three processes for a try, and ends them; nothing of them is left.

use std::net::TcpListener;
use std::process::{Command, Output};

use anyhow::{Result, ensure};
use moneta_conformance::client::{Address, Client};
use moneta_testkit::process;
use tempfile::TempDir;

/// Four different ones.
fn free_ports() -> Result<[u16; 4]> {
    let mut listeners = Vec::new();
    for _ in 0..4 {
        listeners.push(TcpListener::bind(("127.0.0.1", 0))?);
    }
    let mut ports = [0; 4];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}

/// The processes that the script started in its folder; they end with this value.
struct Script {
    folder: TempDir,
    ports: [u16; 4],
}

impl Script {
    fn run(&self, verb: &str) -> Result<Output> {
        let names = ["SPLIT_PORT", "SPLIT_BATCH_PORT", "SPLIT_ADMIN_PORT", "SPLIT_L2_ADMIN_PORT"];
        let output = Command::new("../../deploy/split/run.sh")
            .arg(verb)
            .env("SPLIT_DIR", self.folder.path())
            .envs(names.into_iter().zip(self.ports.map(|port| port.to_string())))
            .env("SPLIT_L2_SIZE", "256m")
            .env("MONETA_BIN", process::moneta_program()?)
            .env("MEMCACHED_BIN", process::memcached_program())
            .output()?;
        print!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        Ok(output)
    }

    fn connect(&self, port: u16) -> Result<Client> {
        Client::connect(&Address::tcp("127.0.0.1", port))
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        let _ = self.run("stop");
    }
}

#[test]
fn the_script_starts_three_processes_and_ends_them() -> Result<()> {
    let ports = free_ports()?;
    let script = Script { folder: tempfile::tempdir()?, ports };
    ensure!(!script.run("status")?.status.success(), "nothing runs before");
    ensure!(script.run("start")?.status.success());
    ensure!(script.run("status")?.status.success());
    ensure!(script.connect(ports[1])?.set("key", b"value")? == "STORED");
    ensure!(script.connect(ports[0])?.get("key")?.as_deref() == Some(b"value".as_slice()));

    ensure!(script.run("stop")?.status.success());
    ensure!(!script.run("status")?.status.success(), "nothing runs afterwards");
    ensure!(script.connect(ports[0]).is_err());

    ensure!(script.run("start")?.status.success());
    ensure!(script.connect(ports[0])?.get("key")?.as_deref() == Some(b"value".as_slice()), "items outlive it");
    Ok(())
}
