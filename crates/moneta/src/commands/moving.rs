//! What `dump`, `populate` and `copy` have in common: their flags, their signals, and what they show meanwhile.

use std::fmt::Write as _;
use std::io::{IsTerminal, Write as _, stderr, stdout};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use clap::Args;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use moneta_bulk::law::Room;
use moneta_bulk::stages::Rates;
use moneta_bulk::{Counts, Place, RateConfig, Stages, Watch, Which, Written};
use moneta_cluster::{Replica, Ring, Topology};
use moneta_feed::Buckets;
use moneta_net::{Address, Endpoint};
use moneta_options::kinds::units;
use parking_lot::Mutex;
use serde::Serialize;
use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag;

use crate::outward;

/// How long a server may say nothing.
const SILENCE: Duration = Duration::from_secs(10);
/// How often a line tells how far a job is where there is no terminal.
const TELL_EVERY: Duration = Duration::from_secs(5);
/// How often its rates are anew on a terminal.
const RATES_EVERY: Duration = Duration::from_secs(1);
/// Exit status of a process that a second signal ends.
const KILLED: i32 = 130;

/// A number of bytes above 0.
pub(super) fn size(text: &str) -> Result<u64, String> {
    units::size(text, 1)
        .filter(|size| *size > 0)
        .ok_or_else(|| "expected a number of bytes, or one with k, m or g".to_owned())
}

/// How fast a job may go.
#[derive(Debug, Args)]
pub(super) struct RateArgs {
    /// At most so many bytes of keys and values a second, or with k, m or g [default: as many as it goes]
    #[arg(long, value_name = "BYTES", value_parser = size)]
    rate: Option<u64>,
    /// At most so many items and deletes a second [default: as many as it goes]
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Go slower where the p99 of online gets is above so many times what it is in quiet, such as 1.5; needs --rate or --operations
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    p99_limit: Option<f64>,
}

impl RateArgs {
    pub(super) fn config(&self) -> anyhow::Result<RateConfig> {
        let Self { rate, operations, p99_limit } = *self;
        anyhow::ensure!(
            p99_limit.is_none() || rate.is_some() || operations.is_some(),
            "--p99-limit needs --rate or --operations: these are what it takes a share of"
        );
        Ok(RateConfig { bytes: rate.unwrap_or(0), operations: operations.unwrap_or(0), p99_limit })
    }
}

fn factor(text: &str) -> Result<f64, String> {
    let factor = text.parse::<f64>().ok().filter(|factor| factor.is_finite() && *factor > 1.0);
    factor.ok_or_else(|| "expected a number above 1".to_owned())
}

/// The server at an address.
pub(super) fn endpoint(address: Address) -> Endpoint {
    outward::of_command().to(address).patient(SILENCE)
}

/// Which items the flags name.
pub(super) fn which(prefix: &str, buckets: Option<Buckets>, ttl_over: u32) -> Which {
    Which { prefix: prefix.as_bytes().to_vec(), buckets, ttl_over }
}

/// The node or the copy of this name: with a topology a replica of it, or else an address.
pub(super) fn place(name: &str, topology: Option<&str>) -> anyhow::Result<Place> {
    let topology = topology.map(crate::proxy::topology).transpose()?;
    let replica = topology.as_ref().and_then(|topology| {
        let replica = topology.replicas.iter().find(|replica| replica.name == name)?;
        Some((topology, replica))
    });
    let Some((topology, replica)) = replica else {
        let address = name.parse::<Address>();
        let names = topology.iter().flat_map(|topology| &topology.replicas).map(|replica| &*replica.name);
        let names: Vec<&str> = names.collect();
        let known = if names.is_empty() { String::new() } else { format!(", and no replica: {}", names.join(", ")) };
        return Ok(endpoint(address.map_err(|error| anyhow!("\"{name}\" is no server: {error}{known}"))?).into());
    };
    of_replica(topology, replica)
}

/// The nodes of a replica.
fn of_replica(topology: &Topology, replica: &Replica) -> anyhow::Result<Place> {
    let ring = Ring::new(topology.ring, &replica.nodes)?;
    let nodes = replica.nodes.iter().map(|node| endpoint(node.address.clone())).collect();
    Ok(Place { name: replica.name.clone(), nodes, node_of: Arc::new(move |key| ring.node(key)) })
}

/// The node or the copy of this name, or else all copies of a topology.
pub(super) fn places(name: Option<&str>, topology: Option<&str>) -> anyhow::Result<Vec<Place>> {
    match (name, topology) {
        (Some(name), _) => Ok(vec![place(name, topology)?]),
        (None, Some(topology)) => {
            let topology = crate::proxy::topology(topology)?;
            topology.replicas.iter().map(|replica| of_replica(&topology, replica)).collect()
        }
        (None, None) => Err(anyhow!("--to or --topology says where items go")),
    }
}

/// Prints how a job ended: a line of JSON, or `text`.
pub(super) fn print(report: &impl Serialize, json: bool, text: &str) -> anyhow::Result<()> {
    let line = if json { serde_json::to_string(report).context("the report has no JSON")? } else { text.to_owned() };
    writeln!(stdout().lock(), "{line}")?;
    Ok(())
}

