//! `moneta cluster roll`: restarts nodes one after the other, each only while all others are ready.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use moneta_cluster::Topology;

use super::plan::Plan;
use super::{admin, process};

/// How often a node is asked whether it is ready.
const POLL: Duration = Duration::from_millis(50);

#[derive(Debug, Args)]
pub struct RollArgs {
    /// Folder of a cluster that `moneta cluster up` has started
    #[arg(long, value_name = "DIR", default_value = "moneta-cluster", conflicts_with = "topology")]
    pub dir: PathBuf,
    /// Restart the nodes of this topology, which must have their admin addresses, by --run
    #[arg(long, value_name = "FILE", requires = "run")]
    topology: Option<PathBuf>,
    /// Shell command that restarts a node and returns once it was begun. It is given MONETA_NODE (the node's address), MONETA_HOST,
    /// MONETA_ADMIN, MONETA_ZONE, MONETA_REPLICA and MONETA_SLOT
    #[arg(long, value_name = "COMMAND", requires = "topology")]
    run: Option<String>,
    /// Admin address of a proxy: it must ask every node, and have no writes left for any, before the next one. May be given again
    #[arg(long = "proxy", value_name = "HOST:PORT", requires = "topology")]
    proxies: Vec<String>,
    /// How long a node may take to be ready again, and to hold again what it held
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    patience: u64,
    /// Go on though a node does not hold again what it held: what is in RAM alone is lost with each node
    #[arg(long)]
    lossy: bool,
}

/// A node holds again what it held if it has so many of a hundred items: some may have expired meanwhile.
const SHARE: u64 = 90;

/// A node to be restarted.
struct Member<'a> {
    name: String,
    admin: String,
    restart: Box<dyn Fn() -> anyhow::Result<()> + 'a>,
}

/// Restarts the nodes of a cluster for trying, by the folder that it is in.
///
/// # Errors
/// If a process is not ready before another one is restarted, does not end, or does not come back.
pub fn of_folder(args: &RollArgs, dir: &Path, plan: &Plan) -> anyhow::Result<()> {
    let nodes = plan.processes.iter().filter(|process| !process.proxy).map(|process| Member {
        name: process.name.clone(),
        admin: process.admin_address(),
        restart: Box::new(move || {
            if let Some(running) = process::pid(dir, process) {
                process::stop(dir, process, running)?;
            }
            process::start(dir, plan, process)
        }),
    });
    let proxies = plan.processes.iter().filter(|process| process.proxy).map(|process| process.admin_address());
    roll(&nodes.collect::<Vec<_>>(), &proxies.collect::<Vec<_>>(), args)
}

/// Restarts the nodes of a topology by a command. `None`: no topology was given.
///
/// # Errors
/// If the topology cannot be read or has no admin addresses, the command fails, or a node does not come back.
pub fn of_topology(args: &RollArgs) -> Option<anyhow::Result<()>> {
    let (path, run) = (args.topology.as_ref()?, args.run.as_ref()?);
    Some(restart_all(args, path, run))
}

fn restart_all(args: &RollArgs, path: &Path, run: &str) -> anyhow::Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
    let topology = Topology::from_toml(&text).with_context(|| path.display().to_string())?;
    let mut members = Vec::new();
    for replica in &topology.replicas {
        for node in &replica.nodes {
            let name = format!("{}/{}", replica.name, node.slot);
            let Some(admin) = &node.admin else {
                bail!("{name} has no admin address in {}: nothing tells when it is ready", path.display())
            };
            let (admin, address) = (admin.to_string(), node.address.to_string());
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host).to_owned();
            let restart = {
                let (name, admin) = (name.clone(), admin.clone());
                move || {
                    let mut command = Command::new("sh");
                    command.arg("-c").arg(run);
                    command.env("MONETA_NODE", &address).env("MONETA_HOST", &host).env("MONETA_ADMIN", &admin);
                    command.env("MONETA_ZONE", &replica.zone).env("MONETA_REPLICA", &replica.name);
                    let status = command.env("MONETA_SLOT", &node.slot).status().context("no shell")?;
                    if status.success() { Ok(()) } else { bail!("the command for {name} failed: {status}") }
                }
            };
            members.push(Member { name, admin, restart: Box::new(restart) });
        }
    }
    roll(&members, &args.proxies, args)
}

fn roll(members: &[Member<'_>], proxies: &[String], args: &RollArgs) -> anyhow::Result<()> {
    let patience = Duration::from_secs(args.patience);
    let mut out = stdout().lock();
    for member in members {
        let Member { name, admin, restart } = member;
        for other in members {
            wait(patience, || ready(&other.admin))
                .with_context(|| format!("{name} is not restarted: {} is not ready", other.name))?;
        }
        for proxy in proxies {
            wait(patience, || serves_all(proxy))
                .with_context(|| format!("{name} is not restarted: the proxy at {proxy} does not have all nodes"))?;
        }
        let before = admin::started(admin).with_context(|| format!("{name} does not say since when it runs"))?;
        let held = admin::numbers(admin).with_context(|| format!("{name} does not say what it holds"))?.items;
        let from = Instant::now();
        restart()?;
        wait(patience, || {
            let after = admin::started(admin).map_err(|error| error.to_string())?;
            if after == before { Err("it is still the process of before".to_owned()) } else { ready(admin) }
        })
        .with_context(|| format!("{name} does not come back; the others are as they were"))?;
        writeln!(out, "{name}: ready again after {:.1} s", from.elapsed().as_secs_f64())?;
        if !args.lossy {
            // Else the next one takes what only it holds by now.
            wait(patience, || holds_again(admin, held)).with_context(|| {
                format!(
                    "{name} does not hold again what it held; no other node is restarted. Nodes that keep items in RAM alone lose them with a \
                     restart, and are filled by reads: wait until they are, or give --lossy"
                )
            })?;
        }
    }
    writeln!(out, "{} nodes restarted", members.len())?;
    Ok(())
}

/// Waits until `holds`; its last words are in the error.
fn wait(patience: Duration, holds: impl Fn() -> Result<(), String>) -> anyhow::Result<()> {
    let from = Instant::now();
    loop {
        match holds() {
            Ok(()) => return Ok(()),
            Err(why) if from.elapsed() > patience => bail!("after {} s: {why}", patience.as_secs()),
            Err(_) => sleep(POLL),
        }
    }
}

fn ready(admin: &str) -> Result<(), String> {
    match admin::ready(admin) {
        Ok(ready) if ready.ready => Ok(()),
        Ok(ready) => Err(format!("{} {}", ready.phase, ready.notes.join("; ")).trim().to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Whether a node holds what it held before, but for a part that may have expired meanwhile.
fn holds_again(admin: &str, before: u64) -> Result<(), String> {
    let now = admin::numbers(admin).map_err(|error| error.to_string())?.items;
    let is_enough = now.saturating_mul(100) >= before.saturating_mul(SHARE);
    if is_enough { Ok(()) } else { Err(format!("it holds {now} of {before} items")) }
}

/// Whether a proxy asks every node and has nothing left to give any.
fn serves_all(proxy: &str) -> Result<(), String> {
    let view = admin::view(proxy).map_err(|error| error.to_string())?;
    match (view.down, view.hints) {
        (0, 0) => Ok(()),
        (0, hints) => Err(format!("it has {hints} writes for nodes that missed them")),
        (down, _) => Err(format!("it does not ask {down} nodes")),
    }
}
