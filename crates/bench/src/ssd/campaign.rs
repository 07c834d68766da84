//! The campaign: which parts there are, at which scale, and in which order they run.

use std::cell::Cell;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;

use super::report::Report;
use super::subject::Subject;
use super::{fill, nightly, overwrites, page_cache, reads, restart};
use crate::affinity::pin_this_thread;
use crate::compare::Side;
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::load::{Length, Plan};
use crate::operation::Operation;
use crate::popularity::Popularity;
use crate::weighted::Weighted;
use crate::wire::Protocol;
use crate::workload::Workload;

/// What is measured after the fill, which every campaign begins with; always in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub enum Part {
    /// Uniform random gets and multi-gets from SSD, half sets and half gets, and what fio reaches on the same file.
    Reads,
    /// Online gets while a bulk load runs.
    Nightly,
    /// A clean stop and a kill, and what is there after each.
    Restart,
    /// All keys overwritten several times.
    Overwrites,
    /// The same with small values, on the node alone, started anew.
    Small,
}

/// How large everything is.
#[derive(Debug, Clone)]
pub struct Scale {
    /// Keys.
    pub keys: u64,
    /// Key length in bytes.
    pub key_length: usize,
    /// Value size in bytes.
    pub value_size: u32,
    /// Size of a server's file in MiB.
    pub flash: u64,
    /// Value size of the part with small values.
    pub small_value_size: u32,
    /// File size in MiB of the part with small values.
    pub small_flash: u64,
    /// Length of each measurement.
    pub length: Duration,
    /// Load before each measurement.
    pub warmup: Duration,
    /// Online gets a second while a bulk load runs.
    pub online_rate: f64,
    /// How long the hot keys are asked for before that.
    pub online_warmup: Duration,
    /// How often all keys are overwritten.
    pub overwrites: u32,
    /// Rounds of the measurements that change nothing that matters to the next.
    pub rounds: usize,
    /// Whether read values are checked.
    pub verify: bool,
}

/// What a campaign is told.
#[derive(Debug)]
pub struct Settings {
    /// The node, and the peer if there is one.
    pub sides: Vec<Side>,
    /// Where the servers' folders are made.
    pub data: PathBuf,
    /// Sizes and lengths.
    pub scale: Scale,
    /// What is measured after the fill.
    pub parts: Vec<Part>,
    /// Whether the page cache stays as it is.
    pub keep_page_cache: bool,
    /// CPUs of the servers.
    pub server_cpus: Vec<usize>,
    /// CPUs of the client.
    pub client_cpus: Vec<usize>,
    /// Whether it is told what runs.
    pub progress: bool,
}

/// Runs a campaign. Where it ended early, the report holds what was measured before.
///
/// # Errors
/// The second of the pair: what went wrong with a server, [`BenchError::Mismatch`] at the first wrong value, or
/// [`BenchError::Interrupted`].
pub fn run(settings: &Settings) -> (Report, Result<()>) {
    let name = |side: usize| settings.sides.get(side).map_or("–".to_owned(), |side| side.name.clone());
    let mut report = Report {
        names: [name(0), name(1)],
        servers: settings.sides.iter().map(|side| side.origin.to_string()).collect(),
        rows: Vec::new(),
        remarks: Vec::new(),
    };
    let ran = run_parts(settings, &mut report);
    (report, ran)
}

fn run_parts(settings: &Settings, report: &mut Report) -> Result<()> {
    pin_this_thread(&settings.client_cpus)?;
    let wants = |part| settings.parts.contains(&part);
    if settings.parts.iter().any(|part| *part != Part::Small) {
        let mut subjects = settings.start(settings.scale.flash)?;
        let load = Loads::new(settings, settings.scale.value_size);
        fill::run(settings, &load, &subjects, report)?;
        if wants(Part::Reads) {
            reads::run(settings, &load, &subjects, report)?;
        }
        if wants(Part::Nightly) {
            nightly::run(settings, &load, &subjects, report)?;
        }
        if wants(Part::Restart) {
            restart::run(settings, &load, &mut subjects[0], report)?;
        }
        if wants(Part::Overwrites) {
            overwrites::run(settings, &load, &subjects, report)?;
        }
    }
    if wants(Part::Small) {
        // The node alone: memcached does not move values this small out of RAM.
        let subject =
            Subject::start(&settings.sides[0], &settings.data, settings.scale.small_flash, &settings.server_cpus)?;
        let subjects = [subject];
        let load = Loads::new(settings, settings.scale.small_value_size);
        fill::run(settings, &load, &subjects, report)?;
        overwrites::run(settings, &load, &subjects, report)?;
    }
    Ok(())
}