/// What was read, in words.
pub(super) fn read_words(counts: &Counts) -> String {
    let mut words = format!("{} items, {} bytes", counts.items, counts.bytes);
    let reasons = [
        (counts.deletes, "deletes"),
        (counts.replaced, "of the items replaced since"),
        (counts.short_lived, "left out for having too little to live"),
        (counts.unwanted, "of other prefixes or slots"),
        (counts.vanished, "gone before they were read"),
        (counts.too_large, "too large"),
        (counts.refused, "refused by the source"),
        (counts.flushes_left_out, "flushes left out, since only some keys are wanted"),
    ];
    for (count, what) in reasons.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(words, ", {count} {what}");
    }
    words
}

/// What became of it, in words.
pub(super) fn written_words(written: &Written) -> String {
    let mut words = format!("{} taken, {} created", written.taken, written.created);
    let reasons = [
        (written.superseded, "older than what is there, or perhaps deleted"),
        (written.unsure, "not created for want of certainty"),
        (written.there, "not created over what is there"),
        (written.over, "expired meanwhile, or stale"),
        (written.refused, "refused for want of room"),
        (written.untold, "deletes and flushes that the target cannot be told"),
    ];
    for (count, what) in reasons.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(words, ", {count} {what}");
    }
    words
}

/// What a job may have of its bound, in words.
fn room_words(room: &Room) -> String {
    format!("{:.1} % of its bound, cut {} times for clients", room.share * 100.0, room.cuts)
}

/// Shows a job on standard error: by a bar on a terminal, else by a line now and then. Passes signals on.
pub(super) struct Screen {
    command: &'static str,
    bar: ProgressBar,
    is_terminal: bool,
    shown: Mutex<Shown>,
    stop: Arc<AtomicBool>,
}

/// What is shown of a phase.
struct Shown {
    /// When rates were shown last, and where the time had gone by then.
    told: Instant,
    before: Stages,
    /// As far as it is known.
    now: Stages,
    rates: Option<Rates>,
    /// Of a job with a limit on what clients wait.
    room: Option<Room>,
}

impl Shown {
    fn new() -> Self {
        Self { told: Instant::now(), before: Stages::default(), now: Stages::default(), rates: None, room: None }
    }
}

impl Screen {
    /// The first SIGINT or SIGTERM asks the job to end, the second kills.
    ///
    /// # Errors
    /// If signals cannot be caught.
    pub(super) fn new(command: &'static str) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        for signal in TERM_SIGNALS {
            flag::register_conditional_shutdown(*signal, KILLED, Arc::clone(&stop))?;
            flag::register(*signal, Arc::clone(&stop))?;
        }
        let is_terminal = stderr().is_terminal();
        let bar = if is_terminal { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        Ok(Self { command, bar, is_terminal, shown: Mutex::new(Shown::new()), stop })
    }

    /// The job has ended.
    pub(super) fn end(&self) {
        self.bar.finish_and_clear();
    }
}

impl Watch for Screen {
    fn note(&self, text: &str) {
        self.bar.suspend(|| eprintln!("moneta {}: {text}", self.command));
    }

    fn phase(&self, what: &str, expected: Option<u64>) {
        let template = match expected {
            Some(_) => "{prefix}  {bar:30} {percent:>3} %  {human_pos} of about {human_len}  {rate}  {eta} left  {msg}",
            None => "{prefix}  {human_pos}  {rate}  {msg}",
        };
        let rate = |state: &ProgressState, out: &mut dyn std::fmt::Write| {
            // A rate that cannot be drawn is no reason to stop.
            let _ = write!(out, "{:.0}/s", state.per_sec());
        };
        let style = ProgressStyle::with_template(template).expect("the template is valid");
        self.bar.set_style(style.with_key("rate", rate));
        let mut shown = self.shown.lock();
        *shown = Shown { room: shown.room, ..Shown::new() };
        drop(shown);
        self.bar.set_prefix(what.to_owned());
        self.bar.reset();
        match expected {
            Some(expected) => self.bar.set_length(expected),
            None => self.bar.unset_length(),
        }
        if !self.is_terminal {
            self.note(what);
        }
    }

    fn progress(&self, counts: Counts) {
        self.bar.set_position(counts.items);
        let is_due = {
            let mut shown = self.shown.lock();
            let is_due = shown.told.elapsed() >= if self.is_terminal { RATES_EVERY } else { TELL_EVERY };
            if is_due {
                shown.told = Instant::now();
                // Jobs that tell no stages have none.
                shown.rates = (shown.now != shown.before).then(|| shown.now.since(&shown.before).rates());
                shown.before = shown.now;
            }
            let rates = shown.rates.map(|rates| format!("\n  {rates}")).unwrap_or_default();
            let room = shown.room.map(|room| format!("\n  {}", room_words(&room))).unwrap_or_default();
            self.bar.set_message(format!("{} MB{rates}{room}", counts.bytes / 1_000_000));
            is_due.then_some((shown.rates, shown.room))
        };
        if let (Some((rates, room)), false) = (is_due, self.is_terminal) {
            let rates = rates.map(|rates| format!("; {rates}")).unwrap_or_default();
            let room = room.map(|room| format!("; {}", room_words(&room))).unwrap_or_default();
            self.note(&format!("{}{rates}{room}", read_words(&counts)));
        }
    }

    fn stages(&self, stages: &Stages) {
        self.shown.lock().now = *stages;
    }

    fn room(&self, room: &Room) {
        self.shown.lock().room = Some(*room);
    }

    fn should_stop(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
