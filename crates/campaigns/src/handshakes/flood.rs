//! Clients that connect, make a handshake and go, at a steady rate.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use moneta_bench::address::{Address, Subject};
use moneta_bench::affinity::pin_this_thread;
use moneta_bench::{BenchError, Result};

use super::{MARGIN, Plan};

/// At least as many handshakes are under way at once as the rate needs where each takes some milliseconds.
const CLIENTS: u32 = 4;
/// How long a server may take for one.
const PATIENCE: Duration = Duration::from_secs(5);

/// Does `what` while handshakes are made at `address`; how many were made a second.
///
/// Each is a whole one: a client goes before it has read the ticket for another. The clients step back for what is measured.
pub(super) fn flood<T>(plan: &Plan, address: &Address, what: impl FnOnce() -> Result<T>) -> Result<(T, f64)> {
    let (stop, made, began) = (AtomicBool::new(false), AtomicU64::new(0), Instant::now());
    let spacing = Duration::from_secs(1) * CLIENTS / plan.handshakes;
    let client = |number: u32| {
        pin_this_thread(&plan.client_cpus)?;
        step_back()?;
        let mut due = began + spacing * number / CLIENTS;
        while !stop.load(Ordering::Relaxed) {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            drop(address.connect_for(PATIENCE)?);
            made.fetch_add(1, Ordering::Relaxed);
            due += spacing;
        }
        Ok::<_, BenchError>(())
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS).map(|number| scope.spawn(move || client(number))).collect();
        thread::sleep(MARGIN);
        let done = what();
        thread::sleep(MARGIN);
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok((done?, made.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64()))
    })
}

/// Lets the client that is measured go before the calling thread.
fn step_back() -> Result<()> {
    const NICER: i32 = 10;
    rustix::process::nice(NICER).map_err(|error| BenchError::system("lower a priority", error)).map(drop)
}
