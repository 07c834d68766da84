//! `moneta repair`: finds where two nodes, copies or regions differ by digests, and repairs it; the work is the repair crate's.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::{ArgMatches, Args, Command, FromArgMatches};
use moneta_bulk::Watch as _;
use moneta_client::wire::{Protocol, VALUE_LIMIT};
use moneta_cluster::sources::{SourceError, TopologySource};
use moneta_cluster::{Cluster, Ring, Topology};
use moneta_net::{Address, Outward};
use moneta_options::values::Values;
use moneta_remote::{Remote, RemoteConfig, ValueMemory};
use moneta_repair::{Goal, RepairConfig, Report, Side, SideNode, Watch, digest};
use moneta_store::{Clock, KeyHash, Origin, Store, component};

use super::feed::{ago, now, reachable};
use super::moving::{Screen, print};
use crate::outward;
use crate::proxy::{self, AppKeys, ClusterParts};

/// Exit status if keys differed that were not repaired, or not all was compared.
const INCOMPLETE: u8 = 2;
/// How long a request to a node may take.
const REQUEST_WITHIN: Duration = Duration::from_secs(5);
/// Memory for large values on their way.
const VALUE_MEMORY: usize = 256 << 20;

/// What is compared, and how.
#[derive(Debug, Args)]
struct RepairArgs {
    /// A node by its admin address, HOST:PORT; with --topology the name of a replica
    #[arg(value_name = "A")]
    a: String,
    /// The other one, in the same way
    #[arg(value_name = "B")]
    b: String,
    /// The topology whose replicas A and B name; its nodes have admin addresses. A TOML file, or what else --topology of `moneta
    /// proxy` takes
    #[arg(long, value_name = "SOURCE")]
    topology: Option<String>,
    /// The topology of another region, whose replica B names: what is repaired is then written to all copies of the region
    #[arg(long, value_name = "SOURCE", requires = "topology")]
    to_topology: Option<String>,
    /// Compare what was written so long ago or later, as 30m or 26h
    #[arg(long, value_name = "TIME", value_parser = ago, conflicts_with = "full", required_unless_present = "full")]
    since: Option<Duration>,
    /// Compare all
    #[arg(long)]
    full: bool,
    /// Leave out what was written in the last seconds: it may be on its way
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    lag: u64,
    /// In how many buckets keys are compared, a power of two up to 65536; more where few keys differ among many
    #[arg(long, value_name = "N", default_value_t = 4096, value_parser = buckets)]
    buckets: u32,
    /// Only keys that begin so
    #[arg(long, value_name = "TEXT", default_value = "")]
    prefix: String,
    /// Repair at most so many keys a second [default: as fast as it goes]
    #[arg(long, value_name = "KEYS", default_value_t = 0, hide_default_value = true)]
    rate: u64,
    /// Write nothing
    #[arg(long)]
    dry_run: bool,
    /// Keep in this file how far it is, and go on there
    #[arg(long, value_name = "FILE")]
    state_file: Option<PathBuf>,
    /// Print as the last line, as JSON, what was found
    #[arg(long)]
    json: bool,
}

fn buckets(text: &str) -> Result<u32, String> {
    let number = text.parse::<u32>().ok().filter(|number| number.is_power_of_two() && *number <= 1 << 16);
    number.ok_or_else(|| "expected a power of two up to 65536".to_owned())
}

/// The subcommand.
pub fn command() -> Command {
    let command = RepairArgs::augment_args(Command::new("repair"));
    command.about("Find where two nodes, copies or regions differ, and repair it: the newer version wins").after_help(
        "What one side lacks is no difference, unless it remembers that it was deleted: each side evicts by itself. It may be run again and \
         beside clients. Ends with status 0, and 2 if not all could be compared or repaired. docs/repair.md says more.",
    )
}

