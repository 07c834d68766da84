//! The command line: options to plans, results to tables and JSON.

mod engines_args;
mod eureka_args;
mod fleet_args;
mod handshakes_args;
mod hostile_args;
mod policies_args;
mod ssd_args;

use clap::Subcommand;
use moneta_bench::{Result, interrupt};

use engines_args::EnginesArgs;
use eureka_args::EurekaArgs;
use fleet_args::FleetArgs;
use handshakes_args::HandshakesArgs;
use hostile_args::HostileArgs;
use policies_args::PoliciesArgs;
use ssd_args::SsdArgs;

/// What is measured.
#[derive(Debug, Subcommand)]
pub enum Campaign {
    /// Measure servers that keep their items on an SSD: fill, reads, a bulk load, restarts, overwrites.
    Ssd(Box<SsdArgs>),
    /// Measure several servers that keep their items on an SSD one after the other, in one table.
    Engines(Box<EnginesArgs>),
    /// Run a control plane with a large fleet on this machine, and measure what it costs and how fast changes reach readers.
    Fleet(FleetArgs),
    /// Run registries that speak Eureka's protocol on this machine, one after the other, each with a large fleet of clients.
    Eureka(EurekaArgs),
    /// Measure what open TLS connections of a node notice of handshakes at a steady rate.
    Handshakes(Box<HandshakesArgs>),
    /// Attack a server on this machine with many hostile clients at once, and measure its memory and what a good client gets.
    Hostile(Box<HostileArgs>),
    /// Replay a trace, or a profile's stream, and simulate known policies on the same requests.
    Policies(Box<PoliciesArgs>),
}

/// Does what the command line says, prints the results to standard output and progress to standard error.
///
/// # Errors
/// An option out of range, a server that fails, a bound that is not kept, or [`moneta_bench::BenchError::Mismatch`] when a value
/// read is wrong.
pub fn run(campaign: &Campaign) -> Result<()> {
    interrupt::install()?;
    match campaign {
        Campaign::Ssd(ssd) => ssd.run(),
        Campaign::Engines(engines) => engines.run(),
        Campaign::Fleet(fleet) => fleet.run(),
        Campaign::Eureka(eureka) => eureka.run(),
        Campaign::Handshakes(handshakes) => handshakes.run(),
        Campaign::Hostile(hostile) => hostile.run(),
        Campaign::Policies(policies) => policies.run(),
    }
}
