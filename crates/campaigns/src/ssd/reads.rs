//! Random reads from SSD, and reads mixed with writes, beside what fio reaches on the same file.
//!
//! "From SSD" means through the listener with the batch policy, whose reads do not fill the RAM tier; a server without one is
//! asked through its only one. What share of the hits came from SSD is told either way.

use std::time::Duration;

use super::fio;
use super::loads::Loads;
use super::report::{Figure, Report, Wanted};
use super::settings::Settings;
use super::subject::Subject;
use moneta_bench::Result;
use moneta_bench::address::Address;
use moneta_bench::interrupt;
use moneta_bench::load::{self, Outcome, Plan};
use moneta_bench::operation::Operation;
use moneta_bench::process::Process;
use moneta_bench::weighted::Weighted;

/// Depths fio reads at: those of the loads with as many connections.
const DEPTHS: [usize; 2] = [16, 64];
/// The share of the bytes stored that certainly lie at the front of the file.
const FRONT: f64 = 0.9;

/// A load of this part.
struct Reading {
    name: String,
    plan: Plan,
    /// Whether applications ask, not a bulk job.
    online: bool,
    rate: Option<Wanted>,
    p99: Option<Wanted>,
    cpu: Option<Wanted>,
}

/// Runs every load on every subject, round after round.
///
/// # Errors
/// What goes wrong with a server; without fio there is a remark.
pub fn run(settings: &Settings, load: &Loads, subjects: &[Subject], report: &mut Report) -> Result<()> {
    let mut fio = fio::installed();
    if !fio {
        report.remarks.push("fio is not installed: what the disk can do by itself was not measured.".to_owned());
    }
    for _ in 0..settings.scale.rounds {
        for reading in readings(load) {
            for (side, subject) in subjects.iter().enumerate() {
                settings.announce(&reading.name, subject)?;
                settings.drop_page_cache()?;
                let measured = measure(subject, &reading.plan, reading.online)?;
                measured.add(report, &reading, side);
            }
        }
        if fio && let Err(error) = ask_fio(settings, load, &subjects[0], report) {
            interrupt::check()?;
            report.remarks.push(format!("What the disk can do by itself was not measured: {error}."));
            fio = false;
        }
    }
    Ok(())
}

fn readings(load: &Loads) -> Vec<Reading> {
    let (twice, half) = (Some(Wanted::RatioAtLeast(2.0)), Some(Wanted::RatioAtMost(0.5)));
    let gets = |connections, online| {
        let from = if online { "online, RAM in use" } else { "from SSD" };
        let name = format!("gets {from}, {connections} connections");
        let plan = load.plan(connections);
        let bound = |wanted| if online { None } else { wanted };
        Reading { name, plan, online, rate: bound(twice), p99: bound(half), cpu: bound(half) }
    };
    let multiget = Reading {
        name: "gets of 10 keys from SSD, 16 connections".to_owned(),
        plan: Plan { multiget: 10, ..load.plan(16) },
        online: false,
        rate: None,
        p99: Some(Wanted::RatioAtMost(0.4)),
        cpu: None,
    };
    let mixed = |online| {
        let from = if online { "online, RAM in use" } else { "on SSD" };
        let mix = Weighted::new([(Operation::Get, 1.0), (Operation::Set, 1.0)]).expect("the weights are positive");
        Reading {
            name: format!("half sets, half gets {from}, 64 connections"),
            plan: load.with(64, |workload| workload.mix = mix),
            online,
            rate: Some(Wanted::RatioAtLeast(1.5)),
            p99: None,
            cpu: None,
        }
    };
    vec![gets(DEPTHS[0], false), gets(DEPTHS[1], false), multiget, mixed(false), gets(DEPTHS[1], true), mixed(true)]
}

/// A load's outcome with what it meant for tiers and device.
pub struct Measured {
    outcome: Outcome,
    /// Share of the hits that came from SSD, 0 to 1.
    pub ssd_share: f64,
    /// Bytes the device read for each key asked for.
    device_read_per_key: f64,
    /// CPU time of the client for each request, in microseconds.
    client_cpu: f64,
}

