//! `moneta cluster`: a cluster on this machine, to try things on: three zones of two nodes each, a proxy for each
//! zone, and a control plane that all of them follow.
//!
//! It is a demonstration and a test bed. It starts what does not run and ends what runs; it watches nothing.

mod admin;
mod certificates;
mod plan;
mod plane;
mod private;
mod process;
mod regions;
mod roll;
mod roll_job;
mod screen;
mod traces;
mod users;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_net::ports;
use nix::fcntl::{Flock, FlockArg};

use self::certificates::Certificates;
use self::plan::{Plan, Sizes};
use self::plane::Plane;
use self::regions::Regions;
use self::roll::RollArgs;
use self::users::Users;
use crate::outward;

#[derive(Debug, Args)]
struct Folder {
    /// Folder of the cluster: its SSD tiers, logs and process numbers
    #[arg(long, value_name = "DIR", default_value = "moneta-cluster")]
    dir: PathBuf,
}

#[derive(Debug, Args)]
struct UpArgs {
    #[command(flatten)]
    folder: Folder,
    /// First of 19 ports in a row; 0: any that are free [default: 21100]
    #[arg(long, value_name = "PORT")]
    port: Option<u16>,
    /// RAM of each node, as --memory of `moneta serve` [default: 64m]
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// SSD tier of each node, 129 MiB at least [default: 256m]
    #[arg(long, value_name = "SIZE")]
    flash: Option<String>,
    /// Protect all connections by TLS: makes an authority, certificates and users in the folder. Whoever is none of these may do nothing
    #[arg(long)]
    tls: bool,
    /// So many regions, each a cluster as above, with relays between them: up to 4
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=i64::from(regions::MOST)), conflicts_with = "tls")]
    regions: Option<u8>,
}

/// The subcommand.
pub fn command() -> Command {
    let up = UpArgs::augment_args(Command::new("up")).about("Start the processes that do not run").after_help(
        "Ports and sizes are chosen when a folder is begun and stay: `up` again starts what was stopped or killed. Remove the folder to begin \
         another cluster.",
    );
    Command::new("cluster")
        .about("Try a cluster on this machine: three zones of two nodes, a proxy for each zone, and a control plane")
        .after_help(
            "docs/cluster.md says what a cluster is. This is to try one: nothing here watches or restarts processes.",
        )
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(up)
        .subcommand(
            Folder::augment_args(Command::new("status"))
                .about("Show what runs; the exit status is 1 if anything is not ready"),
        )
        .subcommand(
            RollArgs::augment_args(Command::new("roll"))
                .about("Restart nodes one after the other, each only while all others are ready")
                .after_help(
                    "Nodes that catch up (--catch-up of `moneta serve`) are ready once they have. With --topology it restarts the nodes of any \
                     fleet, by a command: --run 'ssh $MONETA_HOST systemctl restart moneta'.",
                ),
        )
        .subcommand(
            Folder::augment_args(Command::new("down")).about("End all processes; data and ports stay in the folder"),
        )
}

/// Does what the subcommand says.
///
/// # Errors
/// If a folder cannot be used, a process does not start or does not end.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    match matches.subcommand() {
        Some(("up", matches)) => up(&UpArgs::from_arg_matches(matches)?).map(|()| ExitCode::SUCCESS),
        Some(("status", matches)) => status(&Folder::from_arg_matches(matches)?),
        Some(("roll", matches)) => roll(&RollArgs::from_arg_matches(matches)?).map(|()| ExitCode::SUCCESS),
        Some(("down", matches)) => down(&Folder::from_arg_matches(matches)?).map(|()| ExitCode::SUCCESS),
        _ => unreachable!("clap lets only known subcommands through"),
    }
}

fn up(args: &UpArgs) -> anyhow::Result<()> {
    let dir = &args.folder.dir;
    fs::create_dir_all(dir).with_context(|| format!("no folder at {}", dir.display()))?;
    let dir = &dir.canonicalize().with_context(|| dir.display().to_string())?;
    let _lock = lock(dir)?;
    if let Some(regions) = regions_of(args, dir)? {
        for region in 1..=regions.count {
            let folder = regions::folder(dir, region);
            let plan = Plan::load(&folder)?.with_context(|| format!("no cluster in {}", folder.display()))?;
            start_all(&folder, &plan)?;
        }
        regions.start_relays(dir)?;
        return regions.show(dir);
    }
    // Until all processes listen.
    let mut claimed = None;
    let plan = match Plan::load(dir)? {
        Some(_) if args.port.is_some() || args.memory.is_some() || args.flash.is_some() || args.tls => {
            bail!(
                "the cluster in {} has its ports and sizes: leave them and --tls out, or remove the folder",
                dir.display()
            )
        }
        Some(plan) => plan,
        None => {
            let sizes = Sizes {
                memory: args.memory.clone().unwrap_or_else(|| "64m".into()),
                flash: args.flash.clone().unwrap_or_else(|| "256m".into()),
            };
            let mut plan = match args.port.unwrap_or(21100) {
                0 => Plan::on(&claimed.insert(ports::claim(plan::PORTS)?).ports, sizes)?,
                first => Plan::from(first, sizes)?,
            };
            (plan.tls, plan.users) = (args.tls, args.tls);
            if plan.tls {
                Certificates::of(dir).make(&plan)?;
                Users(dir).make(&plan)?;
            }
            plan.store(dir)?;
            plan
        }
    };
    reach(dir, &plan)?;
    start_all(dir, &plan)?;
    screen::started(dir, &plan)
}

