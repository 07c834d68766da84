//! A server under attack by many hostile clients at once, while one that behaves measures what it gets.
//!
//! ```text
//!  fill ──> quiet: the good client alone ──> attack: all hostile clients, and the good one ──> rest: no client
//! ```
//!
//! What is told of it: the server's resident memory before, at its most and after; the good client's latencies without and with
//! the attack; how often connections of each attack were closed.

mod attack;
mod ends;
mod good;
mod items;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

pub use attack::Attack;
pub use good::Latency;

use good::Good;
use moneta_bench::Result;
use moneta_bench::address::{Address, Subject};
use moneta_bench::alarm;
use moneta_bench::interrupt;
use moneta_bench::process::Process;

/// How long a hostile client waits for the server at a time.
const PATIENCE: Duration = Duration::from_millis(200);
/// How long a hostile client rests when it was closed.
const REST: Duration = Duration::from_millis(100);
/// Between two looks at the server's memory.
const SAMPLE: Duration = Duration::from_millis(20);

/// What is done to which server.
#[derive(Debug, Clone)]
pub struct Plan {
    /// Where the server listens.
    pub address: Address,
    /// Its process, on this machine.
    pub process: Process,
    /// User and password, for a server that wants a log-in by text.
    pub login: Option<(String, String)>,
    /// Hostile connections.
    pub connections: usize,
    /// Requests a second of the good client.
    pub rate: f64,
    /// How long the good client is alone.
    pub quiet: Duration,
    /// How long the attack takes.
    pub attack: Duration,
    /// How long the server has to give memory back afterwards.
    pub rest: Duration,
}

/// An attack as it went.
#[derive(Debug, Clone, Serialize)]
pub struct Attacked {
    /// What it was.
    pub name: &'static str,
    /// Connections at a time.
    pub connections: usize,
    /// Times that the server closed one.
    pub closed: u64,
}

/// What came of it.
#[derive(Debug, Clone, Serialize)]
pub struct Report {
    /// The good client alone.
    pub quiet: Latency,
    /// The good client beside the hostile ones.
    pub attacked: Latency,
    /// Resident bytes before the attack, with all items there.
    pub resident_before: u64,
    /// Resident bytes at their most while it went on.
    pub resident_most: u64,
    /// Resident bytes a while after.
    pub resident_after: u64,
    /// What was done.
    pub attacks: Vec<Attacked>,
}

impl Report {
    /// How many times its quiet p99 the good client's p99 was.
    pub fn slowdown(&self) -> f64 {
        self.attacked.p99 / self.quiet.p99
    }
}

/// Fills the server, attacks it and watches.
///
/// # Errors
/// When the server does not answer its good client, or is gone.
pub fn run(plan: &Plan) -> Result<Report> {
    let mut good = Good::connect(&plan.address, plan.login.as_ref())?;
    for item in attack::items() {
        good.store(&item)?;
    }
    let quiet = first(|| good.measure(plan.rate, plan.quiet))?;
    let resident_before = plan.process.memory()?.resident;
    let attacks = if plan.login.is_some() { Attack::LOGIN } else { Attack::OPEN };
    let closed: Vec<AtomicU64> = attacks.iter().map(|_| AtomicU64::new(0)).collect();
    let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
    let (attacked, resident_most) = std::thread::scope(|scope| {
        let watch = scope.spawn(|| watch(plan.process, &over));
        for number in 0..plan.connections {
            let (which, stop) = (number % attacks.len(), &stop);
            let (attack, closed) = (attacks[which], &closed[which]);
            scope.spawn(move || attack_until(stop, plan, attack, number, closed));
        }
        let attacked = first(|| good.measure(plan.rate, plan.attack));
        stop.store(true, Ordering::Relaxed);
        over.store(true, Ordering::Relaxed);
        let most = watch.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        attacked.and_then(|attacked| Ok((attacked, most?)))
    })?;
    std::thread::sleep(plan.rest);
    let count = |which: usize| (plan.connections + attacks.len() - 1 - which) / attacks.len();
    let told = attacks.iter().enumerate().map(|(which, attack)| Attacked {
        name: attack.name(),
        connections: count(which),
        closed: closed[which].load(Ordering::Relaxed),
    });
    Ok(Report {
        quiet,
        attacked,
        resident_before,
        resident_most,
        resident_after: plan.process.memory()?.resident,
        attacks: told.collect(),
    })
}

/// Measures on a thread that runs before others, as what the hostile clients take of the processor is not the server's; on
/// another than the caller's, as threads that this one starts would have the same.
fn first(measure: impl FnOnce() -> Result<Latency> + Send) -> Result<Latency> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            alarm::run_first();
            measure()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// The most memory a process has while it is looked at.
fn watch(process: Process, over: &AtomicBool) -> Result<u64> {
    let mut most = 0;
    while !over.load(Ordering::Relaxed) {
        most = most.max(process.memory()?.resident);
        std::thread::sleep(SAMPLE);
    }
    Ok(most)
}

/// Attacks over one connection after the other. A server that takes none just now is asked again.
fn attack_until(stop: &AtomicBool, plan: &Plan, attack: Attack, number: usize, closed: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) && interrupt::check().is_ok() {
        if let Ok(mut stream) = plan.address.connect_for(PATIENCE) {
            let logged_in = attack.is_on_login() || good::log_in(&mut stream, plan.login.as_ref()).is_ok();
            if logged_in && attack.run(&mut stream, number, stop).is_err() {
                closed.fetch_add(1, Ordering::Relaxed);
            }
        }
        std::thread::sleep(REST);
    }
}