/// Runs it; the exit status tells whether all was compared and repaired.
///
/// # Errors
/// If a node tells no digest, or an argument names none.
pub fn run(matches: &ArgMatches) -> anyhow::Result<ExitCode> {
    let args = RepairArgs::from_arg_matches(matches)?;
    let outward = outward::of_command();
    let pair = Pair::of(&args, &outward)?;
    let config = RepairConfig {
        goal: args.since.map_or(Goal::Full, |since| {
            Goal::Since(now().saturating_sub(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
        }),
        lag: Duration::from_secs(args.lag),
        buckets: args.buckets,
        prefix: args.prefix.clone(),
        rate: args.rate,
        only_looks: args.dry_run,
        done: args.state_file.clone(),
    };
    let screen = Screen::new("repair")?;
    let ended = moneta_repair::repair(&pair.a, &pair.b, &config, &OnScreen(&screen));
    screen.end();
    pair.close();
    let report = ended?;
    print(&report, args.json, &in_words(&report, args.dry_run))?;
    let is_whole = report.done && report.failed == 0 && report.refused == 0;
    Ok(if is_whole { ExitCode::SUCCESS } else { INCOMPLETE.into() })
}

struct OnScreen<'s>(&'s Screen);

impl Watch for OnScreen<'_> {
    fn note(&self, text: &str) {
        self.0.note(text);
    }

    fn should_stop(&self) -> bool {
        self.0.should_stop()
    }
}

/// What was found, in words.
pub fn in_words(report: &Report, only_looks: bool) -> String {
    let done = if only_looks { "would be repaired" } else { "repaired" };
    let mut text = format!(
        "{} items compared in {} buckets, {} of which differ\n{done}: {} older, {} shorter lives, {} deleted on one side ({} in A, {} in B)\n\
         left as they are: {} evicted on one side, {} flushed on one side, {} that changed meanwhile",
        report.items,
        report.buckets,
        report.buckets_differing,
        report.older,
        report.life,
        report.deleted,
        report.to_a,
        report.to_b,
        report.evicted,
        report.flushed,
        report.changed,
    );
    if report.refused + report.failed > 0 {
        text += &format!("\nnot repaired: {} refused, {} as a node failed", report.refused, report.failed);
    }
    text += &format!(
        "\nbytes: {} of digests, {} of lists, {} copied",
        report.digest_bytes, report.list_bytes, report.copied_bytes
    );
    if !report.done {
        text += "\nit was stopped before all was compared";
    }
    text
}

/// Both sides, and the clusters that were opened for them.
pub struct Pair {
    /// A.
    pub a: Side,
    /// B.
    pub b: Side,
    clusters: Vec<Cluster>,
}

impl Pair {
    fn of(args: &RepairArgs, outward: &Outward) -> anyhow::Result<Self> {
        let clock = Arc::new(Clock::system());
        let Some(source) = &args.topology else {
            let (a, b) = (lone(&args.a, outward, &clock)?, lone(&args.b, outward, &clock)?);
            return Ok(Self { a, b, clusters: Vec::new() });
        };
        let topology = proxy::topology(source)?;
        match &args.to_topology {
            None => {
                let side = |name: &str| copy(&topology, name, name, outward, &clock);
                Ok(Self { a: side(&args.a)?, b: side(&args.b)?, clusters: Vec::new() })
            }
            Some(other) => {
                Self::of_regions((&topology, Some(&args.a)), (&proxy::topology(other)?, Some(&args.b)), outward, &clock)
            }
        }
    }

