//! `moneta cluster roll`: restarts nodes one after the other, each only while all others are ready.
//!
//! Who rolls may be told to stop between two looks at a node, and says how far it is: what goes on later does not restart a node again
//! that has been restarted.

use std::io::{Write, stdout};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Args;
use moneta_cluster::Topology;
use serde::{Deserialize, Serialize};

use super::admin;

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
    /// Give up a job that an earlier command has begun, and begin with the first node again
    #[arg(long, conflicts_with = "topology")]
    pub anew: bool,
}

/// A node holds again what it held if it has so many of a hundred items: some may have expired meanwhile.
const SHARE: u64 = 90;

/// A node to be restarted.
pub struct Member<'a> {
    /// Its name.
    pub name: String,
    /// Where its admin side is.
    pub admin: String,
    /// Restarts it, and returns once that was begun.
    pub restart: Box<dyn Fn() -> anyhow::Result<()> + 'a>,
}

/// A node before its restart.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Before {
    /// When its process began, in seconds of Unix time.
    started: f64,
    /// The items that it held.
    held: u64,
}

/// Who has nodes restarted.
pub trait Owner {
    /// What was kept of this node before, if its restart was begun already.
    fn known(&self) -> Option<Before>;
    /// The node is about to be restarted; false: it is not to be.
    ///
    /// # Errors
    /// If that cannot be kept.
    fn restarts(&self, before: Before) -> anyhow::Result<bool>;
    /// What is waited for.
    fn waits(&self, what: &str);
    /// Whether it is to stop.
    fn is_stopped(&self) -> bool;
}

/// A command by itself: it goes on to its end, and keeps nothing.
struct Alone;

impl Owner for Alone {
    fn known(&self) -> Option<Before> {
        None
    }

    fn restarts(&self, _: Before) -> anyhow::Result<bool> {
        Ok(true)
    }

    fn waits(&self, _: &str) {}

    fn is_stopped(&self) -> bool {
        false
    }
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

/// Restarts nodes, one after the other.
///
/// # Errors
/// As [`restart`].
pub fn roll(members: &[Member<'_>], proxies: &[String], args: &RollArgs) -> anyhow::Result<()> {
    for member in members {
        restart(member, members, proxies, args, &Alone)?;
    }
    writeln!(stdout().lock(), "{} nodes restarted", members.len())?;
    Ok(())
}

/// Restarts a node and waits until it is as it was; false: its owner has told to stop, before or after the restart.
///
/// # Errors
/// If a node is not ready before, the restart fails, or the node does not come back.
pub fn restart(
    member: &Member<'_>,
    members: &[Member<'_>],
    proxies: &[String],
    args: &RollArgs,
    owner: &dyn Owner,
) -> anyhow::Result<bool> {
    let patience = Duration::from_secs(args.patience);
    let Member { name, admin, restart } = member;
    let known = owner.known();
    for other in members.iter().filter(|other| known.is_none() || other.name != *name) {
        let is_there = wait(owner, patience, || ready(&other.admin))
            .with_context(|| format!("{name} is not restarted: {} is not ready", other.name))?;
        if !is_there {
            return Ok(false);
        }
    }
    // One that is being restarted is missing there.
    for proxy in proxies.iter().filter(|_| known.is_none()) {
        let is_there = wait(owner, patience, || serves_all(proxy))
            .with_context(|| format!("{name} is not restarted: the proxy at {proxy} does not have all nodes"))?;
        if !is_there {
            return Ok(false);
        }
    }
    let before = match known {
        Some(before) => before,
        None => Before {
            started: admin::started(admin).with_context(|| format!("{name} does not say since when it runs"))?,
            held: admin::numbers(admin).with_context(|| format!("{name} does not say what it holds"))?.items,
        },
    };
    let from = Instant::now();
    let is_restarted = known.is_some() && admin::started(admin).is_ok_and(|started| started != before.started);
    if !is_restarted {
        if !owner.restarts(before)? {
            return Ok(false);
        }
        restart()?;
    }
    let is_back = wait(owner, patience, || {
        let after = admin::started(admin).map_err(|error| error.to_string())?;
        if after == before.started { Err("it is still the process of before".to_owned()) } else { ready(admin) }
    })
    .with_context(|| format!("{name} does not come back; the others are as they were"))?;
    if !is_back {
        return Ok(false);
    }
    writeln!(stdout().lock(), "{name}: ready again after {:.1} s", from.elapsed().as_secs_f64())?;
    if args.lossy {
        return Ok(true);
    }
    // Else the next one takes what only it holds by now.
    wait(owner, patience, || holds_again(admin, before.held)).with_context(|| {
        format!(
            "{name} does not hold again what it held; no other node is restarted. Nodes that keep items in RAM alone lose them with a \
             restart, and are filled by reads: wait until they are, or give --lossy"
        )
    })
}

/// Waits until `holds`; its last words are in the error. False: its owner has told to stop.
fn wait(owner: &dyn Owner, patience: Duration, holds: impl Fn() -> Result<(), String>) -> anyhow::Result<bool> {
    let from = Instant::now();
    loop {
        match holds() {
            Ok(()) => return Ok(true),
            Err(_) if owner.is_stopped() => return Ok(false),
            Err(why) if from.elapsed() > patience => bail!("after {} s: {why}", patience.as_secs()),
            Err(why) => {
                owner.waits(&why);
                sleep(POLL);
            }
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
