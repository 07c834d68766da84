//! `moneta verify`: compares two servers key by key; the comparison is the verify crate's.

use std::fmt;
use std::io::{Write, stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, anyhow};
use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use moneta_client::wire::Protocol;
use moneta_cluster::Ring;
use moneta_net::Address;
use moneta_verify::{
    ComparedPlace, Conclusion, Direction, Keys, Observer, Phase, Progress, Repair, Verify, VerifyConfig,
};
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;

use crate::outward;

/// Exit status if keys differ.
const DIFFERENT: u8 = 1;
/// Exit status if not all could be compared.
const INCOMPLETE: u8 = 2;
/// Exit status of a process that a second signal ends.
const KILLED: i32 = 130;

/// What is to be compared, and how.
#[derive(Debug, Args)]
struct VerifyArgs {
    /// One server: HOST:PORT, or the path of a Unix socket; with --topology the name of a replica
    a: String,
    /// The other
    b: String,
    /// Compare two copies of a cluster, all their nodes: those of the replicas A and B of this topology, each key on the node
    /// that its replica's ring names. A TOML file, or what else --topology of `moneta proxy` takes
    #[arg(long, value_name = "SOURCE", help_heading = "Keys")]
    topology: Option<String>,
    /// Compare this share of the keys, such as 0.01 or 1%; a key's hash decides, so both sides' keys are chosen alike
    #[arg(long, value_name = "SHARE", value_parser = share, default_value = "100%", help_heading = "Keys")]
    sample: f64,
    /// Compare only the first N keys of each list
    #[arg(long, value_name = "N", help_heading = "Keys")]
    first: Option<u64>,
    /// Compare the keys of a file, one a line or as `lru_crawler metadump` or `mgdump` lists them; `-` is standard input.
    /// Without it both servers list theirs
    #[arg(long, value_name = "FILE", help_heading = "Keys")]
    keys: Option<PathBuf>,
    /// By how many seconds expiration times may differ
    #[arg(long, value_name = "SECONDS", default_value_t = 2, help_heading = "Comparison")]
    ttl_tolerance: u32,
    /// Do not compare expiration times
    #[arg(long, help_heading = "Comparison")]
    ignore_ttl: bool,
    /// How long a difference must last to be one; it is looked at four more times meanwhile
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "2", help_heading = "Comparison")]
    settle: Duration,
    /// Make one side like the other where they differ, unless a client writes the key meanwhile
    #[arg(long, value_name = "DIRECTION", help_heading = "Repair")]
    repair: Option<RepairDirection>,
    /// Delete what only the side that is written has
    #[arg(long, requires = "repair", help_heading = "Repair")]
    delete_extra: bool,
    /// Delete also when the side that is read lists no keys, and so everything that is compared
    #[arg(long, requires = "delete_extra", help_heading = "Repair")]
    allow_empty_source: bool,
    /// Name so many keys of each kind of difference
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Output")]
    examples: usize,
    /// Print the report as JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Print nothing but errors, and show no progress: the exit status tells
    #[arg(long, short, conflicts_with = "json", help_heading = "Output")]
    quiet: bool,
    /// Connections to each server, a thread each
    #[arg(long, value_name = "N", default_value_t = 4, help_heading = "Load")]
    connections: usize,
    /// Keys asked for at once on a connection
    #[arg(long, value_name = "N", default_value_t = 100, help_heading = "Load")]
    batch: usize,
    /// At most so many keys a second, on all connections together [default: no limit]
    #[arg(long, value_name = "KEYS", help_heading = "Load")]
    rate: Option<f64>,
    /// Longest wait for a server
    #[arg(long, value_name = "SECONDS", value_parser = seconds, default_value = "5", help_heading = "Load")]
    timeout: Duration,
    /// Speak meta, text or binary [default: the best that each server knows; only meta tells expiration times]
    #[arg(long, value_name = "NAME", value_parser = |name: &str| name.parse::<Protocol>(), help_heading = "Load")]
    protocol: Option<Protocol>,
}

/// Which side is made like the other.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum RepairDirection {
    /// A is right, B is written
    AToB,
    /// B is right, A is written
    BToA,
    /// The newer version is right, key by key; both must know versions
    Newer,
}

