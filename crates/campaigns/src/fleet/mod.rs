//! A control plane with a large fleet: instances that register and renew, each with a connection a request as they do, readers of
//! feeds, and changes of topologies.
//!
//! ```text
//!  register all ──> rest: renewals and readers alone ──> changes beside them ──> restart
//! ```
//! What the control plane costs is told in seconds of its own CPU, so that it can be measured on a machine that does other things;
//! times by the wall are those of this machine as busy as it is.

mod changes;
mod eureka;
mod feeds;
mod pace;
mod plan;
mod process;
mod renewals;
mod request;

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use moneta_bench::{BenchError, interrupt};
use tokio::runtime::Builder;
use tokio::time::sleep;

pub use changes::Reached;
pub use eureka::{EurekaMeasured, EurekaPlan};
use plan::{Counts, REGISTRATIONS};
pub use plan::{Plan, Spent, Took};
use process::Control;

/// What was measured.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The registrations, of the first 10,000 at most.
    pub registered: Took,
    /// At rest.
    pub rest: Spent,
    /// Renewals that were answered meanwhile: on a machine that does other things a load may fall behind.
    pub rest_renewals: u64,
    /// With changes.
    pub changing: Spent,
    /// How changes reached readers.
    pub reached: Reached,
    /// Renewals that were answered.
    pub renewals: u64,
    /// Of these, answered after more than a second.
    pub late: u64,
    /// From the start of a process to its readiness.
    pub ready: Took,
}

/// Runs it.
///
/// # Errors
/// If the control plane does not start, or refuses what a fleet needs.
pub fn run(plan: &Plan) -> moneta_bench::Result<Measured> {
    process::raise_descriptors();
    let failed = |error| BenchError::system("a control plane with a large fleet", error);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let measured = runtime.block_on(measure(plan)).map_err(failed)?;
    interrupt::check().map(|()| measured)
}

/// The same fleet as clients of Eureka, on any server that speaks its protocol.
///
/// # Errors
/// If the server does not start, or refuses what its clients need.
pub fn run_eureka(plan: &EurekaPlan) -> moneta_bench::Result<EurekaMeasured> {
    process::raise_descriptors();
    let failed = |error| BenchError::system("a registry with a large fleet", error);
    let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let measured = runtime.block_on(eureka::measure(plan)).map_err(failed)?;
    interrupt::check().map(|()| measured)
}

async fn measure(plan: &Plan) -> io::Result<Measured> {
    let mut control = Control::start(plan)?;
    control.until_ready().await?;
    let address = control.address;
    eprintln!("registers {} instances", plan.instances);
    let first = plan.instances.min(REGISTRATIONS);
    let (began, spent) = (Instant::now(), control.running.cpu()?);
    renewals::register(address, plan, 0..first).await?;
    let registered = Took { count: first, took: began.elapsed(), cpu: control.running.cpu()? - spent };
    renewals::register(address, plan, first..plan.instances).await?;
    changes::create(address, plan).await?;

    let counts = Arc::<Counts>::default();
    let renewing = tokio::spawn(renewals::renew(address, plan.clone(), Arc::clone(&counts)));
    eprintln!("begins {} readers of feeds", plan.feeds);
    let feeds = feeds::begin(address, plan).await?;
    // What the readers were told to begin with costs nothing any more.
    sleep(plan.period).await;
    eprintln!("looks at it at rest for {} s", plan.rest.as_secs());
    let before = counts.answered.load(Ordering::Relaxed);
    let rest = control.running.spent(sleep(plan.rest)).await?.0;
    let rest_renewals = counts.answered.load(Ordering::Relaxed) - before;
    eprintln!("makes {} changes a second for {} s", plan.changes, plan.seconds.as_secs());
    let (changing, reached) = control.running.spent(changes::make(address, plan, &feeds)).await?;
    renewing.abort();
    feeds.end();
    let failures = counts.failures.load(Ordering::Relaxed);
    if failures > 0 {
        eprintln!("{failures} renewals failed");
    }

    eprintln!("restarts it");
    control.running.end()?;
    let began = Instant::now();
    let mut again = Control::start_in(plan, control.folder())?;
    again.until_ready().await?;
    let ready = Took { count: 1, took: began.elapsed(), cpu: again.running.cpu()? };
    again.running.end()?;
    let (renewals, late) = (counts.answered.load(Ordering::Relaxed), counts.late.load(Ordering::Relaxed));
    Ok(Measured { registered, rest, rest_renewals, changing, reached: reached?, renewals, late, ready })
}