    /// Two regions: a copy of each is compared, by name or the first, and all copies are written to.
    ///
    /// # Errors
    /// If a topology has no such copy, or its nodes no admin addresses.
    pub fn of_regions(
        (of_a, copy_a): (&Topology, Option<&str>),
        (of_b, copy_b): (&Topology, Option<&str>),
        outward: &Outward,
        clock: &Arc<Clock>,
    ) -> anyhow::Result<Self> {
        let mut clusters = Vec::new();
        let mut side = |letter: &str, topology: &Topology, name: Option<&str>| -> anyhow::Result<Side> {
            let readable = topology.replicas.iter().find(|replica| !replica.write_only);
            let name = name.or(readable.map(|replica| &*replica.name)).context("the topology has no copy")?;
            let compared = copy(topology, name, &format!("{letter}:{name}"), outward, clock)?;
            let parts = ClusterParts {
                name: format!("repair-{letter}"),
                keys: AppKeys::default(),
                kept: None,
                allow_flush: false,
                has_boards: false,
                origin: Origin::default(),
                seed: KeyHash::random().context("the system has no randomness")?,
                outward: outward.clone(),
                memory: Arc::new(ValueMemory::new(VALUE_MEMORY)),
                clock: Arc::clone(clock),
            };
            let cluster = proxy::cluster_of(&Values::default(), Box::new(Fixed(topology.clone())), parts)?;
            clusters.push(cluster.clone());
            Ok(Side { cluster: Some(Arc::new(cluster)), ..compared })
        };
        let (a, b) = (side("a", of_a, copy_a)?, side("b", of_b, copy_b)?);
        Ok(Self { a, b, clusters })
    }

    /// Lets go of what it reached.
    pub fn close(&self) {
        self.clusters.iter().for_each(|cluster| component::close(cluster));
        [&self.a, &self.b].iter().flat_map(|side| &side.nodes).for_each(|node| component::close(&node.store));
    }
}

/// A topology that stays.
struct Fixed(Topology);

impl TopologySource for Fixed {
    fn next(&mut self, timeout: Duration) -> Result<Option<Topology>, SourceError> {
        // The first time it is asked with patience; what follows it waits.
        std::thread::sleep(timeout.min(Duration::from_millis(50)));
        Ok(Some(self.0.clone()))
    }

    fn name(&self) -> String {
        "a topology that was given".to_owned()
    }
}

/// The store of a node.
fn node(address: Address, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Arc<dyn Store>> {
    let config = RemoteConfig {
        request_timeout: REQUEST_WITHIN.into(),
        protocol: Some(Protocol::Meta),
        item_max: VALUE_LIMIT,
        ..RemoteConfig::new(outward.to(address), KeyHash::seeded(0))
    };
    Ok(Arc::new(Remote::new(config, Arc::clone(clock)).context("cannot talk to a node")?))
}

/// A node by its admin address.
fn lone(name: &str, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Side> {
    let admin: Address = name.parse().map_err(|error| anyhow!("\"{name}\" is no address: {error}"))?;
    let admin = outward.to(admin);
    let named = digest::listeners(name, &admin)?;
    let address = reachable(&named, name).into_iter().next().with_context(|| format!("{name} names no listener"))?;
    let nodes = vec![SideNode { name: name.to_owned(), admin, store: node(address, outward, clock)? }];
    Ok(Side { name: name.to_owned(), nodes, node_of: Arc::new(|_| 0), cluster: None })
}

/// A copy of a topology.
fn copy(topology: &Topology, name: &str, shown: &str, outward: &Outward, clock: &Arc<Clock>) -> anyhow::Result<Side> {
    let replica = topology.replicas.iter().find(|replica| replica.name == name).with_context(|| {
        let names: Vec<&str> = topology.replicas.iter().map(|replica| &*replica.name).collect();
        format!("the topology has no replica \"{name}\": it has {}", names.join(", "))
    })?;
    let ring = Ring::new(topology.ring, &replica.nodes)?;
    let mut nodes = Vec::new();
    for one in &replica.nodes {
        let Some(admin) = one.admin.clone() else {
            bail!("the topology has no admin address of {}/{}: a digest is asked for there", replica.name, one.slot)
        };
        nodes.push(SideNode {
            name: format!("{shown}/{}", one.slot),
            admin: outward.to(admin),
            store: node(one.address.clone(), outward, clock)?,
        });
    }
    Ok(Side { name: shown.to_owned(), nodes, node_of: Arc::new(move |key| ring.node(key)), cluster: None })
}