/// The regions of a folder, or those that are to be begun there; `None`: it is, or becomes, one cluster.
fn regions_of(args: &UpArgs, dir: &Path) -> anyhow::Result<Option<Regions>> {
    let (there, is_cluster) = (Regions::load(dir)?, Plan::load(dir)?.is_some());
    let begins = args.regions.is_some() || args.port.is_some() || args.memory.is_some() || args.flash.is_some();
    match (there, args.regions) {
        (Some(_), _) if begins => {
            bail!("the regions in {} have their ports and sizes: leave them out, or remove the folder", dir.display())
        }
        (Some(there), _) => Ok(Some(there)),
        (None, Some(_)) if is_cluster => bail!("{} has a cluster of one region: take another folder", dir.display()),
        (None, Some(count)) => {
            let sizes = Sizes {
                memory: args.memory.clone().unwrap_or_else(|| "32m".into()),
                flash: args.flash.clone().unwrap_or_else(|| "160m".into()),
            };
            Regions::plan(dir, count, args.port.unwrap_or(21200), &sizes).map(Some)
        }
        (None, None) => Ok(None),
    }
}

/// Starts what does not run, and waits until all is ready.
fn start_all(dir: &Path, plan: &Plan) -> anyhow::Result<()> {
    if let Some(plane) = Plane::of(dir, plan) {
        plane.start(plan)?;
    }
    for process in &plan.processes {
        if process::pid(dir, process).is_none() {
            process::start(dir, plan, process)?;
        }
    }
    for process in &plan.processes {
        process::wait_until_ready(dir, process)?;
    }
    Ok(())
}

fn status(folder: &Folder) -> anyhow::Result<ExitCode> {
    if let Some(regions) = Regions::load(&folder.dir)? {
        let dir = folder.dir.canonicalize().with_context(|| folder.dir.display().to_string())?;
        return Ok(if regions.status(&dir)? { ExitCode::SUCCESS } else { ExitCode::FAILURE });
    }
    let (dir, plan) = planned(&folder.dir)?;
    let ready = screen::status(&dir, &plan)?;
    Ok(if ready { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn roll(args: &RollArgs) -> anyhow::Result<()> {
    if let Some(rolled) = roll::of_topology(args) {
        return rolled;
    }
    let (dir, plan) = planned(&args.dir)?;
    let _lock = lock(&dir)?;
    roll_job::of_folder(args, &dir, &plan)
}

fn down(folder: &Folder) -> anyhow::Result<()> {
    if let Some(regions) = Regions::load(&folder.dir)? {
        let dir = folder.dir.canonicalize().with_context(|| folder.dir.display().to_string())?;
        let _lock = lock(&dir)?;
        let mut count = regions.stop_relays(&dir)?;
        for region in 1..=regions.count {
            count += end_all(&planned(&regions::folder(&dir, region))?)?;
        }
        return screen::ended(&dir, count);
    }
    let (dir, plan) = planned(&folder.dir)?;
    let _lock = lock(&dir)?;
    let count = end_all(&(dir.clone(), plan))?;
    screen::ended(&dir, count)
}

/// Ends what runs of a cluster; how many processes.
fn end_all((dir, plan): &(PathBuf, Plan)) -> anyhow::Result<usize> {
    // Proxies first: a client should not be told of nodes that fail because they end.
    let pids: Vec<_> =
        plan.processes.iter().rev().filter_map(|process| Some((process, process::pid(dir, process)?))).collect();
    for is_proxy in [true, false] {
        let together = || pids.iter().filter(|(process, _)| process.proxy == is_proxy);
        for (process, pid) in together() {
            process::tell(process, *pid)?;
        }
        for (process, pid) in together() {
            process::wait_for_end(dir, process, *pid)?;
        }
    }
    // Last: the others tell it that they leave.
    let plane = Plane::of(dir, plan).map(|plane| plane.stop()).transpose()?;
    Ok(pids.len() + usize::from(plane == Some(true)))
}

fn planned(dir: &Path) -> anyhow::Result<(PathBuf, Plan)> {
    let absolute = dir.canonicalize().with_context(|| format!("no cluster in {}", dir.display()))?;
    let plan = Plan::load(&absolute)?.with_context(|| format!("no cluster in {}", dir.display()))?;
    reach(&absolute, &plan)?;
    Ok((absolute, plan))
}

/// Has this command reach the processes of the cluster as its operator.
fn reach(dir: &Path, plan: &Plan) -> anyhow::Result<()> {
    if plan.tls {
        outward::set(Certificates::of(dir).operator()?);
    }
    Ok(())
}

/// Keeps another `up` or `down` of this folder away while this one is at work.
fn lock(dir: &Path) -> anyhow::Result<Flock<File>> {
    let file = File::create(dir.join("lock")).with_context(|| format!("{} cannot be written", dir.display()))?;
    Flock::lock(file, FlockArg::LockExclusiveNonblock)
        .map_err(|(_, error)| error)
        .with_context(|| format!("another command works on {}", dir.display()))
}
