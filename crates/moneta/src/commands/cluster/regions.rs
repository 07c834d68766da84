//! Several regions for trying: a cluster in a folder for each, and a relay for each way between two.
//!
//! A relay reads the other region by the file `outside.toml` in that region's folder, which begins as its topology. To put a slow link
//! or a cut between the regions, write the addresses of forwarders there: relays follow the file.

use std::fs::{self, File};
use std::io::{ErrorKind, Write, stdout};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use moneta_net::ports;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use super::plan::{APP, HOST, PORTS, Plan, Sizes, TOPOLOGY};
use super::plane::Plane;
use super::traces::{last_line, pid_of};
use super::{admin, screen};
use crate::this_program;

/// The file in a folder of regions.
const FILE: &str = "regions.toml";
/// What the relays of other regions read.
const OUTSIDE: &str = "outside.toml";
/// Most regions: each has a relay from each other one.
pub const MOST: u8 = 4;
const PATIENCE: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(20);

/// The regions of a folder.
#[derive(Serialize, Deserialize)]
pub struct Regions {
    /// How many there are; their numbers begin with 1.
    pub count: u8,
    relays: Vec<RelayPlan>,
}

/// A relay.
#[derive(Serialize, Deserialize)]
struct RelayPlan {
    from: u8,
    to: u8,
    admin: u16,
}

impl RelayPlan {
    fn name(&self) -> String {
        format!("relay-{}-to-{}", self.from, self.to)
    }

    fn admin_address(&self) -> String {
        format!("{HOST}:{}", self.admin)
    }

    fn file(&self, dir: &Path, extension: &str) -> PathBuf {
        dir.join(format!("{}.{extension}", self.name()))
    }

    fn pid(&self, dir: &Path) -> Option<Pid> {
        pid_of(&self.file(dir, "pid"), &self.file(dir, "state"))
    }
}

/// The folder of a region.
pub fn folder(dir: &Path, region: u8) -> PathBuf {
    dir.join(format!("region-{region}"))
}