fn share(text: &str) -> Result<f64, String> {
    let (number, unit) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    let share = number.parse::<f64>().map(|number| number / unit);
    share.ok().filter(|share| *share > 0.0 && *share <= 1.0).ok_or_else(|| "expected 0.01 or 1%, up to 1".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.ok_or_else(|| "expected a number of seconds".to_owned())
}

impl VerifyArgs {
    /// Both sides.
    fn places(&self) -> anyhow::Result<[ComparedPlace; 2]> {
        let server = |text: &str| -> anyhow::Result<ComparedPlace> {
            let address: Address = text.parse().map_err(|error| anyhow!("\"{text}\" is no server: {error}"))?;
            Ok(ComparedPlace::from(address))
        };
        let Some(source) = &self.topology else { return Ok([server(&self.a)?, server(&self.b)?]) };
        let topology = crate::proxy::topology(source)?;
        let copy = |name: &str| -> anyhow::Result<ComparedPlace> {
            let replica = topology.replicas.iter().find(|replica| replica.name == name).with_context(|| {
                let names: Vec<&str> = topology.replicas.iter().map(|replica| &*replica.name).collect();
                format!("the topology has no replica \"{name}\": it has {}", names.join(", "))
            })?;
            let ring = Ring::new(topology.ring, &replica.nodes)?;
            let nodes = replica.nodes.iter().map(|node| node.address.clone()).collect();
            Ok(ComparedPlace::copy(name, nodes, move |key| ring.node(key)))
        };
        Ok([copy(&self.a)?, copy(&self.b)?])
    }

    fn config(&self) -> anyhow::Result<VerifyConfig> {
        let [a, b] = self.places()?;
        let direction = |direction| match direction {
            RepairDirection::AToB => Direction::AToB,
            RepairDirection::BToA => Direction::BToA,
            RepairDirection::Newer => Direction::Newer,
        };
        Ok(VerifyConfig {
            only: None,
            keys: match &self.keys {
                None => Keys::Walked,
                Some(path) if path.as_os_str() == "-" => Keys::Stdin,
                Some(path) => Keys::File(path.clone()),
            },
            share: self.sample,
            first: self.first,
            protocol: self.protocol,
            compare_expiry: !self.ignore_ttl,
            tolerance: self.ttl_tolerance,
            settle: self.settle,
            examples: self.examples,
            allow_empty_source: self.allow_empty_source,
            repair: self.repair.map(|to| Repair { direction: direction(to), delete_extra: self.delete_extra }),
            connections: self.connections,
            batch: self.batch,
            rate: self.rate,
            timeout: self.timeout,
            outward: outward::of_command(),
            ..VerifyConfig::new(a, b)
        })
    }
}

/// The subcommand.
pub fn command() -> Command {
    // What the arguments say of themselves would else stand in place of what the command does.
    let command = VerifyArgs::augment_args(Command::new("verify"));
    command.about("Compare two servers, or two copies of a cluster, key by key, and repair what differs").after_help(
        "Ends with status 0 if all keys are equal, 1 if some differ, 2 if not all could be compared. Ctrl-C ends it with what \
         it has. Nothing that is read counts as used, but a node with an SSD tier promotes what it reads there: compare by \
         its batch port.",
    )
}

/// Runs it; the exit status tells what was found.
pub fn run(matches: &ArgMatches) -> ExitCode {
    match compare(matches) {
        Ok(Conclusion::Equal) => ExitCode::SUCCESS,
        Ok(Conclusion::Different) => DIFFERENT.into(),
        Ok(Conclusion::Incomplete) => INCOMPLETE.into(),
        Err(error) => {
            eprintln!("moneta: {}", crate::sentence(&error));
            INCOMPLETE.into()
        }
    }
}

fn compare(matches: &ArgMatches) -> anyhow::Result<Conclusion> {
    let args = VerifyArgs::from_arg_matches(matches)?;
    let config = args.config()?;
    let watch = Watch { bar: bar(&args), stop: stop_by_signal()? };
    let report = Verify::new(config).run(&watch);
    watch.bar.finish_and_clear();
    let report = report?;
    let text = if args.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_string() };
    match (&report.incomplete, args.quiet) {
        (Some(why), true) => eprintln!("moneta: {why}"),
        (None, true) => {}
        // A reader that closes the pipe has seen enough; the exit status tells the result all the same.
        _ => drop(stdout().write_all(text.as_bytes())),
    }
    Ok(report.conclusion)
}

/// SIGINT and SIGTERM: the first asks to stop, the second kills.
fn stop_by_signal() -> anyhow::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in TERM_SIGNALS {
        flag::register_conditional_shutdown(*signal, KILLED, Arc::clone(&stop))?;
        flag::register(*signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}

/// A bar on standard error, which shows itself on a terminal only.
fn bar(args: &VerifyArgs) -> ProgressBar {
    if args.quiet { ProgressBar::hidden() } else { ProgressBar::new_spinner() }
}

/// Shows progress, and passes a signal on.
struct Watch {
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
}

impl Watch {
    /// `length`: of a phase whose end is known.
    fn begin(&self, what: &str, length: Option<u64>) {
        let template = match length {
            Some(_) => "{prefix}  {bar:30} {percent:>3} %  {human_pos} of {human_len}  {rate}  {eta} left  {msg}",
            None => "{prefix}  {human_pos}  {rate}  {msg}",
        };
        let rate = |state: &ProgressState, out: &mut dyn fmt::Write| {
            // A rate that cannot be drawn is no reason to stop.
            let _ = write!(out, "{:.0}/s", state.per_sec());
        };
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        self.bar.set_style(style.with_key("rate", rate));
        self.bar.set_prefix(what.to_owned());
        self.bar.reset();
        match length {
            Some(length) => self.bar.set_length(length),
            None => self.bar.unset_length(),
        }
    }
}

impl Observer for Watch {
    fn phase(&self, phase: Phase) {
        match phase {
            Phase::Walking(side) => self.begin(&format!("{side} lists its keys"), None),
            Phase::Comparing(keys) => self.begin("comparing", keys),
            Phase::LookingForExtra(keys) => self.begin("looking for keys that only B has", Some(keys)),
            Phase::LookingAfterRepairs(keys) => self.begin("looking again at what was repaired", Some(keys)),
        }
    }

    fn progress(&self, progress: Progress) {
        self.bar.set_position(progress.keys);
        let Progress { different, suspects, .. } = progress;
        if different + suspects > 0 {
            self.bar.set_message(format!("{different} different, {suspects} looked at again"));
        }
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