/// Runs a load on a subject.
///
/// # Errors
/// What goes wrong with the server, or [`moneta_bench::BenchError::Mismatch`].
pub fn measure(subject: &Subject, plan: &Plan, online: bool) -> Result<Measured> {
    let address: &Address = if online { subject.online() } else { subject.batch() };
    let (process, client) = (subject.process()?, Process::new(std::process::id()));
    let (before, read_before) = (subject.counters()?, process.traffic()?.read);
    let client_before = client.cpu_time()?;
    let outcome = load::run(plan, address, Some(process))?;
    outcome.check()?;
    let client_used = client.cpu_time()? - client_before;
    let after = subject.counters()?;
    let read = process.traffic()?.read - read_before;
    let whole = |part: f64| part * (outcome.seconds + plan.warmup.as_secs_f64()) / outcome.seconds;
    Ok(Measured {
        ssd_share: after.ssd_share_since(&before),
        device_read_per_key: read as f64 / (after.hits - before.hits).max(1) as f64,
        // The client's time was taken with the warm-up.
        client_cpu: client_used.as_secs_f64() * 1e6 / whole(outcome.tally.requests as f64).max(1.0),
        outcome,
    })
}

impl Measured {
    /// Requests a second.
    pub fn rate(&self) -> f64 {
        self.outcome.requests_per_second
    }

    /// CPU time of the server for each request, in microseconds.
    pub fn server_cpu(&self) -> Option<f64> {
        self.outcome.server.as_ref().map(|server| server.cpu_per_request)
    }

    /// 99th percentile of the gets' latency in microseconds.
    pub fn get_p99(&self) -> f64 {
        let get = self.outcome.operations.iter().find(|(operation, _)| *operation == Operation::Get);
        get.map_or(0.0, |(_, latency)| latency.p99)
    }

    /// The median likewise.
    pub fn get_p50(&self) -> f64 {
        let get = self.outcome.operations.iter().find(|(operation, _)| *operation == Operation::Get);
        get.map_or(0.0, |(_, latency)| latency.p50)
    }

    /// Share of the keys read that were not there, in percent.
    pub fn misses(&self) -> f64 {
        self.outcome.hit_ratio.map_or(0.0, |ratio| (1.0 - ratio) * 100.0)
    }

    fn add(&self, report: &mut Report, reading: &Reading, side: usize) {
        let mut add = |figure: Figure, value: f64| report.add(&reading.name, figure, side, value);
        add(Figure::new("rate", "requests/s").wanted(reading.rate), self.outcome.requests_per_second);
        add(Figure::new("p50 of gets", "µs"), self.get_p50());
        add(Figure::new("p99 of gets", "µs").wanted(reading.p99), self.get_p99());
        if let Some(server) = &self.outcome.server {
            add(Figure::new("server CPU per request", "µs").wanted(reading.cpu), server.cpu_per_request);
            add(Figure::new("cores kept busy by the server", ""), server.cpu_cores);
        }
        add(Figure::new("client CPU per request", "µs"), self.client_cpu);
        add(Figure::new("hits answered from SSD", "%"), self.ssd_share * 100.0);
        add(Figure::new("read from the device per hit", "B"), self.device_read_per_key);
        add(Figure::new("misses", "%"), self.misses());
    }
}

/// fio's rate at each depth, and what share of it the gets of this round reached.
fn ask_fio(settings: &Settings, load: &Loads, subject: &Subject, report: &mut Report) -> Result<()> {
    let file = fio::largest_file(subject.folder())?;
    let bytes = (settings.scale.keys * load.item_bytes) as f64 * FRONT;
    for depth in DEPTHS {
        settings.announce(&format!("fio at depth {depth}"), subject)?;
        let length = settings.scale.length.max(Duration::from_secs(1));
        let reads = fio::random_reads(&file, bytes as u64, depth, length)?;
        let gets = format!("gets from SSD, {depth} connections");
        let last = |figure| {
            let row = report.rows.iter().find(|row| row.load == gets && row.figure == figure);
            row.and_then(|row| row.rounds[0].last().copied()).unwrap_or(0.0)
        };
        let from_ssd = last("rate") * last("hits answered from SSD") / 100.0;
        let name = format!("fio, 4 KiB direct random reads of the same file, depth {depth}");
        report.add(&name, Figure::new("rate", "reads/s"), 0, reads.per_second);
        report.add(&name, Figure::new("p99", "µs"), 0, reads.p99);
        let share = Figure::new("gets from SSD over fio's reads", "%").wanted(Some(Wanted::AtLeast(60.0)));
        report.add(&name, share, 0, from_ssd * 100.0 / reads.per_second);
    }
    Ok(())
}