impl Regions {
    /// The regions in `dir`; `None`: it has none.
    pub fn load(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(FILE);
        match fs::read_to_string(&path) {
            Ok(text) => toml::from_str(&text).map(Some).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Plans regions, on ports from `first` on, or any that are free (0).
    pub fn plan(dir: &Path, count: u8, first: u16, sizes: &Sizes) -> anyhow::Result<Self> {
        let ways: Vec<(u8, u8)> =
            (1..=count).flat_map(|from| (1..=count).filter(move |to| *to != from).map(move |to| (from, to))).collect();
        let wanted = PORTS * usize::from(count) + ways.len();
        let mut claimed = None;
        let all: Vec<u16> = match first {
            0 => claimed.insert(ports::claim(wanted)?).ports.clone(),
            first => {
                let last = first.checked_add(u16::try_from(wanted)? - 1).context("there are not so many ports")?;
                (first..=last).collect()
            }
        };
        let (of_regions, of_relays) = all.split_at(PORTS * usize::from(count));
        for (region, ports) in (1..=count).zip(of_regions.chunks(PORTS)) {
            let folder = folder(dir, region);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let sizes = Sizes { memory: sizes.memory.clone(), flash: sizes.flash.clone() };
            let mut plan = Plan::on(ports, sizes)?;
            plan.region = region;
            plan.store(&folder)?;
            fs::copy(folder.join(TOPOLOGY), folder.join(OUTSIDE)).with_context(|| folder.display().to_string())?;
        }
        let relays = ways.into_iter().zip(of_relays).map(|((from, to), admin)| RelayPlan { from, to, admin: *admin });
        let regions = Self { count, relays: relays.collect() };
        fs::write(dir.join(FILE), toml::to_string(&regions)?).with_context(|| dir.display().to_string())?;
        drop(claimed);
        Ok(regions)
    }

    /// Starts the relays that do not run, and waits until they are ready.
    pub fn start_relays(&self, dir: &Path) -> anyhow::Result<()> {
        for relay in self.relays.iter().filter(|relay| relay.pid(dir).is_none()) {
            start(dir, relay)?;
        }
        for relay in &self.relays {
            let from = Instant::now();
            while !admin::ready(&relay.admin_address()).is_ok_and(|ready| ready.ready) {
                if relay.pid(dir).is_none() {
                    bail!("{} has ended: {}", relay.name(), last_line(&relay.file(dir, "log")));
                }
                if from.elapsed() > PATIENCE {
                    bail!(
                        "{} is not ready after {PATIENCE:?}; its log is {}",
                        relay.name(),
                        relay.file(dir, "log").display()
                    );
                }
                sleep(POLL);
            }
        }
        Ok(())
    }

    /// Ends the relays; how many ran.
    pub fn stop_relays(&self, dir: &Path) -> anyhow::Result<usize> {
        let running: Vec<_> = self.relays.iter().filter_map(|relay| Some((relay, relay.pid(dir)?))).collect();
        for (relay, pid) in &running {
            kill(*pid, Signal::SIGTERM).with_context(|| format!("{} cannot be told to end", relay.name()))?;
        }
        for (relay, _) in &running {
            let from = Instant::now();
            while relay.pid(dir).is_some() {
                if from.elapsed() > PATIENCE {
                    bail!("{} has not ended after {PATIENCE:?}", relay.name());
                }
                sleep(POLL);
            }
            let _ = fs::remove_file(relay.file(dir, "pid"));
        }
        Ok(running.len())
    }

    /// Shows what runs. Returns whether all is ready.
    pub fn status(&self, dir: &Path) -> anyhow::Result<bool> {
        let mut all_ready = true;
        for region in 1..=self.count {
            writeln!(stdout().lock(), "region {region}")?;
            let folder = folder(dir, region);
            let plan = Plan::load(&folder)?.with_context(|| format!("no cluster in {}", folder.display()))?;
            all_ready &= screen::status(&folder, &plan)?;
        }
        let mut out = stdout().lock();
        writeln!(out, "relays")?;
        for relay in &self.relays {
            let state = match (relay.pid(dir), admin::ready(&relay.admin_address())) {
                (None, _) => "does not run".to_owned(),
                (_, Err(error)) => format!("does not answer: {error}"),
                (_, Ok(ready)) if ready.ready => "ready".to_owned(),
                (_, Ok(ready)) => format!("not ready: {}", ready.notes.join("; ")),
            };
            all_ready &= state == "ready";
            writeln!(out, "{:<14} http://{}/relay  {state}", relay.name(), relay.admin_address())?;
        }
        Ok(all_ready)
    }

    /// Where everything is, and what to try.
    pub fn show(&self, dir: &Path) -> anyhow::Result<()> {
        let mut out = stdout().lock();
        writeln!(out, "{} regions in {}\n", self.count, dir.display())?;
        writeln!(out, "region  proxy of zone a    folder")?;
        let mut proxies = Vec::new();
        for region in 1..=self.count {
            let folder = folder(dir, region);
            let plan = Plan::load(&folder)?.with_context(|| format!("no cluster in {}", folder.display()))?;
            let proxy = plan.processes.iter().find(|process| process.proxy).context("a plan has a proxy")?;
            writeln!(out, "{region:<7} {:<18} {}", proxy.address(), folder.display())?;
            proxies.push(proxy.port);
        }
        writeln!(out, "\nrelay          admin")?;
        for relay in &self.relays {
            writeln!(out, "{:<14} http://{}/relay", relay.name(), relay.admin_address())?;
        }
        let plane = |region: u8| -> anyhow::Result<String> {
            let folder = folder(dir, region);
            let plan = Plan::load(&folder)?.with_context(|| format!("no cluster in {}", folder.display()))?;
            Ok(Plane::of(&folder, &plan).map(|plane| plane.url()).unwrap_or_default())
        };
        let (moneta, here, others) = (this_program::word(), plane(1)?, plane(2)?);
        let folder = dir.display();
        write!(
            out,
            "
What is written in one region is read in the others a moment later.

try, in bash
  mc() {{ exec 3<>/dev/tcp/127.0.0.1/$1; printf \"$2\\r\\nquit\\r\\n\" >&3; cat <&3; }}
  mc {} 'set greeting 0 0 5\\r\\nhello'       write in region 1
  mc {} 'get greeting'                       read in region 2
  {moneta} region drain region-1 --control {here} --others {others}    and then `region return`
  {moneta} cluster status --dir '{folder}'
stop  {moneta} cluster down --dir '{folder}'
",
            proxies[0], proxies[1],
        )?;
        Ok(())
    }
}

fn start(dir: &Path, relay: &RelayPlan) -> anyhow::Result<()> {
    let log = relay.file(dir, "log");
    let open = || File::options().create(true).append(true).open(&log).with_context(|| log.display().to_string());
    let mut command = Command::new(std::env::current_exe().context("the program has no path")?);
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("MONETA_")) {
        command.env_remove(name);
    }
    command.args(["relay", "--region", &relay.from.to_string(), "--admin", &relay.admin_address(), "--probe"]);
    command.arg("--from").arg(folder(dir, relay.from).join(OUTSIDE));
    command.arg("--to").arg(folder(dir, relay.to).join(TOPOLOGY));
    let to = folder(dir, relay.to);
    let plan = Plan::load(&to)?.with_context(|| format!("no cluster in {}", to.display()))?;
    if let Some(plane) = Plane::of(&to, &plan) {
        command.args(["--control", &plane.url(), "--app", APP, "--region-name", &plan.region_name()]);
    }
    command.arg("--state-dir").arg(relay.file(dir, "state"));
    command.arg("--hint-dir").arg(relay.file(dir, "hints"));
    // Of its own group, so that it does not end with what is typed at this command.
    let child = command.stdin(Stdio::null()).stdout(open()?).stderr(open()?).process_group(0).spawn()?;
    let pid_file = relay.file(dir, "pid");
    fs::write(&pid_file, format!("{}\n", child.id())).with_context(|| pid_file.display().to_string())
}
