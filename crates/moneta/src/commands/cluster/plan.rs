//! What a cluster for trying consists of: processes with their ports, kept in its folder.

use std::fs;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::path::Path;

use anyhow::{Context, bail, ensure};
use moneta_cluster::{Node, Replica, RingKind, Topology};
use moneta_net::Address;
use serde::{Deserialize, Serialize};

/// Where all its processes run.
pub const HOST: &str = "127.0.0.1";
const ZONES: [&str; 3] = ["a", "b", "c"];
const NODES_PER_ZONE: usize = 2;
/// Ports that a plan has: one to serve on and one for admin, for each node and each zone's proxy.
/// The last one is the control plane's.
pub const PORTS: usize = 2 * ZONES.len() * (NODES_PER_ZONE + 1) + 1;
const FILE: &str = "plan.toml";
/// The name of the control plane, and of its files.
pub const CONTROL: &str = "control";
/// The app whose topology that has.
pub const APP: &str = "default";
/// The topology that proxies read.
pub const TOPOLOGY: &str = "topology.toml";

#[derive(Serialize, Deserialize)]
pub struct Plan {
    /// Whether all connections are protected by TLS; a plan of an older build does not say.
    #[serde(default)]
    pub tls: bool,
    /// Whether clients have to be users; an older build made plans with TLS and without users.
    #[serde(default)]
    pub users: bool,
    /// The port of the control plane; a plan of an older build has none, and its processes read files.
    #[serde(default)]
    pub control: Option<u16>,
    /// The number of its region.
    #[serde(default)]
    pub region: u8,
    pub sizes: Sizes,
    /// Nodes, then proxies.
    pub processes: Vec<Process>,
}

#[derive(Serialize, Deserialize)]
pub struct Sizes {
    /// Of each node's RAM.
    pub memory: String,
    /// Of each node's SSD tier.
    pub flash: String,
}

#[derive(Serialize, Deserialize)]
pub struct Process {
    /// `a0` or `proxy-a`: its slot, and the name of its files.
    pub name: String,
    pub zone: String,
    pub proxy: bool,
    /// Part of the versions that it makes; no other process has it.
    pub writer: u8,
    pub port: u16,
    pub admin: u16,
}

impl Process {
    pub fn address(&self) -> String {
        format!("{HOST}:{}", self.port)
    }

    pub fn admin_address(&self) -> String {
        format!("{HOST}:{}", self.admin)
    }
}

impl Plan {
    /// A plan on ports from `first` on. Fails if one of them is taken.
    pub fn from(first: u16, sizes: Sizes) -> anyhow::Result<Self> {
        Self::on(&ports(first)?, sizes)
    }

    /// A plan on these ports, [`PORTS`] of them.
    pub fn on(ports: &[u16], sizes: Sizes) -> anyhow::Result<Self> {
        ensure!(ports.len() == PORTS, "{} ports for {PORTS} listeners", ports.len());
        let nodes =
            ZONES.iter().flat_map(|zone| (0..NODES_PER_ZONE).map(move |node| (*zone, format!("{zone}{node}"), false)));
        let proxies = ZONES.iter().map(|zone| (*zone, format!("proxy-{zone}"), true));
        let named: Vec<_> = nodes.chain(proxies).collect();
        let (control, ports) = ports.split_last().context("there are ports")?;
        let (serving, admin) = ports.split_at(named.len());
        let processes = (0u8..).zip(named).zip(serving.iter().zip(admin)).map(
            |((writer, (zone, name, proxy)), (&port, &admin))| Process {
                name,
                zone: zone.to_owned(),
                proxy,
                writer,
                port,
                admin,
            },
        );
        Ok(Self { tls: false, users: false, control: Some(*control), region: 0, sizes, processes: processes.collect() })
    }

    /// The plan in `dir`; `None`: there is none yet.
    pub fn load(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map(Some).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// The name of its region at its control plane.
    pub fn region_name(&self) -> String {
        format!("region-{}", self.region)
    }

    /// The zones of its processes.
    pub fn zones(&self) -> Vec<&str> {
        let mut zones: Vec<&str> = self.processes.iter().map(|process| process.zone.as_str()).collect();
        zones.dedup();
        zones.sort_unstable();
        zones.dedup();
        zones
    }

    /// Writes the plan, and the topology before it: a folder with a plan has both.
    pub fn store(&self, dir: &Path) -> anyhow::Result<()> {
        for (name, text) in [(TOPOLOGY, self.topology().to_toml()), (FILE, toml::to_string(self)?)] {
            let (new, path) = (dir.join(format!("{name}.new")), dir.join(name));
            fs::write(&new, text).and_then(|()| fs::rename(&new, &path)).with_context(|| path.display().to_string())?;
        }
        Ok(())
    }

    fn topology(&self) -> Topology {
        let node = |process: &Process| Node {
            slot: process.name.clone(),
            address: Address::tcp(HOST, process.port),
            admin: Some(Address::tcp(HOST, process.admin)),
            weight: 1,
        };
        let replica = |zone: &&str| Replica {
            name: (*zone).to_owned(),
            zone: (*zone).to_owned(),
            write_only: false,
            nodes: self.processes.iter().filter(|process| !process.proxy && process.zone == **zone).map(node).collect(),
        };
        Topology { epoch: 1, ring: RingKind::Slots, replicas: ZONES.iter().map(replica).collect() }
    }
}

/// Ports in a row from `first` on.
fn ports(first: u16) -> anyhow::Result<Vec<u16>> {
    let Some(last) = first.checked_add(PORTS as u16 - 1) else { bail!("there are no {PORTS} ports from {first} on") };
    for port in first..=last {
        TcpListener::bind(("127.0.0.1", port))
            .with_context(|| format!("port {port} is taken; give another first port by --port, or 0 for any"))?;
    }
    Ok((first..=last).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_of_an_older_build_has_no_control_plane() {
        let text = "[sizes]\nmemory = \"64m\"\nflash = \"256m\"\n[[processes]]\nname = \"a0\"\nzone = \"a\"\nproxy = false\nwriter = 0\nport = 1\nadmin = 2\n";
        let plan: Plan = toml::from_str(text).unwrap();
        assert_eq!((plan.control, plan.zones()), (None, vec!["a"]));
        let sizes = Sizes { memory: "64m".into(), flash: "256m".into() };
        let ports: Vec<u16> = (1..=PORTS as u16).collect();
        let plan = Plan::on(&ports, sizes).unwrap();
        assert_eq!((plan.control, plan.zones()), (Some(PORTS as u16), vec!["a", "b", "c"]));
        let read: Plan = toml::from_str(&toml::to_string(&plan).unwrap()).unwrap();
        assert_eq!(read.control, plan.control);
    }
}