impl Settings {
    fn start(&self, mebibytes: u64) -> Result<Vec<Subject>> {
        let start = |side: &Side| Subject::start(side, &self.data, mebibytes, &self.server_cpus);
        self.sides.iter().map(start).collect()
    }

    /// Tells what runs now, and ends the campaign if it was interrupted.
    ///
    /// # Errors
    /// [`BenchError::Interrupted`].
    pub fn announce(&self, what: &str, subject: &Subject) -> Result<()> {
        interrupt::check()?;
        if self.progress {
            eprintln!("{what}: {}", subject.name);
        }
        Ok(())
    }

    /// Drops the page cache unless it is to be kept.
    ///
    /// # Errors
    /// As [`page_cache::drop_all`].
    pub fn drop_page_cache(&self) -> Result<()> {
        if self.keep_page_cache { Ok(()) } else { page_cache::drop_all() }
    }
}

/// Makes the plans of a campaign's loads: the same keys and values for all of them, asked for in another order by each, lest one
/// finds in RAM what an earlier one brought there.
#[derive(Debug)]
pub struct Loads {
    base: Plan,
    runs: Cell<u64>,
    /// Bytes of a key and its value.
    pub item_bytes: u64,
    /// How values are told of in the names of loads.
    pub size: String,
}

impl Loads {
    /// The loads of a campaign with values of this size.
    pub fn new(settings: &Settings, value_size: u32) -> Self {
        let scale = &settings.scale;
        let workload = Workload {
            seed: 1,
            keys: scale.keys,
            key_length: scale.key_length,
            popularity: Popularity::Uniform,
            sizes: Weighted::only(value_size),
            random_sizes: false,
            ttls: Weighted::only(0),
            mix: Weighted::only(Operation::Get),
            once_share: 0.0,
            lookaside: false,
        };
        let base = Plan {
            workload: Arc::new(workload),
            run: 0,
            protocol: Protocol::Text,
            connections: 16,
            threads: 1,
            pipeline: 1,
            sliding: false,
            multiget: 1,
            warmup: scale.warmup,
            length: Length::Duration(scale.length),
            rate: None,
            verify: scale.verify,
            cpus: settings.client_cpus.clone(),
            progress: settings.progress,
        };
        let runs = Cell::new(0);
        Self {
            base,
            runs,
            item_bytes: (scale.key_length + value_size as usize) as u64,
            size: format!("{value_size} B"),
        }
    }

    /// Uniform random gets in a closed loop.
    pub fn plan(&self, connections: usize) -> Plan {
        self.runs.set(self.runs.get() + 1);
        Plan { connections, run: self.runs.get(), ..self.base.clone() }
    }

    /// The same with something of the workload changed.
    pub fn with(&self, connections: usize, change: impl FnOnce(&mut Workload)) -> Plan {
        let mut workload = Workload::clone(&self.base.workload);
        change(&mut workload);
        Plan { workload: Arc::new(workload), ..self.plan(connections) }
    }
}

/// Refuses a scale that cannot be measured.
///
/// # Errors
/// [`BenchError::Option`].
pub fn check(settings: &Settings) -> Result<()> {
    let load = Loads::new(settings, settings.scale.value_size);
    load.base.workload.validate()?;
    if !settings.data.is_dir() {
        return Err(BenchError::option("data", settings.data.display(), "expected a folder that exists"));
    }
    Ok(())
}
